package anthropic

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"signalbox/api/openai"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/pipeline"
)

// echo is a model that answers everything with text, a tool call and an end, and checks that what reaches it makes sense.
type echo struct{ t testing.TB }

func (e echo) Find(name string) openai.Model {
	if name != "m" {
		return nil
	}
	return e
}
func (echo) Any(openai.Kind) bool    { return true }
func (echo) List() []openai.Listing  { return nil }
func (echo) Readiness(string) []byte { return nil }

func (echo) Names(openai.Kind) []string { return nil }
func (echo) Name() string               { return "m" }
func (echo) Ready() bool                { return true }
func (echo) Serves(openai.Kind) bool    { return true }
func (echo) Forward(context.Context, string, []byte) (inference.Stream, error) {
	return nil, inference.Errorf(inference.Unknown, "not here")
}

func (e echo) Generate(_ context.Context, job *pipeline.Job) (openai.Generation, error) {
	chat := job.Prompt.Chat
	for name, text := range map[string][]byte{"messages": chat.Messages, "tools": chat.Tools, "thinking": chat.Thinking} {
		if text != nil && !json.Valid(text) {
			e.t.Errorf("%s are no JSON: %q", name, text)
		}
	}
	return &echoing{}, nil
}

type echoing struct{ said int }

func (g *echoing) Next(context.Context) (*pipeline.Delta, error) {
	g.said++
	switch g.said {
	case 1:
		return &pipeline.Delta{Reasoning: "r", TokenIDs: []uint32{1}}, nil
	case 2:
		return &pipeline.Delta{Content: "a\"\n\u2028", TokenIDs: []uint32{1}}, nil
	case 3:
		return &pipeline.Delta{ToolCalls: []pipeline.ToolCallDelta{{ID: "1", Name: "f", Arguments: `{"a":1}`}}, Finish: inference.FinishToolCalls}, nil
	}
	return nil, io.EOF
}
func (*echoing) Buffered() bool                 { return true }
func (*echoing) Usage() pipeline.Usage          { return pipeline.Usage{PromptTokens: 1, CompletionTokens: 1} }
func (*echoing) Workers() pipeline.WorkerReport { return pipeline.WorkerReport{} }
func (*echoing) Timing() pipeline.Timing        { return pipeline.Timing{} }
func (*echoing) PromptTokenIDs() []uint32       { return nil }
func (*echoing) FormattedPrompt() string        { return "" }
func (*echoing) Close() error                   { return nil }

type unseen struct{ t testing.TB }

func (u unseen) Begin(string, string, bool) openai.RequestObserver { return &ending{t: u.t} }
func (unseen) Refused(*problem.Problem)                            {}

type ending struct {
	t    testing.TB
	ends int
}

func (*ending) Model(string)                 {}
func (*ending) Named(string, string, string) {}
func (*ending) Media(int, int, int)          {}
func (*ending) Dispatched()                  {}
func (*ending) Tokens(int)                   {}
func (e *ending) End(pipeline.Usage, *problem.Problem, bool) {
	if e.ends++; e.ends > 1 {
		e.t.Error("a request ended twice")
	}
}

// FuzzMessages sends any body to both routes. Each gets one answer: the model's, or one clear error that blames the client.
func FuzzMessages(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}]}`,
		`{"model":"m","max_tokens":5,"stream":true,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},{"type":"tool_use","id":"1","name":"f","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"y"}]}],
			"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"enabled","budget_tokens":1},"stop_sequences":["a"],"top_k":5}`,
		`{"model":"other","max_tokens":0,"messages":[]}`, `{"messages":7}`, `nonsense`,
	} {
		f.Add(false, []byte(body))
		f.Add(true, []byte(body))
	}
	f.Fuzz(func(t *testing.T, count bool, body []byte) {
		api := New(echo{t}, unseen{t}, Options{BodyLimitMB: 1, StripPreamble: true})
		handler := api.Messages
		if count {
			handler = api.CountTokens
		}
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body)))
		request.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		handler(recorder, request)
		answer, kind := recorder.Body.String(), recorder.Header().Get("Content-Type")
		switch {
		case recorder.Code == 200 && kind == "text/event-stream":
			if !strings.Contains(answer, "event: message_stop\n") || !strings.HasSuffix(answer, "data: [DONE]\n\n") {
				t.Fatalf("a stream without its end: %q", answer)
			}
			for _, line := range strings.Split(answer, "\n") {
				if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" && !json.Valid([]byte(data)) {
					t.Fatalf("an event that is no JSON: %q", data)
				}
			}
		case recorder.Code == 200:
			if !json.Valid([]byte(answer)) {
				t.Fatalf("no JSON: %q", answer)
			}
		case recorder.Code >= 400 && recorder.Code < 500 || recorder.Code == 501:
			if strings.HasPrefix(kind, "text/plain") { // a body that is no JSON
				if answer == "" || len(answer) > 64<<10 {
					t.Fatalf("%d bytes: %.200q", len(answer), answer)
				}
				return
			}
			var refusal struct {
				Type  string
				Error struct{ Type, Message string }
			}
			if err := json.Unmarshal([]byte(answer), &refusal); err != nil || refusal.Type != "error" || refusal.Error.Type == "" || refusal.Error.Message == "" || len(answer) > 64<<10 {
				t.Fatalf("status %d, %v: %.300q", recorder.Code, err, answer)
			}
		default:
			t.Fatalf("status %d for a client's mistake: %q", recorder.Code, answer)
		}
	})
}
