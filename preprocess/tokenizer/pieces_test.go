package tokenizer

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"signalbox/preprocess/piece"
)

// byteRanks is a model of a file of ranks whose tokens are the bytes, and special tokens behind them.
func byteRanks(t *testing.T) *Tokenizer {
	t.Helper()
	var file []byte
	for i := range 256 {
		file = fmt.Appendf(file, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(i)}), i)
	}
	tok, err := ParseTiktoken(file, Tiktoken{Pattern: KimiPattern, Special: []AddedToken{{ID: 256, Content: "<|sep|>", Special: true}, {ID: 257, Content: "<note>"}}})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestTextNeverBecomesASpecialToken(t *testing.T) {
	tok := byteRanks(t)
	rapid.Check(t, func(t *rapid.T) {
		var w piece.Writer
		var special int
		for _, part := range rapid.SliceOfN(rapid.SampledFrom([]string{"<|sep|>", "<note>", "<|s", "ep|>", "x", " 中", "\n"}), 0, 8).Draw(t, "parts") {
			if part == "<|sep|>" && rapid.Bool().Draw(t, "special") {
				w.Special(part)
				special++
				continue
			}
			w.Text(part)
		}
		p := w.Prompt()
		ids := tok.EncodePieces(nil, p)
		found := 0
		for _, id := range ids {
			if id >= 256 {
				found++
			}
		}
		if found != special {
			t.Fatalf("%q has %d special tokens, want %d: %v", p.Text, found, special, ids)
		}
		if got := tok.Decode(ids, false); got != p.Text {
			t.Fatalf("%q decodes to %q", p.Text, got)
		}
	})
	if got := tok.EncodePieces(nil, piece.Prompt{Text: "<|sep|><note>"}); !slices.Equal(got, []uint32{256, 257}) {
		t.Errorf("a prompt without pieces is %v", got)
	}
}
