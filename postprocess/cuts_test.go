package postprocess_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/golden"
	"signalbox/postprocess"
	"signalbox/postprocess/reasoning"
	"signalbox/postprocess/toolcall"
	"signalbox/verify"
)

func recordings(t testing.TB) (cases []verify.ParserCase) {
	files, err := filepath.Glob(filepath.Join(golden.Dir(t, "parsers"), "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		switch filepath.Base(file) {
		case "tools.json", "bytes_tokenizer.json", "stops.json":
			continue
		}
		list, err := verify.ParserCases(file)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, list...)
	}
	return cases
}

// Every recorded answer gives the same however it is cut: in two at every byte, and into single bytes.
func TestCutAnywhere(t *testing.T) {
	for _, c := range recordings(t) {
		for _, whole := range []bool{true, false} {
			want := c.Run([]string{c.Text}, whole)
			for at := 1; at < len(c.Text); at++ {
				if got := c.Run([]string{c.Text[:at], c.Text[at:]}, whole); !reflect.DeepEqual(got, want) {
					t.Errorf("%s cut at %d (%q): have %s; want %s", c.Name, at, c.Text[:at], got, want)
					break
				}
			}
			single := make([]string, len(c.Text))
			for i := range single {
				single[i] = c.Text[i : i+1]
			}
			if got := c.Run(single, whole); !reflect.DeepEqual(got, want) {
				t.Errorf("%s byte by byte: have %s; want %s", c.Name, got, want)
			}
		}
	}
}

// vocabulary holds the words of the recordings, from which answers are made that no model wrote.
func vocabulary(t testing.TB) (words []string, tools []toolcall.Tool) {
	seen := make(map[string]bool)
	for _, c := range recordings(t) {
		if len(c.Request.Tools) > 0 {
			tools = c.Request.Tools
		}
		for _, part := range strings.SplitAfter(strings.ReplaceAll(c.Text, "<", "\x00<"), "\x00") {
			for _, word := range strings.SplitAfter(strings.TrimSuffix(part, "\x00"), ">") {
				if word != "" && !seen[word] {
					seen[word] = true
					words = append(words, word)
				}
			}
		}
	}
	return words, tools
}

// Answers put together from pieces of recorded ones give the same whole and cut, in all formats.
func TestCutInvented(t *testing.T) {
	words, tools := vocabulary(t)
	toolNames, reasoningNames := append(toolcall.Names(), ""), append(reasoning.Names(), "")
	rapid.Check(t, func(t *rapid.T) {
		c := verify.ParserCase{Finish: "stop"}
		c.Parsers = postprocess.Parsers{Tool: rapid.SampledFrom(toolNames).Draw(t, "tool"), Reasoning: rapid.SampledFrom(reasoningNames).Draw(t, "reasoning"),
			Version: rapid.SampledFrom([]toolcall.Version{toolcall.Version1, toolcall.Version2}).Draw(t, "version")}
		on := true
		c.Request = postprocess.Request{Tools: tools, Choice: rapid.SampledFrom([]postprocess.Choice{postprocess.Auto, postprocess.Required, postprocess.Named}).Draw(t, "choice"),
			Thinking: postprocess.Thinking{On: &on, Mode: "thinking", Effort: "high"}, FillContent: rapid.Bool().Draw(t, "fill")}
		if c.Request.Choice == postprocess.Named {
			c.Request.Function = "f"
		}
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 12).Draw(t, "words"), "")
		var pieces []string
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, min(len(rest), 9)).Draw(t, "piece")
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		whole := rapid.Bool().Draw(t, "whole")
		if one, many := c.Run([]string{text}, whole), c.Run(pieces, whole); !reflect.DeepEqual(one, many) {
			t.Fatalf("%+v, %q:\nwhole %s\ncut   %s", c.Parsers, text, one, many)
		}
	})
}

func FuzzStage(f *testing.F) {
	for _, c := range recordings(f) {
		f.Add(c.Parsers.Tool, c.Parsers.Reasoning, c.Text, uint8(5), false)
	}
	tools := []toolcall.Tool{{Name: "f", Parameters: []byte(`{"properties":{"a":{"type":"integer"},"b":{"$ref":"#/properties/b"},"c":{"anyOf":[{"type":"array","items":{"type":"number"}}]}}}`)}}
	f.Fuzz(func(t *testing.T, tool, think, text string, size uint8, forced bool) {
		c := verify.ParserCase{Parsers: postprocess.Parsers{Tool: tool, Reasoning: think}, Finish: "stop", Text: text}
		on := true
		c.Request = postprocess.Request{Tools: tools, Thinking: postprocess.Thinking{On: &on, Effort: "high"}}
		if forced {
			c.Request.Choice = postprocess.Required
		}
		var pieces []string
		for rest := text; rest != ""; {
			n := min(len(rest), int(size%16)+1)
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		if one, many := c.Run([]string{text}, false), c.Run(pieces, false); !reflect.DeepEqual(one, many) {
			t.Fatalf("%q, %q, %q:\nwhole %s\ncut   %s", tool, think, text, one, many)
		}
	})
}
