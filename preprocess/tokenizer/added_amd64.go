package tokenizer

import "unsafe"

// skip returns a place from i on before which no token begins.
func (m *addedMatcher) skip(s string, i int) int {
	// One byte more is read than is looked at.
	if n := len(s) - 1 - i; hasAVX2 && m.openings != nil && n >= openingStep {
		i += skipAVX2(m.openings, unsafe.StringData(s[i:]), n)
	}
	return i
}

// skipAVX2 returns the first place of the text at which a pair may be the opening of a token, or, if there is none, a place that less than openingStep of its n
// bytes are behind. There has to be a byte more.
//
//go:noescape
func skipAVX2(openings *openings, text *byte, n int) int

// openingStep is how many bytes are looked at in one go.
const openingStep = 32
