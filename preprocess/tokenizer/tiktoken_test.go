package tokenizer

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// tiktokenFile writes a byte-level vocabulary as a tiktoken file: its tokens that merging comes to, in their order.
func tiktokenFile(t *Tokenizer) []byte {
	var b strings.Builder
	for id := range uint32(len(t.vocab.spans)) {
		if _, added := t.addedByID[id]; !added && t.vocab.has(id) {
			fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString(t.vocab.token(id)), id)
		}
	}
	return []byte(b.String())
}

// TestReadsTiktokenFiles writes a vocabulary that was made from a tiktoken file as one again: the ids must stay.
func TestReadsTiktokenFiles(t *testing.T) {
	original := load(t, "llama3_2")
	var special []AddedToken
	for _, token := range original.addedByID {
		special = append(special, token)
	}
	tok, err := ParseTiktoken(tiktokenFile(original), Tiktoken{Special: special, BeforeText: []uint32{128000},
		Pattern: contractionPart + `|` + wordPart + `\p{L}+|\p{N}{1,3}|` + restPart})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range texts(t) {
		if got, want := tok.Encode(nil, s, true), original.Encode(nil, s, true); !slices.Equal(got, want) {
			t.Errorf("text %d %.60q: %v, want %v", i, s, got, want)
		}
		ids := original.Encode(nil, s, false)
		if got, want := tok.Decode(ids, true), original.Decode(ids, true); got != want {
			t.Errorf("text %d decodes to %.60q, want %.60q", i, got, want)
		}
	}
	if _, err := ParseTiktoken([]byte("YQ== 0\nYg== x\n"), Tiktoken{Pattern: gpt2Pattern}); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a rank that is no number gives %v; the line should be named", err)
	}
}

// TestKimiPattern checks that the engine cuts Chinese off from other letters.
func TestKimiPattern(t *testing.T) {
	p, err := compileExpression(KimiPattern)
	if err != nil {
		t.Fatal(err)
	}
	s := "abc中文def 12345 XMLHttp's 。\n"
	var got []string
	for _, m := range p.find(s) {
		got = append(got, s[m.start:m.end])
	}
	want := []string{"abc", "中文", "def", " ", "123", "45", " XMLHttp's", " 。\n"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := tricky.Draw(t, "text")
		at := 0
		for _, m := range p.find(s) {
			if m.start != at {
				t.Fatalf("%q: nothing matches from %d to %d", s, at, m.start)
			}
			at = m.end
		}
		if at != len(s) {
			t.Fatalf("%q: nothing matches from %d on", s, at)
		}
	})
}

func TestLoadsModelsByTheirFiles(t *testing.T) {
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ranks := write("tiktoken.model", "YQ== 0\nYg== 1\nYWI= 2\n")
	tokens := write("tokenizer_config.json", `{"added_tokens_decoder":{"3":{"content":"<|im_end|>","special":true}}}`)
	tok, err := LoadModel(ModelFiles{Tokenizer: ranks, TokenizerConfig: tokens, Config: write("config.json", `{"model_type":"kimi_k2","vocab_size":9}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tok.Encode(nil, "abba<|im_end|><|reserved_token_5|>", false), []uint32{2, 1, 0, 3, 5}; !slices.Equal(got, want) || tok.VocabSize() != 3+kimiReserved {
		t.Errorf("%v of %d, want %v of %d", got, tok.VocabSize(), want, 3+kimiReserved)
	}
	if got := tok.Decode([]uint32{2, 3, 1}, true); got != "abb" {
		t.Errorf("decodes to %q", got)
	}
	_, err = LoadModel(ModelFiles{Tokenizer: ranks, Config: write("config.json", `{"model_type":"other"}`)})
	if err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("another kind of model gives %v; it should be named", err)
	}
	ordinary := write("tokenizer.json", smallFiles[0])
	tok, err = LoadModel(ModelFiles{Tokenizer: ordinary, TokenizerConfig: write("c", `{"added_tokens_decoder":{"9":{"content":"<new>","special":true},
		"8":{"content":"word","special":true}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Decode(tok.Encode(nil, "a<new>word", false), true); got != " a" {
		t.Errorf("without the special tokens of both files: %q", got)
	}
}

// TestNamesWhatItDoesNotKnow checks that each kind of part that is not known is an error that names it.
func TestNamesWhatItDoesNotKnow(t *testing.T) {
	for _, part := range []string{`"normalizer":{"type":"X"}`, `"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"X"}]}`,
		`"decoder":{"type":"X"}`, `"post_processor":{"type":"X"}`, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"X"}`} {
		name, _, _ := strings.Cut(part, ":")
		_, err := Parse([]byte(`{` + part + `,"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`))
		if err == nil || !strings.Contains(err.Error(), `"X"`) || !strings.Contains(err.Error(), strings.Trim(name, `"`)) {
			t.Errorf("%s gives %v", part, err)
		}
	}
	if _, err := Parse([]byte(`{"model":{"type":"X","vocab":{"a":0}}}`)); err == nil || !strings.Contains(err.Error(), `model: type "X"`) {
		t.Errorf("an unknown model gives %v", err)
	}
}

func TestReservedTokens(t *testing.T) {
	list := ReservedTokens(10, 3, []AddedToken{{ID: 11, Content: "<|end|>", Special: true}})
	want := []AddedToken{{ID: 11, Content: "<|end|>", Special: true}, {ID: 10, Content: "<|reserved_token_10|>", Special: true},
		{ID: 12, Content: "<|reserved_token_12|>", Special: true}}
	if !slices.Equal(list, want) {
		t.Errorf("%v, want %v", list, want)
	}
}

func TestTokensOfTheConfig(t *testing.T) {
	list, err := ConfigTokens([]byte(`{"added_tokens_decoder":{"7":{"content":"<b>","special":true,"lstrip":true},"3":{"content":"<a>","special":true},
		"5":{"content":"plain","special":false}}}`))
	want := []AddedToken{{ID: 3, Content: "<a>", Special: true}, {ID: 7, Content: "<b>", Special: true, LStrip: true}}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("%v, %v; want %v", list, err, want)
	}
	if _, err := ConfigTokens([]byte(`{"added_tokens_decoder":{"x":{}}}`)); err == nil {
		t.Error("a key that is no id is taken")
	}
}
