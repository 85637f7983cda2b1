package tokenizer

import (
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
	var ids []uint32
	strips := false
	for i := range t.added.tokens {
		token := &t.added.tokens[i]
		strips = strips || token.LStrip || token.RStrip
		if token.Special || token.SingleWord || token.LStrip || token.RStrip {
			continue
		}
		if ids = t.words.encodeWhole(ids[:0], token.Content); len(ids) == 1 && ids[0] == token.ID {
			t.inline.add(token.ID)
		}
	}
	if t.inline != nil && !strips {
		t.words.near.runs = t.inlineRuns()
		t.words.near.prepare()
	}
	for _, token := range t.added.tokens {
		if !t.words.near.cutsRun(token.Content) {
			t.apart.add(token.Content, token)
		}
	}
	t.apart.prepare()
}

// inlineRuns returns of which characters there are inline tokens that are one of it, two, three and so on, and no added token else has it.
func (t *Tokenizer) inlineRuns() (runs []characterRun) {
	var longest [utf8.RuneSelf]int // of inline tokens of that character alone
	var tokens [utf8.RuneSelf]int  // with that character
	for _, token := range t.added.tokens {
		var seen [utf8.RuneSelf]bool
		for _, c := range []byte(token.Content) {
			if c < utf8.RuneSelf && !seen[c] {
				seen[c] = true
				tokens[c]++
			}
		}
		if c := token.Content[0]; c < utf8.RuneSelf && t.inline.has(token.ID) && strings.Count(token.Content, token.Content[:1]) == len(token.Content) {
			longest[c] = max(longest[c], len(token.Content))
		}
	}
	for c, length := range longest {
		if length > 0 && tokens[c] == length && !isASCIILetter(byte(c)) { // so that no length is missing; letters have no edges to be found
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
