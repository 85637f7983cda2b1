package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// TestKnowsWhatComposes asks of every character what NFC does to it alone and behind others.
func TestKnowsWhatComposes(t *testing.T) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		for _, before := range []string{"", "a", "e", "\u1100", "\uAC00", "\u0938"} {
			if s := before + string(r); quickNFC(s) != norm.NFC.IsNormalString(s) {
				t.Fatalf("%+q: quickNFC is %v", s, quickNFC(s))
			}
		}
	}
}

func TestKnowsNormalForm(t *testing.T) {
	parts := []string{"a", "e", "abcdefghijk", " ", "\u0301", "\u0323", "\u0308", "\u0327", "é", "ệ", "\u212B", "\u1100", "\u1161", "\u11A8", "\uAC00", "\u0928",
		"\u093C", "\u094D", "\u09C7", "\u09BE", "\u05BC", "\u05D0", "中", "\U0001F600", "\U000110BA", "\U00011099", "\u0F71", "\u0F74", "\u3099", "か", "\U0002F800"}
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 12).Draw(t, "parts"), "")
		if got, want := quickNFC(s), norm.NFC.IsNormalString(s); got != want {
			t.Fatalf("%+q: %v, want %v", s, got, want)
		}
	})
}
