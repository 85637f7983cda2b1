package tokenizer

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestAddedTokensAreFoundWhereTheyAre holds what a matcher finds against looking for each token at each place.
func TestAddedTokensAreFoundWhereTheyAre(t *testing.T) {
	parts := []string{"<", "<|", "<|x|>", "x", "|", "|>", "\n", "▁", "▁▁", "[", "[m", " ", "word", "é", strings.Repeat("-", 40), "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	rapid.Check(t, func(t *rapid.T) {
		var m addedMatcher
		tokens := rapid.SliceOfNDistinct(rapid.Map(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 3), func(s []string) string { return strings.Join(s, "") }), 1, 8, rapid.ID).Draw(t, "tokens")
		for i, token := range tokens {
			m.add(token, AddedToken{ID: uint32(i), Content: token})
		}
		if rapid.IntRange(0, 5).Draw(t, "prepared") > 0 {
			m.prepare()
		}
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(append(parts, tokens...)), 0, 60).Draw(t, "text"), "")
		from := rapid.IntRange(0, len(s)).Draw(t, "from")
		wantStart, wantEnd := len(s), len(s)
		for i := len(s) - 1; i >= from; i-- {
			longest := 0
			for _, token := range tokens {
				if strings.HasPrefix(s[i:], token) {
					longest = max(longest, len(token))
				}
			}
			if longest > 0 {
				wantStart, wantEnd = i, i+longest
			}
		}
		start, end, token := m.find(s, from)
		if start != wantStart || end != wantEnd || (token == nil) != (start == len(s)) || token != nil && token.Content != s[start:end] {
			t.Fatalf("%q in %q from %d: %d to %d, want %d to %d", tokens, s, from, start, end, wantStart, wantEnd)
		}
	})
}
