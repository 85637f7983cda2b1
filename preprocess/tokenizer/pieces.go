package tokenizer

import "signalbox/preprocess/piece"

// EncodePieces appends the ids of a prompt, each piece encoded on its own: what text spells out never becomes a special token, and no
// token reaches across the edge of a piece. (A Unigram model has its special tokens among its words, where text still finds them.) A
// special token that the model does not have is encoded as text. A prompt without pieces is encoded as [Tokenizer.Encode] does it,
// without special tokens around it.
func (t *Tokenizer) EncodePieces(dst []uint32, prompt piece.Prompt) []uint32 {
	if prompt.Pieces == nil {
		return t.Encode(dst, prompt.Text, false)
	}
	ordinary := t.ordinary()
	start := 0
	for _, p := range prompt.Pieces {
		end := min(max(p.End, start), len(prompt.Text))
		reader := t
		if !p.Special {
			reader = ordinary
		}
		dst = reader.Encode(dst, prompt.Text[start:end], false)
		start = end
	}
	return dst
}

// ordinary is the tokenizer for which special tokens are text. Files of tokens and ranks know no other added tokens.
func (t *Tokenizer) ordinary() *Tokenizer {
	o := *t
	if o.ranks {
		o.added = addedMatcher{}
		return &o
	}
	o.added.ordinary, o.apart.ordinary, o.addedNormalized.ordinary = true, true, true
	if len(o.addedNormalized.tokens) > 0 {
		o.segments = nil // which may hold such tokens
	}
	return &o
}
