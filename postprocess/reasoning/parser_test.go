package reasoning

import (
	"strings"
	"testing"
)

func TestUnknownNamesListTheKnown(t *testing.T) {
	_, err := New("nonesuch", Options{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range append(Names(), `"nonesuch"`) {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q is not in %q", name, err)
		}
	}
	if !Known("Qwen3") || Known("nonesuch") {
		t.Error("Known is wrong")
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		format, text       string
		options            Options
		content, reasoning string
	}{
		{"deepseek_r1", "a</think>b", Options{}, "b", "a"},
		{"deepseek_r1", "a</think>b", Options{Off: true}, "a</think>b", ""},
		{"nemotron_v3", "<think>a</think>b", Options{Off: true}, "a</think>b", ""},
		{"nemotron_v3", "<tool_call><function=f><parameter=a><think>1</think></parameter></function></tool_call>", Options{}, "<tool_call><function=f><parameter=a><think>1</think></parameter></function></tool_call>", ""},
		{"qwen3", "a</think>b", Options{Begun: true}, "b", "a"},
		{"qwen3", "<think>a<tool_call>b", Options{}, "", "a<tool_call>b"},
		{"qwen3", "<think>a<tool_call>b", Options{SecondGeneration: true}, "<tool_call>b", "a"},
		// An answer that must be JSON may come without any reasoning before it.
		{"deepseek_r1", ` {"a": 1}`, Options{JSON: true}, ` {"a": 1}`, ""},
		{"deepseek_r1", `so</think>{"a": 1}`, Options{JSON: true}, `{"a": 1}`, "so"},
		{"mistral", `[{"a": 1}]`, Options{JSON: true}, `[{"a": 1}]`, ""},
		{"mistral", `[THINK]so[/THINK][1]`, Options{JSON: true}, `[1]`, "so"},
		{"mistral", `  `, Options{JSON: true}, ``, "  "},
		{"minimax_m3", "Plain answer.", Options{}, "Plain answer.", ""},
		{"gemma4", "<|channel>tho<channel|>x<|channel>thought\n", Options{}, "x", ""},
		{"gpt_oss", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>c", Options{}, "c", "a\nb"},
		{"gpt_oss", "<|channel|>final<|message|>a<|return|> noise <|start|>assistant<|channel|>final<|message|>b", Options{}, "a\nb", ""},
		{"inkling", "<|content_thinking|>a<|end_message|><|message_model|><|content_text|>b", Options{}, "b", "a"},
		{"muse", " to=self<|message|>a<|eom|><|start|>assistant to=f<|message|>x<|eom|><|start|>assistant to=user<|message|>b<|eot|>", Options{}, "b", "a"},
		{"muse", " to=f<|message|>x<|eom|>", Options{KeepCalls: true}, "<|start|>assistant to=f<|message|>x<|eom|>", ""},
	} {
		content, reasoning, err := Parse(c.format, c.text, c.options)
		if err != nil || content != c.content || reasoning != c.reasoning {
			t.Errorf("%s %q %+v: have content %q, reasoning %q, %v; want %q, %q", c.format, c.text, c.options, content, reasoning, err, c.content, c.reasoning)
		}
	}
}

// Text that waits to be told reasoning from content waits no longer than a limit.
func TestUndecidedTextIsBounded(t *testing.T) {
	for _, format := range []string{"minimax_m3", "kimi_k3", "inkling"} {
		p, _ := New(format, Options{})
		shown := 0
		take := func(piece Piece) { shown += len(piece.Content) }
		word := strings.Repeat("w", 100)
		for range 50 {
			p.Feed(word, take)
		}
		if shown != 5000 {
			t.Errorf("%s: %d of 5000 bytes are shown", format, shown)
		}
	}
}

// A token of plain text passes without any allocation.
func TestPlainTextIsNotCopied(t *testing.T) {
	for _, name := range Names() {
		p, _ := New(name, Options{})
		take := func(Piece) {}
		switch name {
		case "inkling", "minimax_m3", "minimax-m3", "kimi_k3", "kimi-k3": // decide first
			p.Feed(strings.Repeat("x", maxUndecided+1), take)
		case "gpt_oss":
			p.Feed("<|channel|>analysis<|message|>", take)
		}
		p.Feed("The", take)
		if allocs := testing.AllocsPerRun(100, func() { p.Feed(" answer", take) }); allocs > 0 {
			t.Errorf("%s: %v allocations per token", name, allocs)
		}
	}
}
