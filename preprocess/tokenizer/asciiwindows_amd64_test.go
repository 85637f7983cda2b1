package tokenizer

import (
	"strings"
	"testing"
)

// TestRulesCutMostOfPlainText would fail if text that rules can cut were left to slower ways, which nobody would see but in the time it takes.
func TestRulesCutMostOfPlainText(t *testing.T) {
	if !hasVBMI2 || !hasBMI2 || !hasBitCounts {
		t.Skip("this processor has not the instructions")
	}
	text := strings.Repeat("for i := range 10 { total += weights[i] * float64(i) } // the sum of all, once\n\tWhat a piece is depends on the pattern.\n", 20)
	var room [2048]int32
	for name, rules := range map[string]*asciiRules{"cl100k": cl100kRules(3), "o200k": o200kRules(3, true), "deepseek": deepseekRules()} {
		if next, n := rules.cut(text, 0, room[:1500]); next < len(text)-2*windowSize || n < len(text)/6 {
			t.Errorf("%s: %d pieces up to %d of %d", name, n, next, len(text))
		}
	}
}
