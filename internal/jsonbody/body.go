// Package jsonbody writes JSON objects member by member, for requests to servers: in the order in which they are added, and with numbers as
// the client spelled them.
package jsonbody

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
)

// Body is a JSON object being written.
type Body struct{ text []byte }

// New returns an object with room for so many bytes.
func New(capacity int) *Body { return &Body{append(make([]byte, 0, capacity), '{')} }

func (b *Body) name(name string) {
	if last := b.text[len(b.text)-1]; last != '{' && last != '[' {
		b.text = append(b.text, ',')
	}
	b.text = append(append(b.text, Quote(name)...), ':')
}

// Raw adds a member whose value is JSON already.
func (b *Body) Raw(name string, value []byte) {
	b.name(name)
	b.text = append(b.text, value...)
}

// Str adds a text.
func (b *Body) Str(name, value string) {
	b.Raw(name, Quote(value))
}

// Truth adds true or false.
func (b *Body) Truth(name string, value bool) {
	b.name(name)
	b.text = strconv.AppendBool(b.text, value)
}

// Integer adds a whole number.
func (b *Body) Integer(name string, value int64) {
	b.name(name)
	b.text = strconv.AppendInt(b.text, value, 10)
}

// Float adds a number that the client gave with single precision, as short as it was; nil adds nothing, and so does what is no number.
func (b *Body) Float(name string, value *float32) {
	if value == nil || math.IsNaN(float64(*value)) || math.IsInf(float64(*value), 0) {
		return
	}
	b.name(name)
	b.text = strconv.AppendFloat(b.text, float64(*value), 'g', -1, 32)
}

// IDs adds a list of token ids.
func (b *Body) IDs(name string, ids []uint32) {
	b.name(name)
	b.text = AppendIDs(b.text, ids)
}

// Strs adds a list of texts.
func (b *Body) Strs(name string, values []string) {
	b.name(name)
	b.text = append(b.text, '[')
	for i, value := range values {
		if i > 0 {
			b.text = append(b.text, ',')
		}
		b.text = append(b.text, Quote(value)...)
	}
	b.text = append(b.text, ']')
}

// Bias adds biases of tokens as an object, in order, so that equal requests have equal bodies.
func (b *Body) Bias(name string, bias map[uint32]float32) {
	if len(bias) == 0 {
		return
	}
	ids := make([]uint32, 0, len(bias))
	for id := range bias {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	inner := New(16 * len(ids))
	for _, id := range ids {
		value := bias[id]
		inner.Float(strconv.FormatUint(uint64(id), 10), &value)
	}
	b.Raw(name, inner.Done())
}

// Done returns the object's text.
func (b *Body) Done() []byte { return append(b.text, '}') }

// AppendIDs appends a list of numbers as JSON.
func AppendIDs(dst []byte, ids []uint32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}

// Quote returns a text as JSON.
func Quote(text string) []byte {
	raw, _ := json.Marshal(text) // a text can always be written
	return raw
}
