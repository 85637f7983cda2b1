package verify

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"signalbox/preprocess/tokenizer"
)

type encoding struct {
	I       int
	IDs, Sp []uint32
	Dec     *string
	Skip    *string
}

// decoding is either ids with what they decode to, or, where there are steps, ids with the text that each of them completes.
type decoding struct {
	IDs         []uint32
	Dec, Skip   *string
	SkipSpecial bool `json:"skip_special"`
	Steps       []*string
}

// Tokenizers checks the encoding of texts and the decoding of ids, at once and one by one.
func Tokenizers(path string) Result {
	var result Result
	folder, only := path, ""
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		folder, only = filepath.Dir(path), filepath.Base(path)
	}
	texts, err := readLines[struct{ T string }](filepath.Join(folder, "texts.jsonl.gz"))
	if err != nil {
		result.fail("%v", err)
		return result
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*.jsonl.gz"))
	loaded := make(map[string]*tokenizer.Tokenizer)
	for _, file := range files {
		base := filepath.Base(file)
		if base == "texts.jsonl.gz" || only != "" && base != only {
			continue
		}
		name, decodes := strings.CutSuffix(strings.TrimSuffix(base, ".jsonl.gz"), ".decode")
		t := loaded[name]
		if t == nil {
			if t, err = tokenizer.Load(filepath.Join(modelsFolder(), "tok", name, "tokenizer.json")); err != nil {
				result.fail("%s: %v", name, err)
				continue
			}
			loaded[name] = t
		}
		if decodes {
			err = checkDecodings(&result, name, t, file)
		} else {
			var cases []encoding
			cases, err = readLines[encoding](file)
			for _, c := range cases {
				if c.I < 0 || c.I >= len(texts) {
					result.fail("%s: there is no text %d", name, c.I)
					continue
				}
				checkEncoding(&result, name, t, texts[c.I].T, c)
			}
		}
		if err != nil {
			result.fail("%s: %v", file, err)
		}
	}
	return result
}

func checkEncoding(result *Result, name string, t *tokenizer.Tokenizer, text string, want encoding) {
	special := want.Sp
	if special == nil {
		special = want.IDs
	}
	decoded := text
	if want.Dec != nil {
		decoded = *want.Dec
	}
	skipped := decoded
	if want.Skip != nil {
		skipped = *want.Skip
	}
	switch {
	case !slices.Equal(t.Encode(nil, text, false), want.IDs):
		result.fail("%s, text %d: other ids", name, want.I)
	case !slices.Equal(t.Encode(nil, text, true), special):
		result.fail("%s, text %d: other ids with special tokens", name, want.I)
	case t.Decode(want.IDs, false) != decoded:
		result.fail("%s, text %d: decodes to another text", name, want.I)
	case t.Decode(want.IDs, true) != skipped:
		result.fail("%s, text %d: decodes to another text without special tokens", name, want.I)
	default:
		result.Passed++
	}
}

func checkDecodings(result *Result, name string, t *tokenizer.Tokenizer, file string) error {
	cases, err := readLines[decoding](file)
	for i, c := range cases {
		switch {
		case c.Steps != nil && !stepsAgree(t, c):
			result.fail("%s, sequence %d: decodes one by one to other texts", name, i)
		case c.Steps == nil && c.Dec != nil && t.Decode(c.IDs, false) != *c.Dec:
			result.fail("%s, sequence %d: decodes to another text", name, i)
		case c.Steps == nil && c.Skip != nil && t.Decode(c.IDs, true) != *c.Skip:
			result.fail("%s, sequence %d: decodes to another text without special tokens", name, i)
		default:
			result.Passed++
		}
	}
	return err
}

func stepsAgree(t *tokenizer.Tokenizer, c decoding) bool {
	decoder := t.NewDecoder(nil, c.SkipSpecial)
	for i, step := range c.Steps {
		want := ""
		if step != nil {
			want = *step
		}
		if i >= len(c.IDs) || decoder.Step(c.IDs[i]) != want {
			return false
		}
	}
	return true
}
