package tokenizer

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/golden"
)

var models = []string{"llama3_2", "qwen3", "deepseek_v3", "gptoss", "gpt4o", "mistral_nemo", "claude", "gemma3", "llama2", "bert_minilm",
	"unigram_synth"}

func lines[T any](t testing.TB, path string) []T {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(zipped)
	var list []T
	for {
		var value T
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, value)
	}
}

var loaded sync.Map

// load returns the tokenizer of a real model; tests share it.
func load(t testing.TB, name string) *Tokenizer {
	t.Helper()
	if known, ok := loaded.Load(name); ok {
		return known.(*Tokenizer)
	}
	tok, err := Load(filepath.Join(golden.Models(t), "tok", name, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	loaded.Store(name, tok)
	return tok
}

func texts(t testing.TB) []string {
	var list []string
	for _, line := range lines[struct{ T string }](t, filepath.Join(golden.Dir(t, "tokenizers"), "texts.jsonl.gz")) {
		list = append(list, line.T)
	}
	return list
}

func TestEncodesAndDecodesAsTheReferenceDoes(t *testing.T) {
	dir, texts := golden.Dir(t, "tokenizers"), texts(t)
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			tok := load(t, name)
			for _, want := range lines[struct {
				I         int
				IDs, Sp   []uint32
				Dec, Skip *string
			}](t, filepath.Join(dir, name+".jsonl.gz")) {
				s := texts[want.I]
				special, decoded := want.Sp, s
				if special == nil {
					special = want.IDs
				}
				if want.Dec != nil {
					decoded = *want.Dec
				}
				skipped := decoded
				if want.Skip != nil {
					skipped = *want.Skip
				}
				if got := tok.Encode(nil, s, false); !slices.Equal(got, want.IDs) {
					t.Errorf("text %d %.80q: %v, want %v", want.I, s, got, want.IDs)
				}
				if got := tok.Encode(nil, s, true); !slices.Equal(got, special) {
					t.Errorf("text %d %.80q with special tokens: %v, want %v", want.I, s, got, special)
				}
				if got := tok.Decode(want.IDs, false); got != decoded {
					t.Errorf("text %d decodes to %.80q, want %.80q", want.I, got, decoded)
				}
				if got := tok.Decode(want.IDs, true); got != skipped {
					t.Errorf("text %d decodes without special tokens to %.80q, want %.80q", want.I, got, skipped)
				}
				if got, spans, err := tok.EncodeSpans(s, false); err != nil || !slices.Equal(got, want.IDs) || len(spans) != len(got) {
					t.Errorf("text %d %.80q with offsets: %v and %d spans, %v; want %v", want.I, s, got, len(spans), err, want.IDs)
				}
			}
		})
	}
}

func TestDecodesTokenByToken(t *testing.T) {
	dir := golden.Dir(t, "tokenizers")
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			tok := load(t, name)
			for _, want := range lines[struct {
				IDs         []uint32
				Dec, Skip   *string
				SkipSpecial bool `json:"skip_special"`
				Steps       []*string
				Error       string
			}](t, filepath.Join(dir, name+".decode.jsonl.gz")) {
				if want.Steps == nil {
					if got := tok.Decode(want.IDs, false); want.Dec != nil && got != *want.Dec {
						t.Errorf("%v decode to %q, want %q", want.IDs, got, *want.Dec)
					}
					if got := tok.Decode(want.IDs, true); want.Skip != nil && got != *want.Skip {
						t.Errorf("%v decode without special tokens to %q, want %q", want.IDs, got, *want.Skip)
					}
					continue
				}
				decoder := tok.NewDecoder(nil, want.SkipSpecial)
				for i, step := range want.Steps {
					expected := ""
					if step != nil {
						expected = *step
					}
					if got := decoder.Step(want.IDs[i]); got != expected {
						t.Errorf("%v: step %d gives %q, want %q", want.IDs, i, got, expected)
						break
					}
				}
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range models {
		file, err := os.ReadFile(filepath.Join(golden.Models(b), "tok", name, "tokenizer.json"))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(file)))
			for b.Loop() {
				if _, err := Parse(file); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// processorTime is the time that the process has used: on a busy machine it says more than the clock.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkEncode encodes source text and an English prompt.
func BenchmarkEncode(b *testing.B) {
	source, err := os.ReadFile("scan.go")
	if err != nil {
		b.Fatal(err)
	}
	for kind, s := range map[string]string{"code": string(source),
		"words": strings.Repeat("now find the long people who may come from this water and see what they would do there ", 170)} {
		for _, name := range models {
			tok := load(b, name)
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(s)))
				b.ReportAllocs()
				var ids []uint32
				start := processorTime()
				for b.Loop() {
					ids = tok.Encode(ids[:0], s, false)
				}
				b.ReportMetric(float64(b.N*len(s))/1e6/(processorTime()-start).Seconds(), "cpuMB/s")
			})
		}
	}
}
