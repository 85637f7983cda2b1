package bpe

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"signalbox/internal/golden"
)

func lines[T any](t *testing.T, path string) []T {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(reader)
	var list []T
	for {
		var value T
		if err := decoder.Decode(&value); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, value)
	}
}

func TestEncodesAsTheReferenceDoes(t *testing.T) {
	dir, models := golden.Dir(t, "tokenizers"), golden.Models(t)
	type text struct {
		I int
		T string
	}
	texts := lines[text](t, filepath.Join(dir, "texts.jsonl.gz"))
	for _, name := range []string{"qwen3", "llama3_2"} {
		tok, err := Load(filepath.Join(models, "tok", name, "tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, want := range lines[struct {
			I       int
			IDs, Sp []uint32
			Dec     *string
			Skip    *string
		}](t, filepath.Join(dir, name+".jsonl.gz")) {
			if got := tok.Encode(nil, texts[want.I].T, false); !slices.Equal(got, want.IDs) {
				if failed++; failed < 3 {
					t.Errorf("%s text %d %.80q: %v, want %v", name, want.I, texts[want.I].T, got, want.IDs)
				}
			}
			dec := texts[want.I].T
			if want.Dec != nil {
				dec = *want.Dec
			}
			if got := tok.Decode(want.IDs, false); got != dec {
				t.Errorf("%s text %d decodes to %.80q, want %.80q", name, want.I, got, dec)
			}
		}
		if failed > 0 {
			t.Errorf("%s: %d of %d texts differ", name, failed, len(texts))
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	tok, err := Load(filepath.Join(golden.Models(b), "tok", "qwen3", "tokenizer.json"))
	if err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile("bpe.go")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var ids []uint32
	for b.Loop() {
		ids = tok.Encode(ids[:0], string(text), false)
	}
}
