package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/golden"
)

// TestInlineTokensMakeNoDifference holds text in which added tokens stay against the same text cut into what is between them.
func TestInlineTokensMakeNoDifference(t *testing.T) {
	inline := load(t, "gemma3")
	for _, content := range []string{"\n", "\n\n\n", "\t", "▁▁▁▁"} {
		if id, _ := inline.TokenToID(content); !inline.inline.has(id) {
			t.Errorf("%q is no inline token", content)
		}
	}
	for _, content := range []string{"<start_of_turn>", "<unused0>"} {
		if id, _ := inline.TokenToID(content); inline.inline.has(id) && inline.special.has(id) {
			t.Errorf("%q is an inline token", content)
		}
	}
	cut := *inline
	cut.inline = nil
	parts := append([]string{"\n", "\n", "\n\n", "\t", "\t\t\t", "▁", "▁▁", " ", "  ", "        ", "<start_of_turn>", "<unused0>", "<table>", "word", " word", "func main() {", "<", "[@BOS@]", "0", "é",
		strings.Repeat("\n", 40), strings.Repeat("word ", 300)}, awkward...)
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 80).Draw(t, "parts"), "")
		got, want := inline.Encode(nil, s, false), cut.Encode(nil, s, false)
		if !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", s, got, want)
		}
	})
}

// TestAddedTokensLikeRunsMakeNoDifference changes the line ends among gemma's added tokens, so that the scanner cannot cut all runs of them, and holds
// what comes out against the general way.
func TestAddedTokensLikeRunsMakeNoDifference(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(golden.Models(t), "tok", "gemma3", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	parts := []string{"\n", "\n\n", "\n\n\n", "\t", "\t\t", " ", "word", "a", "b", "(", "<start_of_turn>", strings.Repeat("\n", 40), "é"}
	for name, change := range map[string]func(token *AddedToken){
		"special":     func(token *AddedToken) { token.Special = true },
		"missing":     func(token *AddedToken) { token.Content = "<none>" },
		"mixed":       func(token *AddedToken) { token.Content = "a\n" },
		"stripping":   func(token *AddedToken) { token.RStrip = true },
		"single word": func(token *AddedToken) { token.SingleWord = true },
	} {
		f, err := readFile(text)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.added {
			if f.added[i].Content == "\n\n" {
				change(&f.added[i])
			}
		}
		tok, err := f.build(nil)
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 60).Draw(t, "parts"), "")
			got := tok.Encode(nil, s, false)
			if want, _, err := tok.EncodeSpans(s, false); err != nil || !slices.Equal(got, want) {
				t.Fatalf("%s: %q: %v, %v, want %v", name, s, got, err, want)
			}
		})
	}
}
