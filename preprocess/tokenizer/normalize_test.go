package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// TestKnowsWhichPairsCompose asks of every joining mark what NFC does to it behind characters that stay: those that most pairs begin with, and
// some of all others.
func TestKnowsWhichPairsCompose(t *testing.T) {
	table := allCompositions()
	var marks []rune
	for r := rune(0x80); r < 0x12000; r++ {
		if c, _ := table.at(string(r), 0); c == joining && utf8.ValidRune(r) {
			marks = append(marks, r)
		}
	}
	if len(marks) < 60 {
		t.Fatalf("%d joining marks", len(marks))
	}
	for first := rune(0x20); first < 0x12000; first++ {
		if first > 0x600 {
			first += 36
		}
		if c, _ := table.at(string(first), 0); c > composed || !utf8.ValidRune(first) {
			continue
		}
		for _, mark := range marks {
			if s := string(first) + string(mark); quickNFC(s) != norm.NFC.IsNormalString(s) {
				t.Fatalf("%+q: quickNFC is %v", s, quickNFC(s))
			}
		}
	}
}

// TestKnowsWhatComposes asks of every character what NFC does to it alone and behind others.
func TestKnowsWhatComposes(t *testing.T) {
	long := strings.Repeat("e", windowSize) // so that it is looked at by windows
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		for _, before := range []string{"", "a", "e", "\u1100", "\uAC00", "\u0938"} {
			if s := before + string(r); quickNFC(s) != norm.NFC.IsNormalString(s) {
				t.Fatalf("%+q: quickNFC is %v", s, quickNFC(s))
			}
		}
		if s := "яя" + string(r) + long; quickNFC(s) != norm.NFC.IsNormalString(s) {
			t.Fatalf("%+q: quickNFC is %v", s, quickNFC(s))
		}
	}
}

func TestKnowsNormalForm(t *testing.T) {
	parts := []string{"a", "e", "abcdefghijk", " ", "\u0301", "\u0323", "\u0308", "\u0327", "é", "ệ", "\u212B", "\u1100", "\u1161", "\u11A8", "\uAC00", "\u0928",
		"\u093C", "\u094D", "\u09C7", "\u09BE", "\u05BC", "\u05D0", "中", "\U0001F600", "\U000110BA", "\U00011099", "\u0F71", "\u0F74", "\u3099", "か", "\U0002F800"}
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 12).Draw(t, "parts"), "")
		s = strings.Repeat(rapid.SampledFrom([]string{"e", "я", "中"}).Draw(t, "before"), rapid.IntRange(0, 2*windowSize).Draw(t, "times")) + s +
			strings.Repeat(rapid.SampledFrom(parts).Draw(t, "behind"), rapid.IntRange(0, windowSize).Draw(t, "more"))
		if got, want := quickNFC(s), norm.NFC.IsNormalString(s); got != want {
			t.Fatalf("%+q: %v, want %v", s, got, want)
		}
	})
}
