package tokenizer

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestLongTextBeyondASCIIIsCutWhereNothingReachesAcross joins tokens without a character of ASCII, so that only what is known of pairs of other characters
// can cut the text, and holds that against the general way, which cuts nothing.
func TestLongTextBeyondASCIIIsCutWhereNothingReachesAcross(t *testing.T) {
	tok := load(t, "gemma3")
	var tokens []string
	for id := range uint32(len(tok.words.bpe.vocab.spans)) {
		token := string(tok.words.bpe.vocab.token(id))
		if token != "" && utf8.ValidString(token) && strings.IndexFunc(token, func(r rune) bool { return r < utf8.RuneSelf }) < 0 {
			tokens = append(tokens, token)
		}
	}
	cut := 0
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(tokens), 10, 60).Draw(t, "tokens"), "")
		got := tok.Encode(nil, text, false)
		if want, _, err := tok.EncodeSpans(text, false); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q: %v, with offsets %v, %v", text, got, want, err)
		}
		cut += len(scanned(tok.words.scan).find(text)) - 1
	})
	if cut == 0 {
		t.Error("no text was cut")
	}
}
