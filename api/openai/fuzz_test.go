package openai

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/pipeline"
)

// echo is a model that answers everything with two deltas, and checks that what reaches it makes sense.
type echo struct{ t testing.TB }

func (e echo) Find(name string) Model {
	if name != "m" {
		return nil
	}
	return e
}
func (echo) Any(Kind) bool           { return true }
func (echo) List() []Listing         { return []Listing{{Name: "m"}} }
func (echo) Readiness(string) []byte { return nil }

func (echo) Names(Kind) []string { return nil }
func (echo) Name() string        { return "m" }
func (echo) Ready() bool         { return true }
func (echo) Serves(Kind) bool    { return true }

func (e echo) Generate(_ context.Context, job *pipeline.Job) (Generation, error) {
	r := job.Request
	for name, text := range map[string][]byte{"extra_args": r.ExtraArgs, "media_io_kwargs": r.MediaIOArgs, "mm_processor_kwargs": r.MMProcessorArgs} {
		if text != nil && !json.Valid(text) {
			e.t.Errorf("%s is no JSON: %q", name, text)
		}
	}
	if chat := job.Prompt.Chat; chat != nil {
		for name, text := range map[string][]byte{"messages": chat.Messages, "tools": chat.Tools, "arguments": chat.TemplateArguments} {
			if text != nil && !json.Valid(text) {
				e.t.Errorf("%s are no JSON: %q", name, text)
			}
		}
	}
	if g := r.Sampling.Guided; g != nil && g.JSON != nil && !json.Valid(g.JSON) {
		e.t.Errorf("the schema is no JSON: %q", g.JSON)
	}
	return &echoing{}, nil
}

func (echo) Forward(context.Context, string, []byte) (inference.Stream, error) {
	return nil, inference.Errorf(inference.InvalidArgument, "no embeddings here")
}

// echoing is its answer.
type echoing struct{ said int }

func (g *echoing) Next(context.Context) (*pipeline.Delta, error) {
	g.said++
	switch g.said {
	case 1:
		return &pipeline.Delta{Content: "a\"\n\u2028", TokenIDs: []uint32{1}, OpensChoice: true}, nil
	case 2:
		return &pipeline.Delta{Finish: inference.FinishStop}, nil
	}
	return nil, io.EOF
}
func (*echoing) Buffered() bool                 { return true }
func (*echoing) Usage() pipeline.Usage          { return pipeline.Usage{PromptTokens: 1, CompletionTokens: 1} }
func (*echoing) Workers() pipeline.WorkerReport { return pipeline.WorkerReport{} }
func (*echoing) Timing() pipeline.Timing        { return pipeline.Timing{} }
func (*echoing) PromptTokenIDs() []uint32       { return []uint32{1} }
func (*echoing) FormattedPrompt() string        { return "p" }
func (*echoing) Close() error                   { return nil }

// unseen is an Observer that only checks that each request ends once.
type unseen struct{ t testing.TB }

func (u unseen) Begin(string, string, bool) RequestObserver { return &ending{t: u.t} }
func (unseen) Refused(*problem.Problem)                     {}

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

// FuzzBodies sends any body to every route. Each gets one answer: the model's, or one clear error that blames the client.
func FuzzBodies(f *testing.F) {
	for route, bodies := range [][]string{
		{`{"model":"m","messages":[{"role":"user","content":"x"}]}`, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}}]}],"stream":true,"stream_options":{"include_usage":true},"n":2,"temperature":0.5}`,
			`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`,
			`{"model":"m","messages":[],"logit_bias":{"1":2},"stop":["a"],"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{}}},"nvext":{"agent_hints":{"osl":1},"annotations":["token_ids"],"extra_fields":["timing"],"router":{"ttft_target":1},"routing_constraints":{"preferred_taints":{"a":1}}}}`},
		{`{"model":"m","prompt":"x"}`, `{"model":"m","prompt":["a","b"],"echo":true,"stream":true,"logprobs":2}`, `{"model":"m","prompt":[[1,2],[3]],"best_of":2,"suffix":"s"}`, `{"model":"m","prompt":[1,2],"guided_choice":["a"]}`},
		{`{"model":"m","input":"x"}`, `{"model":"m","input":[[1,2]],"dimensions":3,"encoding_format":"base64"}`},
		{`{"model":"m","input":"x","stream":true}`, `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"x"}],"instructions":"i","tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"text":{"format":{"type":"json_object"}},"reasoning":{"effort":"low"}}`},
	} {
		for _, body := range bodies {
			f.Add(uint8(route), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		api := New(echo{t}, unseen{t}, Options{BodyLimitMB: 1})
		handlers := []http.HandlerFunc{api.Chat, api.Completions, api.Embed, api.Responses}
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body)))
		request.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		handlers[int(route)%len(handlers)](recorder, request)
		answer := recorder.Body.Bytes()
		switch {
		case recorder.Code == 200 && recorder.Header().Get("Content-Type") == "text/event-stream":
			if !strings.HasSuffix(string(answer), "data: [DONE]\n\n") {
				t.Fatalf("a stream without its end: %q", answer)
			}
			for _, line := range strings.Split(string(answer), "\n") {
				if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" && !json.Valid([]byte(data)) {
					t.Fatalf("an event that is no JSON: %q", data)
				}
			}
		case recorder.Code == 200:
			if !json.Valid(answer) {
				t.Fatalf("no JSON: %q", answer)
			}
		case recorder.Code >= 400 && recorder.Code < 500 || recorder.Code == 501:
			var refusal struct {
				Message, Type string
				Code          int
				Error         *struct{ Message, Type string }
			}
			if err := json.Unmarshal(answer, &refusal); err != nil || refusal.Message == "" || refusal.Code != recorder.Code || refusal.Error == nil || refusal.Error.Message == "" {
				t.Fatalf("status %d, %v: %q", recorder.Code, err, answer)
			}
			if len(answer) > 64<<10 {
				t.Fatalf("an error of %d bytes", len(answer))
			}
		default:
			t.Fatalf("status %d for a client's mistake: %q", recorder.Code, answer)
		}
	})
}
