package toolcall

import "strings"

// untilWord ends a block at the first of some words, which belong to the block.
type untilWord struct {
	words   []string
	longest int
	seen    int
}

func until(words ...string) func() closer {
	longest := 0
	for _, w := range words {
		longest = max(longest, len(w))
	}
	return func() closer { return &untilWord{words: words, longest: longest} }
}

func (u *untilWord) find(block string) (content, next int, status closing) {
	from := max(0, u.seen-u.longest+1)
	u.seen = len(block)
	best, size := -1, 0
	for _, word := range u.words {
		if at := strings.Index(block[from:], word); at >= 0 && (best < 0 || at < best) {
			best, size = at, len(word)
		}
	}
	if best < 0 {
		return 0, 0, closingMore
	}
	return from + best, from + best + size, closingDone
}

// afterJSON ends a block with the JSON value that it holds.
type afterJSON struct {
	// closing, when set, is a word that may stand behind the value, more than once, and belongs to the block.
	closing string
	// fence, when set, must stand behind the value.
	fence string
	// separator, when not 0, may stand between several values.
	separator byte
	// text says that a block which does not even begin like JSON is text.
	text bool

	scanner jsonScanner
	at      int // up to where the block was looked at
	begun   bool
	value   int // where the last value ended; 0 before
	space   int // white space seen behind it
}

func (a *afterJSON) find(block string) (content, next int, status closing) {
	for {
		if !a.begun {
			a.at += leadingSpace(block[a.at:])
			if a.at == len(block) {
				return 0, 0, closingMore
			}
			if c := block[a.at]; c != '{' && c != '[' {
				if a.value > 0 {
					return a.value, a.value, closingDone // a separator without a value behind it
				}
				if a.text {
					return a.at, a.at, closingText
				}
				return a.at, a.at, closingBroken
			}
			a.begun, a.scanner = true, jsonScanner{}
		}
		if a.value == 0 || a.at > a.value {
			at, done, bad := a.scanner.scan(block, a.at)
			a.at = at
			if bad {
				if a.value > 0 {
					return a.value, a.at, closingDone
				}
				return a.at, a.at, closingBroken
			}
			if !done {
				return 0, 0, closingMore
			}
			a.value, a.space = a.at, 0
		}
		again, content, next, status := a.behind(block)
		if !again {
			return content, next, status
		}
	}
}

// complete implements completer.
func (a *afterJSON) complete() (content int, ok bool) { return a.value, a.value > 0 && a.fence == "" }

// behind looks at what follows a value; again tells that another value follows a separator.
func (a *afterJSON) behind(block string) (again bool, content, next int, status closing) {
	a.space += leadingSpace(block[a.value+a.space:])
	space := a.space
	rest := block[a.value+space:]
	if rest == "" {
		if a.closing == "" && a.fence == "" && a.separator == 0 {
			return false, a.value, a.value, closingDone
		}
		return false, 0, 0, closingMore
	}
	switch {
	case a.separator != 0 && rest[0] == a.separator:
		a.at, a.begun = a.value+space+1, false
		return true, 0, 0, closingMore
	case a.fence != "":
		return false, a.value, a.value + space + len(a.fence), word(rest, a.fence, closingBroken)
	case a.closing != "":
		if status := word(rest, a.closing, closingBroken); status != closingBroken {
			return false, a.value, a.value + space + len(a.closing), status
		}
	}
	return false, a.value, a.value, closingDone
}

// word tells whether text begins with the word: done, more when it may, else what otherwise says.
func word(text, word string, otherwise closing) closing {
	switch {
	case strings.HasPrefix(text, word):
		return closingDone
	case strings.HasPrefix(word, text):
		return closingMore
	}
	return otherwise
}

func leadingSpace(text string) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ' ', '\n', '\t', '\r':
		default:
			return i
		}
	}
	return len(text)
}
