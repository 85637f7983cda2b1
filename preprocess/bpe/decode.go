package bpe

import "strings"

// Decode returns the text of the ids; special tokens are left out on demand.
func (t *Tokenizer) Decode(ids []uint32, skipSpecial bool) string {
	var b []byte
	for _, id := range ids {
		if int(id) < len(t.pieces) && !(skipSpecial && t.special[id]) {
			b = append(b, t.pieces[id]...)
		}
	}
	return lossy(b)
}

// Decoder turns tokens into text one by one, never half a character. It belongs to one goroutine.
type Decoder struct {
	tokenizer   *Tokenizer
	skipSpecial bool
	pending     []byte
}

// NewDecoder returns a decoder.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	return &Decoder{tokenizer: t, skipSpecial: skipSpecial}
}

// Step returns the text that the token completes; "" while a character is incomplete.
func (d *Decoder) Step(id uint32) string {
	t := d.tokenizer
	if int(id) >= len(t.pieces) || d.skipSpecial && t.special[id] {
		return ""
	}
	d.pending = append(d.pending, t.pieces[id]...)
	text := lossy(d.pending)
	if strings.HasSuffix(text, "\uFFFD") {
		return ""
	}
	d.pending = d.pending[:0]
	return text
}

// Flush returns what is left, incomplete characters replaced.
func (d *Decoder) Flush() string {
	text := lossy(d.pending)
	d.pending = d.pending[:0]
	return text
}
