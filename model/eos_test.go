package model

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"signalbox/model/card"
)

func TestEndTokensComeFromTheFirstFileThatNamesThem(t *testing.T) {
	lookup := func(token string) (uint32, bool) {
		id, ok := map[string]uint32{"</s>": 2, "<|im_end|>": 7}[token]
		return id, ok
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []uint32
	}{
		{"generation_config wins over config", map[string]string{"generation_config.json": `{"eos_token_id":5}`, "config.json": `{"eos_token_id":6}`}, []uint32{5}},
		{"a list", map[string]string{"generation_config.json": `{"eos_token_id":[5,6]}`}, []uint32{5, 6}},
		{"config where generation_config has none", map[string]string{"generation_config.json": `{}`, "config.json": `{"eos_token_id":6}`}, []uint32{6}},
		{"config's text part", map[string]string{"config.json": `{"text_config":{"eos_token_id":[8]}}`}, []uint32{8}},
		{"the tokenizer's too", map[string]string{"generation_config.json": `{"eos_token_id":5}`, "tokenizer_config.json": `{"eos_token":"<|im_end|>"}`}, []uint32{5, 7}},
		{"the same one once", map[string]string{"generation_config.json": `{"eos_token_id":7}`, "tokenizer_config.json": `{"eos_token":{"content":"<|im_end|>"}}`}, []uint32{7}},
		{"only the tokenizer's", map[string]string{"config.json": `{"eos_token_id":null}`, "tokenizer_config.json": `{"eos_token":"</s>"}`}, []uint32{2}},
		{"only the special tokens map's", map[string]string{"special_tokens_map.json": `{"eos_token":"</s>"}`}, []uint32{2}},
		{"nowhere", map[string]string{"tokenizer_config.json": `{"eos_token":"unknown"}`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			path := func(name string) string {
				if _, ok := c.files[name]; !ok {
					return ""
				}
				return filepath.Join(folder, name)
			}
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			files := &card.Files{GenerationConfig: path("generation_config.json"), Config: path("config.json"),
				PromptFormatter: path("tokenizer_config.json"), Tokenizer: filepath.Join(folder, "tokenizer.json")}
			ids, err := EOSTokenIDs(files, lookup)
			if (err != nil) != (c.want == nil) || !slices.Equal(ids, c.want) {
				t.Errorf("got %v, %v; want %v", ids, err, c.want)
			}
		})
	}
}
