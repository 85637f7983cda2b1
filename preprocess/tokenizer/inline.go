package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Some models have line ends and indents as added tokens, which cut text into lines. Words are encoded many at a time, and a line has but few. So
// where an added token is what it would be encoded to as a piece of text, it stays one, between cuts. Most of these are runs of one character, which the
// scanner cuts.

// cutLists holds []int32 for cuts.
var cutLists sync.Pool

// findInline finds the added tokens for which that is so.
func (t *Tokenizer) findInline() {
	if !t.wholly() || t.words.prepend {
		return
	}
	if slices.ContainsFunc(t.added.tokens, func(token AddedToken) bool { return token.LStrip || token.RStrip }) {
		return // which take white space that is another token, too
	}
	var ids []uint32
	for i := range t.added.tokens {
		token := &t.added.tokens[i]
		if token.Special || token.SingleWord {
			continue
		}
		if ids = t.words.encodeWhole(ids[:0], token.Content); len(ids) == 1 && ids[0] == token.ID {
			t.inline.add(token.ID)
		}
	}
	if t.inline == nil {
		return
	}
	t.words.near.runs = t.inlineRuns()
	t.words.near.prepare()
	for _, token := range t.added.tokens {
		if !t.words.near.cutsRun(token.Content) {
			t.apart.add(token.Content, token)
		}
	}
	t.apart.prepare()
}

// inlineRuns returns of which characters there are inline tokens that are one of it, two, three and so on, and no added token else has it.
func (t *Tokenizer) inlineRuns() (runs []characterRun) {
	var having, inline, longest [utf8.RuneSelf]int // by character: tokens that have it, inline ones of it alone, and the length of the longest of these
	var last [utf8.RuneSelf]int                    // the last token that has it, +1
	for i, token := range t.added.tokens {
		first := token.Content[0]
		for _, c := range []byte(token.Content) {
			if c < utf8.RuneSelf && last[c] != i+1 {
				last[c] = i + 1
				having[c]++
			}
		}
		if first < utf8.RuneSelf && t.inline.has(token.ID) && strings.Count(token.Content, token.Content[:1]) == len(token.Content) {
			inline[first]++
			longest[first] = max(longest[first], len(token.Content))
		}
	}
	for c, length := range longest {
		// Tokens differ, so that no length is missing if there are as many as the longest has characters. Letters have no edges to be found.
		if length > 0 && inline[c] == length && having[c] == length && !isASCIILetter(byte(c)) {
			runs = append(runs, characterRun{byte(c), length})
		}
	}
	return runs
}

// encodeInline takes those added tokens that are not inline out of text and encodes what is between them.
func (t *Tokenizer) encodeInline(out *result, whole text) {
	list, ok := cutLists.Get().(*[]int32)
	if !ok {
		list = new([]int32)
	}
	cuts := (*list)[:0]
	start, end := 0, 0 // of what is between them
	between := func() {
		if start < end {
			t.remembered(out, whole.slice(start, end), cuts)
		}
		cuts = cuts[:0]
	}
	t.apart.split(whole.s, func(_, to int) { end = to }, func(token *AddedToken, from, to int) {
		if t.inline.has(token.ID) {
			cuts = append(cuts, int32(from-start), int32(to-start))
			end = to
			return
		}
		between()
		out.add(token.ID, whole, from, to)
		start, end = to, to
	})
	between()
	*list = cuts
	cutLists.Put(list)
}
