package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestKnowsValidText holds isValid against the standard library: for pieces of valid and invalid text at all distances from what is looked
// at at once, and from the ends.
func TestKnowsValidText(t *testing.T) {
	parts := []string{"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2\x80", "\xC2", "\xDF\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xE0\xA0\x80", "\xE1\x80", "\xE1",
		"\xED\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF0\x90\x80\x80", "\xF1\x80\x80", "\xF1\x80",
		"\xF4\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF7\xBF\xBF\xBF", "\xF8\x88\x80\x80\x80", "\xFF", "a", "é", "中", "\U0001F600", "\x00"}
	check := func(t interface{ Fatalf(string, ...any) }, s string) {
		if got, want := isValid(s), utf8.ValidString(s); got != want {
			t.Fatalf("%+q: %v, want %v", s, got, want)
		}
	}
	for _, filler := range []string{"a", "é", "中", "\U0001F600"} {
		for _, part := range parts {
			for before := range 40 {
				for _, behind := range []int{0, 1, 2, 40} {
					check(t, strings.Repeat("a", before%4)+strings.Repeat(filler, before)+part+strings.Repeat(filler, behind))
				}
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts[len(parts)-6:]), 0, 90).Draw(t, "valid"), "")+
			strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 2).Draw(t, "any"), "")+
			strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts[len(parts)-6:]), 0, 60).Draw(t, "more"), ""))
	})
}
