package tokenizer

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// small files of all kinds of models, for tests that change them.
var smallFiles = []string{
	`{"added_tokens":[{"id":7,"content":"<s>","special":true,"lstrip":true,"rstrip":true},{"id":8,"content":"word","single_word":true,"normalized":true}],
	"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true},"decoder":{"type":"ByteLevel"},
	"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
	"special_tokens":{"<s>":{"id":"<s>","ids":[7],"tokens":["<s>"]}}},
	"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3,"Ġa":4,"Ġab":5,"Ã":6},"merges":["a b",["Ġ","a"],["Ġa","b"]]}}`,
	`{"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
	"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
	{"type":"Strip","content":" ","start":1,"stop":0}]},
	"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,"vocab":{"<unk>":0,"a":1,"▁":2,"▁a":3,"<0xC3>":4,"<0xA9>":5},
	"merges":["▁ a"]}}`,
	`{"normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},
	"pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},
	"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":10,"vocab":{"[UNK]":0,"a":1,"##b":2}}}`,
	`{"normalizer":{"type":"Sequence","normalizers":[{"type":"Nmt"},{"type":"NFKC"},{"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "}]},
	"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}]},
	"decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"},
	"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["▁a",-1.5],["b",-2e0]]}}`,
	`{"model":{"vocab":[]}}`,
}

// TestReadsFieldsInAnyOrder gives the parts of a file in orders that files do not usually have.
func TestReadsFieldsInAnyOrder(t *testing.T) {
	const rest = `"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},"normalizer":null`
	want := []uint32{3, 3, 1}
	for _, file := range []string{
		`{` + rest + `,"model":{"type":"BPE","vocab":{"a":0,"b":1,"é":9,"Ġ":2,"Ġa":3},"merges":["Ġ a"]}}`,
		`{"model":{"merges":["Ġ a"],"vocab":{"a":0,"b":1,"Ġ":2,"Ġa":3},"type":"BPE"},` + rest + `}`,
		`{` + rest + `,"model":{"vocab":{"a":0,"b":1,"Ġ":2,"Ġa":3},"merges":[["Ġ","a"]]}}`,
		`{` + rest + `,"model":{"type":"BPE","vocab":{"Ġ":5},"vocab":{"a":0,"b":1,"Ġ":2,"Ġa":3},"merges":["Ġ a"]}}`,
		`{` + rest + `,"model":{"type":"BPE","vocab":{"a":0,"b":1,"Ġ":2,"Ġa":3},"merges":[["Ġ","a"]` + strings.Repeat(`,"Ġ a"`, 50) + `]}}`,
	} {
		tok, err := Parse([]byte(file))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if got := tok.Encode(nil, " a ab", false); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", file, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, file := range smallFiles {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		tok, err := Parse(file)
		if err != nil {
			return
		}
		ids := tok.Encode(nil, "ab a <s> word é\n中", true)
		if text := tok.Decode(ids, false); !utf8.ValidString(text) && utf8.Valid(file) {
			t.Errorf("decodes to %q", text)
		}
	})
}

func FuzzTiktoken(f *testing.F) {
	f.Add([]byte("YQ== 0\nYg== 1\nYWI= 2\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if tok, err := ParseTiktoken(file, Tiktoken{Pattern: gpt2Pattern}); err == nil {
			tok.Encode(nil, "ab abab", false)
		}
	})
}

// FuzzEncode compares the fast ways with the general one, which also knows offsets.
func FuzzEncode(f *testing.F) {
	var list []*Tokenizer
	for _, file := range smallFiles {
		tok, err := Parse([]byte(file))
		if err != nil {
			f.Fatal(err)
		}
		list = append(list, tok)
	}
	list = append(list, load(f, "qwen3"))
	for _, s := range awkward {
		f.Add(s + " word " + s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for i, tok := range list {
			got := tok.Encode(nil, s, true)
			want, spans, err := tok.EncodeSpans(valid(s), true)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("tokenizer %d, %q: %v, with offsets %v, %v", i, s, got, want, err)
			}
			for _, span := range spans {
				if span.Start < 0 || span.Start > span.End || span.End > len(valid(s)) {
					t.Fatalf("tokenizer %d, %q: span %v", i, s, span)
				}
			}
			if again := tok.Encode(nil, s, true); !slices.Equal(got, again) {
				t.Fatalf("tokenizer %d, %q: %v, then %v", i, s, got, again)
			}
		}
	})
}

// FuzzDecode checks that text decoded token by token is never cut inside a character and, where tokens are bytes, is the text decoded at
// once.
func FuzzDecode(f *testing.F) {
	list := []*Tokenizer{load(f, "qwen3"), load(f, "llama2"), load(f, "bert_minilm"), load(f, "unigram_synth")}
	f.Add([]byte{1, 2, 3, 200, 13, 250}, true)
	f.Fuzz(func(t *testing.T, data []byte, skip bool) {
		for i, tok := range list {
			var ids []uint32
			for j := 0; j+1 < len(data); j += 2 {
				ids = append(ids, (uint32(data[j])<<8|uint32(data[j+1]))*3)
			}
			decoder := tok.NewDecoder(nil, skip)
			joined := ""
			for _, id := range ids {
				part := decoder.Step(id)
				if !utf8.ValidString(part) {
					t.Fatalf("tokenizer %d: %v give %q", i, ids, part)
				}
				joined += part
			}
			joined += decoder.Flush()
			if whole := tok.Decode(ids, skip); tok.byteDecoder && joined != whole {
				t.Fatalf("tokenizer %d: %v give %q one by one, %q at once", i, ids, joined, whole)
			}
		}
	})
}

// TestAllWaysAgree compares what is fast, with whatever the tables of words hold by then, with the general way.
func TestAllWaysAgree(t *testing.T) {
	parts := append([]string{"the", "ing", "▁", "▁▁", "<unk>", "the quick", "    ", "==========", "Straße", "привет", "こんにちは", "<0x41>", "</", "> <",
		"internationalization", "GenerateUnboundMethodsEchoServiceApi", strings.Repeat(" ", 45), strings.Repeat("-", 90), strings.Repeat("ab", 140)}, awkward...)
	for _, name := range models {
		tok := load(t, name)
		rapid.Check(t, func(t *rapid.T) {
			s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 40).Draw(t, "parts"), "")
			got := tok.Encode(nil, s, true)
			if want, _, err := tok.EncodeSpans(s, true); err != nil || !slices.Equal(got, want) {
				t.Fatalf("%s, %q: %v, with offsets %v, %v", name, s, got, want, err)
			}
		})
	}
}

// TestEncodingWithoutMergingIsMerging compares all tokens and joined tokens of a vocabulary: what is fast, and merging step by step.
func TestEncodingWithoutMergingIsMerging(t *testing.T) {
	for _, name := range []string{"qwen3", "llama3_2", "gemma3"} {
		b := load(t, name).model.(*bpe)
		scratch := b.borrow()
		check := func(s string) {
			scratch.symbols = scratch.symbols[:0]
			b.begin(scratch, s, false)
			merged := slices.Clone(b.merges.apply(scratch.symbols, &scratch.mergeScratch))
			if got, ok := b.greedy.encode(nil, s); ok && !slices.Equal(got, merged) {
				t.Fatalf("%s, %q: %v, merged %v", name, s, got, merged)
			}
		}
		for id := uint32(0); int(id) < len(b.vocab.spans); id += 7 {
			one, other := string(b.vocab.token(id)), string(b.vocab.token(id*31%uint32(len(b.vocab.spans))))
			if one == "" || b.raw == false && strings.HasPrefix(one, "<") {
				continue
			}
			if _, added := load(t, name).addedByID[id]; added {
				continue
			}
			check(one)
			if b.raw || utf8.ValidString(one+other) {
				check(one + other + one)
			}
			scratch.symbols = scratch.symbols[:0]
			b.begin(scratch, one, false)
			if merged := b.merges.apply(scratch.symbols, &scratch.mergeScratch); b.origins.known[id] && (len(merged) != 1 || merged[0] != id) {
				t.Fatalf("%s, token %d %q: merging gives %v, but an origin is known", name, id, one, merged)
			}
		}
	}
}
