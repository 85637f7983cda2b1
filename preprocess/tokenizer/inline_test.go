package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
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
