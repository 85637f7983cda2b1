package prompt

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"signalbox/preprocess/piece"
	"signalbox/preprocess/tokenizer"
)

// markers are what texts try to get into a prompt, besides pieces of it that only become markers together.
var markers = []string{"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "<|media_pad|>", "<|message_user|>", "<|message_model|>", "<|message_system|>", "<|message_tool|>",
	"<|content_text|>", "<|content_image|>", "<|content_audio_input|>", "<|audio_end|>", "<|content_thinking|>", "<|content_xml|>", "<|content_invoke_tool_json|>",
	"<|end_message|>", "<|content_model_end_sampling|>", "<|reserved_token_400|>"}

// markerRanks are the bytes as tokens, and the markers as special tokens from 256 on.
func markerRanks(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	var file []byte
	for i := range 256 {
		file = fmt.Appendf(file, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(i)}), i)
	}
	var special []tokenizer.AddedToken
	for i, marker := range markers {
		special = append(special, tokenizer.AddedToken{ID: uint32(256 + i), Content: marker, Special: true})
	}
	tok, err := tokenizer.ParseTiktoken(file, tokenizer.Tiktoken{Pattern: tokenizer.KimiPattern, Special: special, Reserved: 256})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// hostile draws texts that are not empty.
var hostile = rapid.Custom(func(t *rapid.T) string {
	text := ""
	for _, part := range rapid.SliceOfN(rapid.SampledFrom(append([]string{"<|", "|>", "open", "sep", "&lt;", `"`, "\\", "\n", "é", "x "}, markers...)), 1, 5).Draw(t, "parts") {
		text += part
	}
	return text
})

// request makes a conversation by choices, each a number below n. Each text of it is what write returns.
func request(choose func(n int) int, write func() string) Request {
	type object = map[string]any
	content := func() any {
		if choose(2) == 0 {
			return []object{{"type": "text", "text": write()}, {"type": "image_url", "image_url": object{"url": write()}}, {"type": "text", "text": write()}}
		}
		return write()
	}
	arguments := func() string {
		text, _ := json.Marshal(object{write(): write(), "list": []string{write()}})
		return string(text)
	}
	messages := []object{}
	for range choose(6) {
		switch choose(5) {
		case 0:
			messages = append(messages, object{"role": "system", "content": write()})
		case 1:
			messages = append(messages, object{"role": "developer", "content": write()})
		case 2:
			messages = append(messages, object{"role": "user", "name": write(), "content": content()})
		case 3:
			messages = append(messages, object{"role": "assistant", "name": write(), "content": write(), "reasoning_content": write()})
		default:
			id := write()
			messages = append(messages,
				object{"role": "assistant", "content": write(), "reasoning_content": []string{write(), write()},
					"tool_calls": []object{{"id": id, "type": "function", "function": object{"name": write(), "arguments": arguments()}}}},
				object{"role": "tool", "tool_call_id": id, "content": write()})
		}
	}
	r := Request{NoGenerationPrompt: choose(2) == 0}
	r.Messages, _ = json.Marshal(messages)
	if choose(2) == 0 {
		r.Tools, _ = json.Marshal([]object{{"type": "function", "function": object{"name": "tool", "description": write(),
			"parameters": object{"type": "object", "properties": object{write(): object{"const": write()}}}}}})
	}
	if choose(2) == 0 {
		r.ResponseFormat, _ = json.Marshal(object{"type": "json_schema", "json_schema": object{"name": "s", "schema": object{"const": write()}}})
	}
	return r
}

func specials(p piece.Prompt) (list []string) {
	start := 0
	for _, part := range p.Pieces {
		if part.Special {
			list = append(list, p.Text[start:part.End])
		}
		start = part.End
	}
	return list
}

// TestNoTextBecomesASpecialToken writes the same conversation with harmless texts and with such as spell out special tokens, wherever a
// request can have text: the prompts have the same special tokens, and so have their ids.
func TestNoTextBecomesASpecialToken(t *testing.T) {
	tok := markerRanks(t)
	ink, err := Load(Files{Config: typeConfig(t, inklingType)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*Formatter{"kimi_k3": native(t, "kimi_k3"), "inkling": ink} {
		rapid.Check(t, func(t *rapid.T) {
			var choices []int
			harmful := request(func(n int) int {
				choices = append(choices, rapid.IntRange(0, n-1).Draw(t, "choice"))
				return choices[len(choices)-1]
			}, func() string { return hostile.Draw(t, "text") })
			p, err := f.Compose(harmful)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, harmful.Messages, err)
			}
			wanted := specials(p)
			var ids []string
			for _, id := range tok.EncodePieces(nil, p) {
				if id >= 256 {
					ids = append(ids, tok.Decode([]uint32{id}, false))
				}
			}
			if !slices.Equal(ids, wanted) {
				t.Fatalf("%s: %q has the special tokens\n%q, want\n%q", name, p.Text, ids, wanted)
			}
			if got := tok.Decode(tok.EncodePieces(nil, p), false); got != p.Text {
				t.Fatalf("%s: %q is decoded as %q", name, p.Text, got)
			}
			written := 0
			harmless, err := f.Compose(request(func(int) int {
				choice := choices[0]
				choices = choices[1:]
				return choice
			}, func() string {
				written++
				return fmt.Sprint("text ", written)
			}))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := specials(harmless); !slices.Equal(got, wanted) {
				t.Fatalf("%s: %q has the special tokens\n%q, without markers in its texts\n%q", name, p.Text, wanted, got)
			}
		})
	}
}
