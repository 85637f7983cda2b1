package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"signalbox/inference"
	"signalbox/model/card"
)

// speaker is a worker that says the same in pieces and then ends for a reason; FinishNone forgets to.
type speaker struct {
	pieces []string
	finish inference.FinishReason
}

func (s speaker) Send(context.Context, inference.Target, *inference.Request) (inference.Stream, error) {
	return &speech{speaker: s}, nil
}

type speech struct{ speaker }

func (s *speech) Next(context.Context) (*inference.Output, error) {
	if len(s.pieces) > 0 {
		piece := s.pieces[0]
		s.pieces = s.pieces[1:]
		return &inference.Output{Text: piece, HasText: true, TokenIDs: []uint32{7}}, nil
	}
	if s.finish == inference.FinishNone {
		return nil, io.EOF
	}
	finish := s.finish
	s.finish = inference.FinishNone
	return &inference.Output{Finish: finish}, nil
}
func (s *speech) Buffered() bool { return true }
func (s *speech) Close() error   { return nil }

// speaking starts a frontend whose worker says the pieces; the options may be changed.
func speaking(t *testing.T, tool, reasoning string, s speaker, change func(*Options)) *fixture {
	t.Helper()
	runtime := card.DefaultRuntimeConfig()
	if tool != "" {
		runtime.ToolCallParser = &tool
	}
	if reasoning != "" {
		runtime.ReasoningParser = &reasoning
	}
	loader := templateLoader(t, "{% for m in messages %}{{ m.content }}{% endfor %}", &runtime)
	f := start(t, func(o *Options) {
		o.Loader = loader
		o.HTTP.EnableAnthropic = true
		if change != nil {
			change(o)
		}
	})
	f.addWorker(s)
	f.waitReady(1)
	return f
}

const weatherTools = `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}},` +
	`{"type":"function","function":{"name":"g","parameters":{"type":"object"}}}]`

func chatWith(extra string) string {
	return `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":50` + extra + `}`
}

// streamed puts the chunks of a stream together: the text, the reasoning, the calls and the finish reasons in their order.
func streamed(t *testing.T, text string) (content, reasoning string, calls []string, finishes []string) {
	t.Helper()
	var arguments []string
	for _, event := range strings.Split(strings.TrimSpace(text), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content   string
					Reasoning string `json:"reasoning_content"`
					ToolCalls []struct {
						Index    int
						ID       string
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
				Finish *string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		for _, choice := range chunk.Choices {
			content += choice.Delta.Content
			reasoning += choice.Delta.Reasoning
			for _, call := range choice.Delta.ToolCalls {
				if call.Index == len(calls) {
					if call.ID == "" {
						t.Errorf("a call begins without an id: %s", data)
					}
					calls = append(calls, call.Function.Name)
					arguments = append(arguments, "")
				}
				arguments[call.Index] += call.Function.Arguments
			}
			if choice.Finish != nil {
				finishes = append(finishes, *choice.Finish)
			}
		}
	}
	for i := range calls {
		calls[i] += arguments[i]
	}
	return content, reasoning, calls, finishes
}

func TestOneFinishReasonPerChoice(t *testing.T) {
	call := []string{"<think>why", " not</think>", "Sure. <tool", "_call>\n{\"name\": \"f\", \"argum", "ents\": {\"a\": 1}}\n</tool_call>"}
	for _, c := range []struct {
		name   string
		s      speaker
		extra  string
		calls  string
		finish string
	}{
		{"stop", speaker{call, inference.FinishStop}, "", `[f{"a": 1}]`, "tool_calls"},
		{"end token", speaker{call, inference.FinishEOS}, "", `[f{"a": 1}]`, "tool_calls"},
		{"length", speaker{call, inference.FinishLength}, "", `[f{"a": 1}]`, "length"},
		{"the worker forgets to say why", speaker{call, inference.FinishNone}, "", `[f{"a": 1}]`, "tool_calls"},
		{"no call", speaker{[]string{"hello"}, inference.FinishStop}, "", `[]`, "stop"},
		{"cut off", speaker{call[:4], inference.FinishLength}, "", `[]`, "length"},
		{"forbidden", speaker{call, inference.FinishStop}, `,"tool_choice":"none"`, `[]`, "stop"},
		{"demanded", speaker{[]string{` [{"name": "f", "para`, `meters": {"a"`, `: 1}}, {"parameters": {}, "name": "g"}]`}, inference.FinishStop}, `,"tool_choice":"required"`, `[f{"a": 1} g{}]`, "tool_calls"},
		{"named", speaker{[]string{`{"a"`, `: 1}`}, inference.FinishStop}, `,"tool_choice":{"type":"function","function":{"name":"f"}}`, `[f{"a": 1}]`, "tool_calls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := speaking(t, "hermes", "qwen3", c.s, nil)
			status, text := f.post("/v1/chat/completions", chatWith(weatherTools+c.extra+`,"stream":true`))
			_, _, calls, finishes := streamed(t, text)
			if status != 200 || fmt.Sprint(calls) != c.calls || fmt.Sprint(finishes) != "["+c.finish+"]" || !strings.HasSuffix(text, "data: [DONE]\n\n") {
				t.Errorf("streamed: status %d, calls %s, finish %s in\n%s", status, calls, finishes, text)
			}
			status, text = f.post("/v1/chat/completions", chatWith(weatherTools+c.extra))
			var answer struct {
				Choices []struct {
					Message struct {
						ToolCalls []struct {
							Function struct{ Name, Arguments string }
						} `json:"tool_calls"`
					}
					Finish string `json:"finish_reason"`
				}
			}
			if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Choices) != 1 {
				t.Fatalf("status %d, %v: %s", status, err, text)
			}
			calls = nil
			for _, call := range answer.Choices[0].Message.ToolCalls {
				calls = append(calls, call.Function.Name+call.Function.Arguments)
			}
			if fmt.Sprint(calls) != c.calls || answer.Choices[0].Finish != c.finish {
				t.Errorf("whole: calls %s, finish %q in %s", calls, answer.Choices[0].Finish, text)
			}
		})
	}
}

func TestReasoningFieldName(t *testing.T) {
	f := speaking(t, "", "deepseek_r1", speaker{[]string{"I think</think>", "so"}, inference.FinishStop}, func(o *Options) { o.API.ReasoningField = "reasoning" })
	_, text := f.post("/v1/chat/completions", chatWith(""))
	if !strings.Contains(text, `"reasoning":"I think"`) || !strings.Contains(text, `"content":"so"`) {
		t.Errorf("whole: %s", text)
	}
	_, text = f.post("/v1/chat/completions", chatWith(`,"stream":true`))
	if !strings.Contains(text, `"reasoning":"I think"`) || strings.Contains(text, "reasoning_content") {
		t.Errorf("streamed: %s", text)
	}
}

var callID = regexp.MustCompile(`call-[0-9a-f-]{36}`)

func TestDispatchEvents(t *testing.T) {
	events := func(o *Options) { o.API.ToolDispatchEvents, o.API.ReasoningDispatchEvents = true, true }
	dispatched := func(text string) (list []string) {
		for _, event := range strings.Split(text, "\n\n") {
			if strings.HasPrefix(event, "event: ") {
				list = append(list, callID.ReplaceAllString(event, "ID"))
			}
		}
		return list
	}
	f := speaking(t, "hermes", "qwen3", speaker{[]string{"<think>a", "b</think>", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"}, inference.FinishStop}, events)
	_, text := f.post("/v1/chat/completions", chatWith(weatherTools+`,"stream":true`))
	want := []string{"event: reasoning_dispatch\ndata: {\"index\":0,\"reasoning_content\":\"ab\"}",
		"event: tool_call_dispatch\ndata: {\"choice_index\":0,\"tool_call\":{\"index\":0,\"id\":\"ID\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}}"}
	if got := dispatched(text); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events %q; want %q", got, want)
	}
	if strings.Index(text, "tool_call_dispatch") > strings.Index(text, `"delta":{"content":"","tool_calls"`) {
		t.Errorf("the event comes after its chunk: %s", text)
	}

	// A call whose arguments come in pieces is dispatched once, whole.
	f = speaking(t, "hermes", "", speaker{[]string{`[{"name":"f","parameters":{"a"`, `:1}},{"name":"g","parameters":{}}`, `]`}, inference.FinishStop}, events)
	_, text = f.post("/v1/chat/completions", chatWith(weatherTools+`,"tool_choice":"required","stream":true`))
	got := dispatched(text)
	if len(got) != 2 || !strings.Contains(got[0], `"name":"f","arguments":"{\"a\":1}"`) || !strings.Contains(got[1], `"name":"g","arguments":"{}"`) {
		t.Errorf("events %q in %s", got, text)
	}
}

func TestOtherProtocolsShowCallsAndReasoning(t *testing.T) {
	s := speaker{[]string{"<think>hm</think>Sure.", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>"}, inference.FinishStop}
	f := speaking(t, "hermes", "qwen3", s, nil)
	messages := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{"type":"object"}}]%s}`
	for path, cases := range map[string][2][]string{
		"/v1/messages": {
			{`"type":"thinking","thinking":"hm"`, `"type":"tool_use"`, `"name":"f","input":{"a": 1}`, `"text":"Sure."`, `"stop_reason":"tool_use"`},
			{`"thinking_delta","thinking":"hm"`, `"type":"tool_use"`, `"partial_json":"{\"a\": 1}"`, `"text_delta","text":"Sure."`, `"stop_reason":"tool_use"`}},
		"/v1/responses": {
			{`"type":"function_call"`, `"arguments":"{\"a\": 1}"`, `"text":"Sure."`, `"status":"completed"`},
			{`response.function_call_arguments.delta`, `"delta":"{\"a\": 1}"`, `"delta":"Sure."`, `response.completed`}},
	} {
		for i, stream := range []string{"", `,"stream":true`} {
			body := fmt.Sprintf(messages, stream)
			if path == "/v1/responses" {
				body = `{"model":"m","input":"hi","tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]` + stream + `}`
			}
			status, text := f.post(path, body)
			for _, want := range cases[i] {
				if status != 200 || !strings.Contains(strings.ReplaceAll(text, `"input":{"a":1}`, `"input":{"a": 1}`), want) {
					t.Errorf("%s%s: status %d, %s is missing in\n%s", path, stream, status, want, text)
				}
			}
			if strings.Contains(text, "tool_call>") || strings.Contains(text, "think>") {
				t.Errorf("%s%s: markup shows in\n%s", path, stream, text)
			}
		}
	}
}

func TestForcedContent(t *testing.T) {
	f := speaking(t, "", "deepseek_r1", speaker{[]string{"all of it ", "is thought"}, inference.FinishStop}, nil)
	for _, stream := range []string{"", `,"stream":true`} {
		_, text := f.post("/v1/chat/completions", chatWith(`,"chat_template_args":{"force_nonempty_content":true}`+stream))
		if !strings.Contains(text, `"content":"all of it is thought"`) || strings.Contains(text, "reasoning_content") {
			t.Errorf("%s: %s", stream, text)
		}
	}
}
