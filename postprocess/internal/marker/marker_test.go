package marker

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFind(t *testing.T) {
	s := NewSet("<tool>", "</tool>", "", "[X]")
	for _, c := range []struct {
		text string
		want Match
	}{
		{"", Match{At: 0}},
		{"plain text", Match{At: 10}},
		{"a <tool> b", Match{At: 2, Word: "<tool>"}},
		{"a <tol> [X]", Match{At: 8, Word: "[X]"}},
		{"a </to", Match{At: 2}},
		{"a <<", Match{At: 3}},
		{"1 < 2", Match{At: 5}},
	} {
		if got := s.Find(c.text, 0); got != c.want {
			t.Errorf("Find(%q) = %+v, want %+v", c.text, got, c.want)
		}
	}
}

// What Find lets through never contains a word, and it holds back no more than a word's length.
func TestFindHoldsOnlyBeginnings(t *testing.T) {
	words := []string{"<ab>", "<abc", "bca", "<<"}
	s := NewSet(words...)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("<ab>c"))).Draw(t, "text")
		m := s.Find(text, 0)
		shown := text[:m.At]
		for _, w := range words {
			if strings.Contains(shown, w) {
				t.Fatalf("%q lets %q through in %q", text, w, shown)
			}
		}
		if m.Word == "" && m.At < len(text) {
			held := text[m.At:]
			ok := false
			for _, w := range words {
				ok = ok || strings.HasPrefix(w, held)
			}
			if !ok {
				t.Fatalf("%q is held back of %q for nothing", held, text)
			}
		}
	})
}
