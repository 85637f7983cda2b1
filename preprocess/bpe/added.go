package bpe

import "strings"

// addedTokens finds tokens that are split out before everything else, the leftmost and of those the longest.
type addedTokens struct {
	byText map[string]uint32
	first  [256][]string // by first byte, longest first
	starts string        // all first bytes
}

func (a *addedTokens) add(text string, id uint32) {
	if text == "" {
		return
	}
	if a.byText == nil {
		a.byText = make(map[string]uint32)
	}
	if _, known := a.byText[text]; known {
		return
	}
	a.byText[text] = id
	list := a.first[text[0]]
	at := 0
	for at < len(list) && len(list[at]) >= len(text) {
		at++
	}
	list = append(list, "")
	copy(list[at+1:], list[at:])
	list[at] = text
	a.first[text[0]] = list
	if strings.IndexByte(a.starts, text[0]) < 0 {
		a.starts += text[:1]
	}
}

func (a *addedTokens) id(text string) (uint32, bool) {
	id, ok := a.byText[text]
	return id, ok
}

func (a *addedTokens) find(text string) (start, end int, id uint32, found bool) {
	if len(a.starts) == 1 {
		for at := 0; ; {
			next := strings.IndexByte(text[at:], a.starts[0])
			if next < 0 {
				return 0, 0, 0, false
			}
			at += next
			if end, id, ok := a.at(text, at); ok {
				return at, end, id, true
			}
			at++
		}
	}
	for at := range len(text) {
		if a.first[text[at]] == nil {
			continue
		}
		if end, id, ok := a.at(text, at); ok {
			return at, end, id, true
		}
	}
	return 0, 0, 0, false
}

func (a *addedTokens) at(text string, at int) (end int, id uint32, ok bool) {
	for _, token := range a.first[text[at]] {
		if strings.HasPrefix(text[at:], token) {
			return at + len(token), a.byText[token], true
		}
	}
	return 0, 0, false
}
