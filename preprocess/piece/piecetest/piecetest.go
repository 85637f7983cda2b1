// Package piecetest helps the tests of encoders that write prompts in pieces.
package piecetest

import (
	"strings"
	"testing"

	"signalbox/preprocess/chattemplate"
	"signalbox/preprocess/piece"
)

// Brief spells the special tokens of a prompt by short names, so that those that text spells out stand out.
func Brief(p piece.Prompt, names map[string]string) string {
	var b strings.Builder
	start := 0
	for _, part := range p.Pieces {
		spelled := p.Text[start:part.End]
		if part.Special {
			spelled = names[spelled]
		}
		b.WriteString(spelled)
		start = part.End
	}
	return b.String()
}

// Parse reads JSON as requests are read; "" is the zero value.
func Parse(t *testing.T, source string) chattemplate.Value {
	t.Helper()
	if source == "" {
		return chattemplate.Value{}
	}
	value, err := chattemplate.ParseJSON64(source)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
