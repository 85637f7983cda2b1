package tokenizer

import (
	"fmt"
	"os"
	"unicode/utf8"
)

// Tokenizer turns text into token ids and back. It is safe for concurrent use.
type Tokenizer struct {
	vocab *vocabulary
	raw   bool // the vocabulary holds bytes, not characters of the byte-level alphabet
	ranks bool // it was read from a file of tokens and ranks

	added           addedMatcher // in the text as it came
	addedNormalized addedMatcher // in the normalised text
	addedByID       map[uint32]AddedToken
	addedByText     map[string]uint32
	special         idSet
	inline          idSet        // added tokens that need not be taken out of text, see inline.go
	apart           addedMatcher // if there are such, those that the scanner does not find itself
	size            int

	normalize normalizer // nil for none
	split     splitter   // nil for none
	model     model
	words     *wordEncoder  // the fast way for known split patterns; nil for none
	segments  *segmentCache // nil for none

	decode      decodeStep // nil for none
	byteDecoder bool       // decoding joins bytes, by token

	prefix, suffix []uint32 // around a text with special tokens
}

// model turns a piece of text into tokens.
type model interface {
	tokenize(out *result, piece text)
}

// Span is a range of bytes of the original text.
type Span struct{ Start, End int }

// Load reads a tokenizer.json file. More holds special tokens that other files of the model declare; [LoadModel] looks into these.
func Load(path string, more ...AddedToken) (*Tokenizer, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, err := Parse(file, more...)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", path, err)
	}
	return t, nil
}

// VocabSize is one more than the largest id.
func (t *Tokenizer) VocabSize() int { return t.size }

// TokenToID returns the id of a token, spelled as the file spells it.
func (t *Tokenizer) TokenToID(token string) (uint32, bool) {
	if id, ok := t.addedByText[token]; ok {
		return id, true
	}
	return t.modelID(token)
}

// Encode appends the text's ids to dst. With addSpecial it adds what the model puts around a text. Special tokens that are spelled out
// in the text are encoded as such. Bytes that are not UTF-8 count as U+FFFD.
func (t *Tokenizer) Encode(dst []uint32, s string, addSpecial bool) []uint32 {
	if addSpecial {
		dst = append(dst, t.prefix...)
	}
	out := result{ids: dst}
	t.encode(&out, valid(s))
	if addSpecial {
		out.ids = append(out.ids, t.suffix...)
	}
	return out.ids
}

// EncodeSpans is Encode that also returns, by token, the bytes of s that it stands for; tokens around the text have an empty span at
// its beginning or end. Spans follow the text through its normalisation, to whole characters where that joins or takes them apart.
// It is slower than Encode. The error tells of text that is not UTF-8.
func (t *Tokenizer) EncodeSpans(s string, addSpecial bool) ([]uint32, []Span, error) {
	if !utf8.ValidString(s) {
		return nil, nil, fmt.Errorf("offsets of text that is not UTF-8 have no meaning")
	}
	out := result{track: true}
	if addSpecial {
		for _, id := range t.prefix {
			out.ids, out.spans = append(out.ids, id), append(out.spans, Span{})
		}
	}
	t.encode(&out, s)
	if addSpecial {
		for _, id := range t.suffix {
			out.ids, out.spans = append(out.ids, id), append(out.spans, Span{len(s), len(s)})
		}
	}
	return out.ids, out.spans, nil
}

func valid(s string) string {
	if isValid(s) {
		return s
	}
	return lossy([]byte(s))
}

// encode takes added tokens out of valid text and encodes what is between them.
func (t *Tokenizer) encode(out *result, s string) {
	whole := text{s: s, first: true, track: out.track}
	if len(t.added.tokens) == 0 {
		t.remembered(out, whole, nil)
		return
	}
	if t.inline != nil && !out.track {
		t.encodeInline(out, whole)
		return
	}
	t.added.split(s, func(start, end int) {
		t.remembered(out, whole.slice(start, end), nil)
	}, func(token *AddedToken, start, end int) {
		out.add(token.ID, whole, start, end)
	})
}

// stretch encodes text without added tokens, except for those that only show when it is normalised, and those between cuts.
func (t *Tokenizer) stretch(out *result, in text, cuts []int32) {
	if in.s == "" {
		return
	}
	if t.wholly() && !out.track {
		out.ids = t.words.encode(out.ids, in.s, cuts) // which does what the normalizer would do
		return
	}
	if t.normalize != nil {
		in = t.normalize(in)
	}
	if len(t.addedNormalized.tokens) == 0 {
		t.pieces(out, in)
		return
	}
	t.addedNormalized.split(in.s, func(start, end int) {
		t.pieces(out, in.slice(start, end))
	}, func(token *AddedToken, start, end int) {
		out.add(token.ID, in, start, end)
	})
}

// wholly tells whether the fast way is all that there is to encoding text without added tokens.
func (t *Tokenizer) wholly() bool {
	return t.words != nil && t.words.mark != "" && len(t.addedNormalized.tokens) == 0
}

func (t *Tokenizer) pieces(out *result, in text) {
	if in.s == "" {
		return
	}
	if t.words != nil && t.words.mark == "" && !out.track {
		out.ids = t.words.encode(out.ids, in.s, nil)
		return
	}
	if t.split == nil {
		t.model.tokenize(out, in)
		return
	}
	for _, piece := range t.split(nil, in) {
		t.model.tokenize(out, piece)
	}
}
