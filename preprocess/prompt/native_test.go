package prompt

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// native returns the formatter of a model whose config.json says of which type it is.
func native(t *testing.T, modelType string) *Formatter {
	t.Helper()
	f, err := Load(Files{Config: typeConfig(t, modelType), Name: "served"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func typeConfig(t *testing.T, modelType string) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(config, []byte(`{"model_type":"`+modelType+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

const (
	nativePlain = `[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]}]`
	nativeCalls = `[{"role":"system","content":"S"},{"role":"user","content":"u1"},{"role":"assistant","content":"c1","reasoning_content":"r1"},{"role":"user","content":"u2"},
		{"role":"assistant","content":"","reasoning_content":"r2","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\": 1.0, \"s\": \"x\", \"l\": [1e-7]}"}},
		{"id":"2","type":"function","function":{"name":"g","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"2","content":"two"},{"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"one"}]}]`
	nativeTools     = `[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"number"}}}}}]`
	nativeDeveloper = `[{"role":"developer","content":"D"},{"role":"user","content":"u"},{"role":"assistant","content":"c","reasoning_content":"r"}]`
	off, low        = `{"thinking":false}`, `{"reasoning_effort":"low"}`
)

// What the live frontend's encoders make of the same; B, E, U, A and S stand for the special tokens.
func TestDeepSeekPrompts(t *testing.T) {
	short := strings.NewReplacer("<｜begin▁of▁sentence｜>", "<B>", "<｜end▁of▁sentence｜>", "<E>", "<｜User｜>", "<U>", "<｜Assistant｜>", "<A>", "<｜System｜>", "<S>", "｜DSML｜", "*")
	calls := func(space, block string) string {
		return "\n\n<*" + space + block + ">\n<*" + space + "invoke name=\"f\">\n<*" + space + "parameter name=\"a\" string=\"false\">1.0</*" + space + "parameter>\n<*" + space +
			"parameter name=\"s\" string=\"true\">x</*" + space + "parameter>\n<*" + space + "parameter name=\"l\" string=\"false\">[1e-07]</*" + space + "parameter>\n</*" + space +
			"invoke>\n<*" + space + "invoke name=\"g\">\n\n</*" + space + "invoke>\n</*" + space + block + "><E>"
	}
	const results = "\n\n<function_results>\n<result>two</result>\n<result>one</result>\n</function_results>\n\n<think>"
	const answers = "<U><tool_result>one</tool_result>\n\n<tool_result>two</tool_result><A><think>"
	const effort = "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
	for _, c := range []struct{ model, messages, arguments, format, want string }{
		{"deepseek_v32", nativePlain, ``, ``, `<B><U>a<A></think><U>bc<A><think>`},
		{"deepseek_v3_2", nativePlain, off, ``, `<B><U>a<A></think><U>bc<A></think>`},
		{"deepseek_v32", nativeCalls, ``, ``, "<B>S<U>u1<A></think>c1<E><U>u2<A><think>r2</think>" + calls("", "function_calls") + results},
		{"deepseek_v32", nativePlain, off, `{"type":"json_object"}`, "<B>\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{\"type\": \"json_object\"}<U>a<A></think><U>bc<A></think>"},
		{"deepseek_v32", nativeDeveloper, low, ``, "<B><U>\n\n# The user's message is: D<A></think><U>u<A><think>r</think>c<E>"},
		{"deepseek_v4", nativePlain, off, ``, "<B><U>a\n\nbc<A></think>"},
		{"deepseek_v4", nativeCalls, low, ``, "<B>S<U>u1<A></think>c1<E><U>u2<A></think>" + calls("", "tool_calls") + answers},
		{"deepseek_v4", nativeDeveloper, low, ``, "<B><U>u<A><think>r</think>c<E>"},
		{"deepseek_v41", nativePlain, ``, ``, "<B><S>" + effort + "<U>a\n\nb\n\nc<A><think>"},
		{"deepseek_v41", nativePlain, `{"reasoning_effort":"none"}`, ``, "<B><U>a\n\nb\n\nc<A></think>"},
		{"deepseek_v41", nativeCalls, ``, ``, "<B><S>" + effort + "S<U>u1<A></think>c1<E><U>u2<A></think>" + calls(" ", "calls") + answers},
		{"deepseek_v41", nativeDeveloper, `{"reasoning_effort":50}`, ``, "<B><S>" + strings.Replace(effort, "75", "50", 1) + "D<U>u<A><think>r</think>c<E>"},
	} {
		got, err := native(t, c.model).Render(Request{Messages: []byte(c.messages), Arguments: []byte(c.arguments), ResponseFormat: []byte(c.format)})
		if got := short.Replace(got); err != nil || got != c.want {
			t.Errorf("%s, %s: got %q, %v\nwant %q", c.model, c.arguments, got, err, c.want)
		}
	}
}

// The instructions that the models were trained with are long; their sums tell as well whether a letter changed.
func TestDeepSeekInstructions(t *testing.T) {
	for _, c := range []struct{ model, messages, tools, effort, sum string }{
		{"deepseek_v32", nativeCalls, nativeTools, "", "b5ad640256af94bd5cb9217c7f374eba1d5e4e851082feb04c7395648daed0bc"},
		{"deepseek_v4", nativeCalls, nativeTools, "", "ca7597387bffa47b3652efcfb08a4fca4f293c1e57e6e17216c75479aecf153e"},
		{"deepseek_v4", nativePlain, "", "max", "f9b2c554f1da4c49eef89eca59aa8f111be0d5862374925da7362562512774f2"},
		{"deepseek_v41", nativeCalls, nativeTools, "", "49ac3dd3d887c0b476af203b637478e2ae14a24e77be5abc5360c0b7a3acffe2"},
		{"deepseek_v41", nativePlain, "", "max", "89470cd9a06dce2bae13464c65ac1047ad10fee646126a469ce5751411689a75"},
	} {
		got, err := native(t, c.model).Render(Request{Messages: []byte(c.messages), Tools: []byte(c.tools), ReasoningEffort: c.effort})
		if sum := sha256.Sum256([]byte(got)); err != nil || hex.EncodeToString(sum[:]) != c.sum {
			t.Errorf("%s: %v, %d bytes with another sum:\n%s", c.model, err, len(got), got)
		}
	}
}

func TestWhichModelsHaveAnEncoder(t *testing.T) {
	for _, c := range []struct {
		modelType, name string
		want            bool
	}{
		{"deepseek_v4", "anything", true}, {"DeepSeek_V4", "anything", true}, {"deepseek_v32", "my-model", true}, {"deepseek_v32", "DeepSeek-V3.2-Exp", false},
		{"deepseek_v3", "deepseek-v4", false}, {"qwen3", "deepseek-v4", false}, {"", "DeepSeek-V4-Pro", true}, {"", "deepseek_v4", true}, {"", "deepseekv4", true},
		{"", "deepseek-v4.1", true}, {"", "deepseek-v40", false}, {"", "deepseek-v4pro", false}, {"", "my-deepseek-v4", false}, {"", "org/deepseek-v3.2", true},
		{"", "deepseek-v3.2-exp", false}, {"", "deepseek-v3.1", false}, {"", "qwen3", false}, {"", "", false},
	} {
		if got := nativeEncoder(c.modelType, c.name) != nil; got != c.want {
			t.Errorf("type %q, name %q: %v, want %v", c.modelType, c.name, got, c.want)
		}
	}
}

func TestDeepSeekRefusals(t *testing.T) {
	for _, c := range []struct{ model, messages, arguments, words string }{
		{"deepseek_v4", `[{"role":"function","name":"f","content":"x"}]`, ``, "role"},
		{"deepseek_v32", `[{"role":"function","name":"f","content":"x"}]`, ``, "role"},
		{"deepseek_v4", `[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"[1]"}}]}]`, ``, "object"},
		{"deepseek_v41", `[{"role":"user","content":"x"}]`, `{"reasoning_effort":"medium"}`, "reasoning_effort"},
		{"deepseek_v41", `[{"role":"user","content":"x"}]`, `{"drop_thinking":1}`, "drop_thinking"},
		{"deepseek_v41", `[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]`, ``, "input_audio"},
		{"deepseek_v41", `[{"role":"user","content":"<｜deepseek_image｜>"}]`, ``, "image"},
	} {
		_, err := native(t, c.model).Render(Request{Messages: []byte(c.messages), Arguments: []byte(c.arguments)})
		var refusal *Refusal
		if !errors.As(err, &refusal) || !strings.Contains(refusal.Message, c.words) {
			t.Errorf("%s, %s: got %v, want a refusal with %q", c.model, c.messages, err, c.words)
		}
	}
}
