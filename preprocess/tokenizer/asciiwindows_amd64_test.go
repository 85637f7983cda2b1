package tokenizer

import (
	"strings"
	"testing"
)

// TestPlainTextIsCutQuickly would fail if most text were left to slower ways, which nobody would see but in the time it takes.
func TestPlainTextIsCutQuickly(t *testing.T) {
	if !hasWindowCuts() {
		t.Skip("this processor has not the instructions")
	}
	text := strings.Repeat("for i := range 10 { total += weights[i] * float64(i) } // the sum of all, once\n\tWhat a piece is depends on the pattern.\n", 20)
	var room [2048]int32
	for name, rules := range map[string]*asciiRules{"cl100k": cl100kRules(3), "o200k": o200kRules(3, true), "deepseek": deepseekRules()} {
		if next, n := rules.cut(text, 0, room[:1500]); next < len(text)-2*windowSize || n < len(text)/6 {
			t.Errorf("%s: %d pieces up to %d of %d", name, n, next, len(text))
		}
	}
	text += strings.Repeat("Größe und Länge sind egal, 中文也可以。 Это тоже “хорошо”, да.\n", 20)
	if next, n := load(t, "gemma3").words.near.cut(text, 0, room[:1900]); next < len(text)-2*windowSize || n < len(text)/6 {
		t.Errorf("gemma3: %d pieces up to %d of %d", n, next, len(text))
	}
}
