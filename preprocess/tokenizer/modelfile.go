package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// modelFile is the model of a tokenizer.json.
type modelFile struct {
	fields struct {
		Type         string   `json:"type"`
		UnkToken     *string  `json:"unk_token"`
		UnkID        *int     `json:"unk_id"`
		Prefix       *string  `json:"continuing_subword_prefix"`
		Suffix       *string  `json:"end_of_word_suffix"`
		Dropout      *float64 `json:"dropout"`
		FuseUnk      bool     `json:"fuse_unk"`
		ByteFallback bool     `json:"byte_fallback"`
		IgnoreMerges bool     `json:"ignore_merges"`
		MaxChars     *int     `json:"max_input_chars_per_word"`
	}
	raw    bool
	vocab  *vocabulary
	scores []float64
	merges *merges
	// prefixLength is the length in bytes of what the right side of a merge begins with and the merged token has not.
	prefixLength int
}

// read reads the model. Files have its vocabulary and merges behind the fields that say how to read them; where one has not, they are
// read again.
func (m *modelFile) read(r *reader, raw bool) error {
	var vocab, merges []byte
	small := []byte{'{'} // all other fields
	vocabRead, mergesRead := false, false
	err := r.object(func(key []byte) error {
		name, start := string(key), r.at
		switch name {
		case "vocab":
			m.merges, mergesRead = nil, false // of another vocabulary, if any
			err := m.settle(small, raw)
			if vocabRead = err == nil && (m.fields.Type == "BPE" || m.fields.Type == "WordPiece"); vocabRead {
				err = m.readVocab(r)
			} else {
				_, err = r.raw()
			}
			vocab = r.text[start:r.at]
			return err
		case "merges":
			var err error
			if mergesRead = vocabRead && m.fields.Type == "BPE"; mergesRead {
				err = m.readMerges(r)
			} else {
				_, err = r.raw()
			}
			merges = r.text[start:r.at]
			return err
		}
		value, err := r.raw()
		if err != nil {
			return err
		}
		quoted, err := json.Marshal(name)
		small = append(append(append(append(small, quoted...), ':'), value...), ',')
		return err
	})
	if err != nil {
		return err
	}
	if vocab == nil {
		return errors.New("no vocab")
	}
	settled, rawBefore := m.fields, m.raw
	if err := m.settle(small, raw); err != nil {
		return err
	}
	if m.fields.Type == "" {
		m.fields.Type = guessType(vocab, merges)
		m.decideRaw(raw)
	}
	same := settled.Type == m.fields.Type && rawBefore == m.raw && str(settled.Prefix) == str(m.fields.Prefix)
	if m.fields.Type == "Unigram" {
		return m.readPieces(&reader{text: vocab})
	}
	if !vocabRead || !same {
		mergesRead = false
		if err := m.readVocab(&reader{text: vocab}); err != nil {
			return err
		}
	}
	if m.fields.Type == "BPE" && merges != nil && !mergesRead {
		return m.readMerges(&reader{text: merges})
	}
	return nil
}

// settle takes over the fields that have been read; small lacks its end.
func (m *modelFile) settle(small []byte, raw bool) error {
	object := append(bytes.TrimSuffix(slices.Clone(small), []byte{','}), '}')
	if err := json.Unmarshal(object, &m.fields); err != nil {
		return err
	}
	m.decideRaw(raw)
	return nil
}

func (m *modelFile) decideRaw(raw bool) {
	m.prefixLength = len(str(m.fields.Prefix))
	m.raw = raw && m.fields.Type == "BPE" && m.prefixLength == 0 && str(m.fields.Suffix) == ""
}

// str is the text of an optional field.
func str(field *string) string {
	if field == nil {
		return ""
	}
	return *field
}

// guessType tells the model by its parts, for files from before the type was written.
func guessType(vocab, merges json.RawMessage) string {
	switch {
	case merges != nil:
		return "BPE"
	case bytes.HasPrefix(vocab, []byte("[")):
		return "Unigram"
	}
	return "WordPiece"
}

func (m *modelFile) readVocab(r *reader) error {
	rest := r.text[r.at:]
	m.vocab = newVocabulary(bytes.Count(rest, []byte(":")), len(rest)/4)
	var buf []byte
	err := r.object(func(key []byte) error {
		name := key
		if m.raw {
			var ok bool
			if buf, ok = unalphabet(buf[:0], key); ok {
				name = buf
			} // else no text comes to this token, but its id may be decoded
		}
		// The key does not outlive the reading of the number if it had escapes; numbers have none.
		id, err := r.unsigned(maxID)
		if err != nil {
			return err
		}
		return m.vocab.add(name, id)
	})
	if err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	return nil
}

func (m *modelFile) readPieces(r *reader) error {
	m.vocab = newVocabulary(bytes.Count(r.text, []byte("["))+1, len(r.text))
	err := r.array(func() error {
		if err := r.expect('['); err != nil {
			return err
		}
		piece, err := r.str()
		if err != nil {
			return err
		}
		if err := m.vocab.add(piece, uint32(len(m.scores))); err != nil {
			return err
		}
		if err := r.expect(','); err != nil {
			return err
		}
		var score float64
		if err := r.into(&score); err != nil {
			return err
		}
		m.scores = append(m.scores, score)
		return r.expect(']')
	})
	if err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	return nil
}

func (m *modelFile) readMerges(r *reader) error {
	rest := r.text[r.at:]
	n := bytes.Count(rest, []byte(",")) + 1
	if list := bytes.IndexByte(rest, '['); list >= 0 && bytes.HasPrefix(bytes.TrimLeft(rest[list+1:], " \t\r\n"), []byte("[")) {
		n = (n + 1) / 2
	}
	m.merges = newMerges(n)
	var left, right, both []byte
	rank := 0
	next := uint32(0) // merged tokens mostly have ids in the order of their merges
	err := r.array(func() error {
		if rank >= maxMerges {
			return fmt.Errorf("more than %d", maxMerges)
		}
		if err := m.readPair(r, &left, &right); err != nil {
			return fmt.Errorf("merge %d: %w", rank, err)
		}
		if len(right) < m.prefixLength {
			return fmt.Errorf("merge %d: %q is shorter than the prefix of tokens inside of a word", rank, right)
		}
		both = append(append(both[:0], left...), right[m.prefixLength:]...)
		l, okLeft := m.vocab.idOf(left)
		rr, okRight := m.vocab.idOf(right)
		into, okBoth := next, m.vocab.owns(next) && bytes.Equal(m.vocab.token(next), both)
		if !okBoth {
			into, okBoth = m.vocab.idOf(both)
		}
		next = into + 1
		if !okLeft || !okRight || !okBoth {
			return fmt.Errorf("merge %d of %q and %q: one of these or both together are not in the vocabulary", rank, left, right)
		}
		m.merges.add(l, rr, into)
		rank++
		return nil
	})
	if err != nil {
		return fmt.Errorf("merges: %w", err)
	}
	return nil
}

// readPair reads one merge, ["a", "b"] or "a b".
func (m *modelFile) readPair(r *reader, left, right *[]byte) error {
	if r.peek() == '[' {
		r.at++
		s, err := r.str()
		if err != nil {
			return err
		}
		*left = append((*left)[:0], s...)
		if err := r.expect(','); err != nil {
			return err
		}
		if s, err = r.str(); err != nil {
			return err
		}
		*right = append((*right)[:0], s...)
		if err := r.expect(']'); err != nil {
			return err
		}
	} else {
		s, err := r.str()
		if err != nil {
			return err
		}
		one, two, ok := bytes.Cut(s, []byte(" "))
		if !ok || bytes.IndexByte(two, ' ') >= 0 {
			return fmt.Errorf("%q is no pair", s)
		}
		*left, *right = append((*left)[:0], one...), append((*right)[:0], two...)
	}
	if !m.raw {
		return nil
	}
	for _, side := range []*[]byte{left, right} {
		raw, ok := unalphabet((*side)[:0], *side)
		if !ok {
			return fmt.Errorf("%q is not in the byte-level alphabet", *side)
		}
		*side = raw
	}
	return nil
}

// build makes the model.
func (m *modelFile) build() (model, error) {
	f := &m.fields
	switch f.Type {
	case "BPE":
		if f.Dropout != nil && *f.Dropout > 0 {
			return nil, fmt.Errorf("dropout %v is not supported: encoding would depend on chance", *f.Dropout)
		}
		b := &bpe{vocab: m.vocab, merges: m.merges, raw: m.raw, fallback: f.ByteFallback, ignoreMerges: f.IgnoreMerges, fuseUnknown: f.FuseUnk}
		if b.merges == nil {
			b.merges = newMerges(0)
		}
		if f.Prefix != nil {
			b.prefix = *f.Prefix
		}
		if f.Suffix != nil {
			b.suffix = *f.Suffix
		}
		if f.UnkToken != nil && !m.raw {
			b.unknown, b.hasUnknown = m.vocab.id(*f.UnkToken)
		}
		b.finish()
		return b, nil
	case "WordPiece":
		w := &wordPiece{vocab: m.vocab, prefix: "##", longest: 100}
		if f.Prefix != nil {
			w.prefix = *f.Prefix
		}
		if f.MaxChars != nil {
			w.longest = *f.MaxChars
		}
		name := "[UNK]"
		if f.UnkToken != nil {
			name = *f.UnkToken
		}
		var ok bool
		if w.unknown, ok = m.vocab.id(name); !ok {
			return nil, fmt.Errorf("unk_token %q is not in the vocabulary", name)
		}
		return w, nil
	case "Unigram":
		return newUnigram(m.vocab, m.scores, f.UnkID, f.ByteFallback)
	}
	return nil, fmt.Errorf("type %w", unsupported(f.Type))
}
