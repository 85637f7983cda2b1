package tokenizer

import "sync"

// Some models have line ends and indents as added tokens, which cut text into lines. Words are encoded many at a time, and a line has but few. So
// where an added token is what it would be encoded to as a piece of text, it stays one, between cuts.

// cutLists holds []int32 for cuts.
var cutLists sync.Pool

// findInline finds the added tokens for which that is so.
func (t *Tokenizer) findInline() {
	if !t.wholly() || t.words.prepend {
		return
	}
	var ids []uint32
	for i := range t.added.tokens {
		token := &t.added.tokens[i]
		if token.Special || token.SingleWord || token.LStrip || token.RStrip {
			continue
		}
		if ids = t.words.encodeWhole(ids[:0], token.Content); len(ids) == 1 && ids[0] == token.ID {
			t.inline.add(token.ID)
		}
	}
}

// encodeInline takes the other added tokens out of text and encodes what is between them.
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
	t.added.split(whole.s, func(_, to int) { end = to }, func(token *AddedToken, from, to int) {
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
