package bpe

import (
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/golden"
)

// BenchmarkWords encodes an English prompt of 3000 words, the size at which tokenising dominates a frontend.
func BenchmarkWords(b *testing.B) {
	tok, err := Load(filepath.Join(golden.Models(b), "tok", "qwen3", "tokenizer.json"))
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat("now find the long people who may come from this water and see what they would do there ", 170)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var ids []uint32
	for b.Loop() {
		ids = tok.Encode(ids[:0], text, false)
	}
}
