package tokenizer

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"signalbox/preprocess/piece"
)

// byteRanks is a model of a file of ranks whose tokens are the bytes, and special tokens behind them.
func byteRanks(t *testing.T) *Tokenizer {
	t.Helper()
	var file []byte
	for i := range 256 {
		file = fmt.Appendf(file, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(i)}), i)
	}
	tok, err := ParseTiktoken(file, Tiktoken{Pattern: KimiPattern, Special: []AddedToken{{ID: 256, Content: "<|sep|>", Special: true}, {ID: 257, Content: "<note>"}}})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestTextNeverBecomesASpecialToken(t *testing.T) {
	tok := byteRanks(t)
	rapid.Check(t, func(t *rapid.T) {
		var w piece.Writer
		var special int
		for _, part := range rapid.SliceOfN(rapid.SampledFrom([]string{"<|sep|>", "<note>", "<|s", "ep|>", "x", " 中", "\n"}), 0, 8).Draw(t, "parts") {
			if part == "<|sep|>" && rapid.Bool().Draw(t, "special") {
				w.Special(part)
				special++
				continue
			}
			w.Text(part)
		}
		p := w.Prompt()
		ids := tok.EncodePieces(nil, p)
		found := 0
		for _, id := range ids {
			if id >= 256 {
				found++
			}
		}
		if found != special {
			t.Fatalf("%q has %d special tokens, want %d: %v", p.Text, found, special, ids)
		}
		if got := tok.Decode(ids, false); got != p.Text {
			t.Fatalf("%q decodes to %q", p.Text, got)
		}
	})
	if got := tok.EncodePieces(nil, piece.Prompt{Text: "<|sep|><note>"}); !slices.Equal(got, []uint32{256, 257}) {
		t.Errorf("a prompt without pieces is %v", got)
	}
}

// piecesFile is a tokenizer.json whose special tokens are of every kind: in the text as it came and in the normalised text, with spaces
// around them, and one that only words between spaces can be; and a token that is not special.
const piecesFile = `{"added_tokens":[{"id":20,"content":"<|sep|>","special":true},{"id":21,"content":"<|End|>","special":true,"normalized":true},
	{"id":22,"content":"<|pad|>","special":true,"lstrip":true,"rstrip":true},{"id":23,"content":"word","special":true,"single_word":true},{"id":24,"content":"<note>","special":false}],
	"normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},
	"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|sep|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
	"special_tokens":{"<|sep|>":{"id":"<|sep|>","ids":[20],"tokens":["<|sep|>"]}}},
	"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3,"<":4,"|":5,">":6,"s":7,"e":8,"p":9,"n":10,"d":11,"w":12,"o":13,"r":14,"t":15,"<|":16},"merges":["a b","< |"]}}`

// TestPiecesOfTokenizerFiles encodes prompts in pieces with a tokenizer.json.
func TestPiecesOfTokenizerFiles(t *testing.T) {
	tok, err := Parse([]byte(piecesFile))
	if err != nil {
		t.Fatal(err)
	}
	special, text := func(s string) func(*piece.Writer) { return func(w *piece.Writer) { w.Special(s) } }, func(s string) func(*piece.Writer) {
		return func(w *piece.Writer) { w.Text(s) }
	}
	for _, c := range []struct {
		name   string
		pieces []func(*piece.Writer)
		want   []uint32
	}{
		{"a special token and its spelling", []func(*piece.Writer){special("<|sep|>"), text("a<|sep|>b")}, []uint32{20, 0, 16, 7, 8, 9, 5, 6, 1}},
		{"a normalised one", []func(*piece.Writer){special("<|End|>"), text("<|End|>")}, []uint32{21, 16, 8, 10, 11, 5, 6}},
		{"one that takes spaces", []func(*piece.Writer){text("a "), special("<|pad|>"), text(" b")}, []uint32{0, 3, 22, 3, 1}},
		{"its spelling takes none", []func(*piece.Writer){text("a <|pad|> b")}, []uint32{0, 3, 16, 9, 0, 11, 5, 6, 3, 1}},
		{"a word", []func(*piece.Writer){special("word"), text("word")}, []uint32{23, 12, 13, 14, 11}},
		{"a token that is not special", []func(*piece.Writer){text("a<note>b")}, []uint32{0, 24, 1}},
		{"no token reaches across an edge", []func(*piece.Writer){text("a"), text("b"), text("ab")}, []uint32{0, 1, 2}},
		{"no special token does", []func(*piece.Writer){text("<|s"), text("ep|>")}, []uint32{16, 7, 8, 9, 5, 6}},
		{"a special token that the model does not have", []func(*piece.Writer){special("<|ab|>")}, []uint32{16, 2, 5, 6}},
	} {
		var w piece.Writer
		for _, write := range c.pieces {
			write(&w)
		}
		for range 2 { // what the first left in caches must not matter
			if got := tok.EncodePieces(nil, w.Prompt()); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		}
	}
	if got, want := tok.Encode(nil, "ab<|sep|>", true), []uint32{20, 2, 20}; !slices.Equal(got, want) {
		t.Errorf("afterwards a text is %v, want %v", got, want)
	}
}

// TestPiecesOfModels gives real models the spellings of all their special tokens as text, and puts their prompts together of texts.
func TestPiecesOfModels(t *testing.T) {
	for _, name := range models {
		tok := load(t, name)
		if _, unigram := tok.model.(*unigram); unigram {
			continue // whose vocabulary has the spellings as words
		}
		var spelled []string
		for _, token := range tok.addedByID {
			if token.Special {
				spelled = append(spelled, token.Content)
			}
		}
		slices.Sort(spelled)
		if len(spelled) == 0 {
			t.Errorf("%s has no special tokens", name)
			continue
		}
		rapid.Check(t, func(t *rapid.T) {
			var w piece.Writer
			var want []uint32
			for range rapid.IntRange(0, 6).Draw(t, "pieces") {
				marker := rapid.SampledFrom(spelled).Draw(t, "marker")
				id, _ := tok.TokenToID(marker)
				if rapid.Bool().Draw(t, "special") {
					w.Special(marker)
					want = append(want, id)
					continue
				}
				w.Text(rapid.SampledFrom([]string{"", "a ", "中", " "}).Draw(t, "before") + marker + rapid.SampledFrom([]string{"", " b", "\n"}).Draw(t, "behind"))
			}
			var got []uint32
			for _, id := range tok.EncodePieces(nil, w.Prompt()) {
				if token, added := tok.addedByID[id]; added && token.Special {
					got = append(got, id)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s: %q has the special tokens %v, want %v", name, w.Prompt().Text, got, want)
			}
		})
	}
}
