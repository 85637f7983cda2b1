//go:build !amd64

package tokenizer

// skip returns a place from i on before which no token begins.
func (m *addedMatcher) skip(s string, i int) int { return i }
