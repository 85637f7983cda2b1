package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestWindowsOfASCIIAreCutAlike holds what rules cut against what windows do without them, for all patterns.
func TestWindowsOfASCIIAreCutAlike(t *testing.T) {
	type pattern struct {
		starts func(w *window, text string, at int) uint64
		rules  *asciiRules
		slow   scanner
	}
	patterns := []pattern{{deepseekWindow(), deepseekRules(), deepseek()}}
	for _, digits := range []int{1, 3} {
		patterns = append(patterns, pattern{cl100kWindow(digits, letter), cl100kRules(digits), cl100k(digits, letter)})
		for _, contractions := range []bool{false, true} {
			patterns = append(patterns, pattern{o200kWindow(digits, contractions), o200kRules(digits, contractions), o200k(digits, contractions)})
		}
	}
	parts := slices.Concat(plain, []string{" in", " a", ". ", "},\n\n", "\n//", "/\n/", "don't", "x'", "'s", "é", "\x00", "\x7F", "\x1F", "~", "`", "{", "@", "[", "12345678"})
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(patterns).Draw(t, "pattern")
		few := rapid.SliceOfN(rapid.SampledFrom(parts), 1, 8).Draw(t, "few") // so that there are windows without letters, say
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(few), 100, 300).Draw(t, "parts"), "")
		if rapid.Bool().Draw(t, "at the edge") {
			s = strings.Repeat(rapid.SampledFrom([]string{"1", "."}).Draw(t, "before"), rapid.IntRange(windowSize-8, windowSize).Draw(t, "many")) + s
		}
		got, want := scanned(windowed(p.starts, p.rules, p.slow)).find(s), scanned(windowed(p.starts, nil, p.slow)).find(s)
		if !slices.Equal(got, want) {
			t.Fatalf("%q with %+v: %v, want %v", s, p.rules, got, want)
		}
	})
}
