package passthrough

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/inference"
	"signalbox/pipeline"
	"signalbox/router"
)

func number[T any](value T) *T { return &value }

func TestBodiesSayWhatTheClientSaid(t *testing.T) {
	text := "Where to?"
	for name, test := range map[string]struct {
		job  pipeline.Job
		want string
	}{
		"a conversation": {pipeline.Job{
			Request: &inference.Request{Sampling: inference.SamplingOptions{Temperature: number(float32(0.1)), TopK: number(int32(5)), Seed: number(int64(7)), LogitBias: map[uint32]float32{9: -1, 3: 2}},
				Stop: inference.StopConditions{MaxTokens: number(uint32(8)), Strings: []string{"\n"}, TokenIDs: []uint32{4}, HiddenTokenIDs: []uint32{99}}, Output: inference.OutputOptions{Logprobs: number(uint32(2))}},
			Prompt:  pipeline.Prompt{Chat: &pipeline.Chat{Messages: []byte(`[{"role":"user","content":"x"}]`), Tools: []byte(`[{}]`), TemplateArguments: []byte(`{"enable_thinking":false}`), ReasoningEffort: "low", ResponseFormat: []byte(`{"type":"json_object"}`)}},
			Parsing: pipeline.Parsing{ToolChoice: pipeline.ToolChoiceNamed, ToolName: "f", ParallelToolCalls: number(false)}},
			`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{}],"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,"response_format":{"type":"json_object"},"chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low","stream":true,"stream_options":{"include_usage":true},"temperature":0.1,"max_tokens":8,"top_k":5,"seed":7,"logit_bias":{"3":2,"9":-1},"stop":["\n"],"stop_token_ids":[4],"logprobs":true,"top_logprobs":2}`},
		"a text": {pipeline.Job{Request: &inference.Request{Output: inference.OutputOptions{Logprobs: number(uint32(0))}, Sampling: inference.SamplingOptions{Guided: &inference.GuidedDecoding{Regex: "a+"}}}, Prompt: pipeline.Prompt{Text: &text}},
			`{"model":"m","prompt":"Where to?","stream":true,"stream_options":{"include_usage":true},"logprobs":0,"structured_outputs":{"regex":"a+"}}`},
		"tokens": {pipeline.Job{Request: &inference.Request{TokenIDs: []uint32{1, 2}, Sampling: inference.SamplingOptions{Guided: &inference.GuidedDecoding{JSON: []byte(`{}`)}}}, Prompt: pipeline.Prompt{Chat: &pipeline.Chat{}}},
			`{"model":"m","prompt":[1,2],"stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":{}}}}`},
	} {
		got, err := bodyOf("m", &test.job)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, test.want)
		}
	}
	for name, job := range map[string]*pipeline.Job{"nothing": {Request: &inference.Request{}}, "a raw prompt": {Request: &inference.Request{}, Prompt: pipeline.Prompt{Chat: &pipeline.Chat{UseRawPrompt: true}}}} {
		var wrong *pipeline.PromptError
		if _, err := bodyOf("m", job); !errors.As(err, &wrong) {
			t.Errorf("%s: %v; want the client's mistake", name, err)
		}
	}
}

func TestChunksBecomeDeltas(t *testing.T) {
	var c chunkReader
	for _, text := range []string{
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning":"m"}}]}`,
		`{"choices":[{"index":0,"delta":{}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a\n"},"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":null,"top_logprobs":[{"token":"b","logprob":-1}]}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"c","type":"function","function":{"name":"f","arguments":"{"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"}"}}]},"finish_reason":"tool_calls"}],"usage":null}`,
		`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":2}}}`,
	} {
		if err := c.read([]byte(text)); err != nil {
			t.Fatal(text, err)
		}
	}
	want := []pipeline.Delta{{OpensChoice: true}, {Reasoning: "hm"}, {Reasoning: "m"},
		{Content: "a\n", Logprobs: []pipeline.TokenLogprob{{Token: "a", Bytes: []byte("a"), Logprob: -0.5, Top: []pipeline.TopLogprob{{Token: "b", Bytes: []byte("b"), Logprob: -1}}}}},
		{ToolCalls: []pipeline.ToolCallDelta{{Index: 1, ID: "c", Name: "f", Arguments: "{"}}},
		{ToolCalls: []pipeline.ToolCallDelta{{Index: 1, Arguments: "}"}}, Finish: inference.FinishToolCalls}}
	if diff := cmp.Diff(want, c.deltas); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(pipeline.Usage{PromptTokens: 5, CompletionTokens: 6, CachedTokens: number(3), CompletionDetails: []byte(`{"reasoning_tokens":2}`)}, c.usage); diff != "" || !c.finished() {
		t.Errorf("finished: %t\n%s", c.finished(), diff)
	}

	c = chunkReader{}
	for _, text := range []string{`{"choices":[{"index":1,"text":"x","logprobs":{"tokens":["x"],"token_logprobs":[-1],"top_logprobs":[{"x":-1}]},"finish_reason":"length"}]}`,
		`{"choices":[{"index":0,"text":"y","finish_reason":"stop","stop_reason":"END"}]}`} {
		if err := c.read([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	want = []pipeline.Delta{{Index: 1, OpensChoice: true, Content: "x", Finish: inference.FinishLength, Logprobs: []pipeline.TokenLogprob{{Token: "x", Bytes: []byte("x"), Logprob: -1, Top: []pipeline.TopLogprob{{Token: "x", Bytes: []byte("x"), Logprob: -1}}}}},
		{OpensChoice: true, Content: "y", Finish: inference.FinishStop, StopReason: inference.StopReason{Text: "END"}}}
	if diff := cmp.Diff(want, c.deltas); diff != "" || !c.finished() {
		t.Errorf("finished: %t\n%s", c.finished(), diff)
	}
	for _, texts := range [][]string{ // of a server that counts each choice by itself
		{`{"choices":[{"index":0,"text":"x","finish_reason":"stop"}]}`, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}`,
			`{"choices":[{"index":1,"text":"y","finish_reason":"stop"}]}`, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":4}}`},
		{`{"choices":[{"index":1,"text":"x","finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":3}}`,
			`{"choices":[{"index":0,"text":"y","finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":4}}`},
		{`{"choices":[{"index":1,"text":"x","finish_reason":"stop"}]}`, `{"choices":[{"index":0,"text":"y","finish_reason":"stop"}]}`,
			`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7}}`}, // and of one that counts all
	} {
		c = chunkReader{expected: 2}
		for _, text := range texts {
			if err := c.read([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if c.usage.PromptTokens != 5 || c.usage.CompletionTokens != 7 {
			t.Errorf("usage %+v, want 5 and 3+4 tokens", c.usage)
		}
	}
	for _, text := range []string{`[]`, `nonsense`, `{"choices":[{"index":1000000}]}`} {
		if err := c.read([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

func FuzzChunks(f *testing.F) {
	f.Add([]byte(`{"choices":[{"index":0,"delta":{"content":"a","tool_calls":[{"index":9}]},"logprobs":{"content":[{}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`))
	f.Add([]byte(`{"choices":{"index":-1},"usage":[]}`))
	f.Add([]byte(`{"choices":[{"index":127,"text":5,"logprobs":{"tokens":[1],"token_logprobs":[null,2],"top_logprobs":[[],{}]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c chunkReader
		for range 2 {
			if c.read(text) != nil {
				return
			}
		}
		for _, delta := range c.deltas {
			if delta.Index >= maxChoices {
				t.Fatalf("choice %d", delta.Index)
			}
		}
		if c.usage.PromptTokens < 0 || c.usage.CompletionTokens < 0 {
			t.Fatalf("usage %+v", c.usage)
		}
	})
}

// ledger places requests on workers in order and notes how placements end.
type ledger struct {
	workers []uint64
	ends    []inference.Kind
	asked   []*inference.Request
	query   bool
}

func (l *ledger) Place(_ context.Context, r *inference.Request, how router.Attempt) (*router.Placement, error) {
	l.asked = append(l.asked, r)
	for _, worker := range l.workers {
		if !slices.Contains(how.Tried, worker) {
			placement := router.NewPlacement(router.Pin{WorkerID: worker}, lease{l})
			placement.QueryOnly = l.query
			return placement, nil
		}
	}
	return nil, router.NoneUntried(how.LastError)
}
func (l *ledger) Close() {}

type lease struct{ *ledger }

func (lease) Dispatched()  {}
func (lease) FirstToken()  {}
func (lease) Progress(int) {}
func (l lease) End(outcome error) {
	kind := inference.Kind("")
	if outcome != nil {
		kind = inference.KindOf(outcome)
	}
	l.ends = append(l.ends, kind)
}

// silent is an observer that keeps nothing.
type silent struct{}

func (silent) Stage(string, string, float64)                      {}
func (silent) Rendered(float64)                                   {}
func (silent) Tokenized(float64, int)                             {}
func (silent) Migrated(string, string)                            {}
func (silent) MigrationExceeded(string)                           {}
func (silent) Placed(string, *router.Placement)                   {}
func (silent) FirstToken(string, *router.Placement, float64, int) {}
func (silent) InterToken(string, *router.Placement, float64)      {}

// script is what a worker answers: chunks, then an error.
type script struct {
	chunks []string
	err    error
	closed bool
}

func (s *script) Next(context.Context) (*inference.Output, error) {
	if len(s.chunks) == 0 {
		return nil, s.err
	}
	body := s.chunks[0]
	s.chunks = s.chunks[1:]
	return &inference.Output{Body: []byte(body)}, nil
}
func (s *script) Buffered() bool { return len(s.chunks) > 0 }
func (s *script) Close() error   { s.closed = true; return nil }

// run generates with workers that answer by script, nil for one that cannot be reached.
func run(t *testing.T, l *ledger, scripts map[uint64]*script) (text string, err error) {
	t.Helper()
	line := &Line{Model: "m", Router: l, Observer: silent{}, Send: func(_ context.Context, worker uint64, _ string, _ []byte) (inference.Stream, error) {
		if scripts[worker] == nil {
			return nil, inference.Errorf(inference.CannotConnect, "nobody listens")
		}
		return scripts[worker], nil
	}}
	words := "hello, world"
	r, err := line.Generate(t.Context(), &pipeline.Job{Request: &inference.Request{}, Prompt: pipeline.Prompt{Text: &words}, Received: time.Now()})
	if err != nil {
		return "", err
	}
	defer r.Close()
	var b strings.Builder
	for {
		delta, err := r.Next(t.Context())
		if err == io.EOF {
			return b.String(), nil
		}
		if err != nil {
			return b.String(), err
		}
		b.WriteString(delta.Content)
	}
}

func TestWorkersAreTriedUntilOneBegins(t *testing.T) {
	const one, end = `{"choices":[{"index":0,"text":"one "}]}`, `{"choices":[{"index":0,"text":"two","finish_reason":"stop"}]}`
	broken := inference.Errorf(inference.Disconnected, "broken")
	for name, test := range map[string]struct {
		scripts map[uint64]*script
		want    string
		fails   inference.Kind
		ends    []inference.Kind
	}{
		"the first is not there":       {map[uint64]*script{2: {chunks: []string{one, end}, err: io.EOF}}, "one two", "", []inference.Kind{inference.CannotConnect, ""}},
		"the first breaks off at once": {map[uint64]*script{1: {err: broken}, 2: {chunks: []string{one, end}, err: io.EOF}}, "one two", "", []inference.Kind{inference.Disconnected, ""}},
		"nobody is there":              {nil, "", inference.Unavailable, []inference.Kind{inference.CannotConnect, inference.CannotConnect}},
		"it breaks off in the middle":  {map[uint64]*script{1: {chunks: []string{one}, err: broken}}, "one ", inference.Disconnected, []inference.Kind{inference.Disconnected}},
		"it breaks off at the end":     {map[uint64]*script{1: {chunks: []string{one, end}, err: broken}}, "one two", "", []inference.Kind{""}},
		"it refuses":                   {map[uint64]*script{1: {err: inference.Errorf(inference.InvalidArgument, "no")}}, "", inference.InvalidArgument, []inference.Kind{inference.InvalidArgument}},
		"it answers nonsense":          {map[uint64]*script{1: {chunks: []string{"nonsense"}}}, "", inference.ProtocolViolation, []inference.Kind{inference.ProtocolViolation}},
	} {
		l := &ledger{workers: []uint64{1, 2}}
		text, err := run(t, l, test.scripts)
		if text != test.want || (err != nil || test.fails != "") && inference.KindOf(err) != test.fails {
			t.Errorf("%s: %q, %v; want %q, %q", name, text, err, test.want, test.fails)
		}
		if diff := cmp.Diff(test.ends, l.ends); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for worker, s := range test.scripts {
			if !s.closed {
				t.Errorf("%s: the stream of worker %d was left open", name, worker)
			}
		}
	}
	l := &ledger{workers: []uint64{1}, query: true}
	if text, err := run(t, l, nil); text != "" || err != nil {
		t.Errorf("a question: %q, %v", text, err)
	}
	if got := l.asked[0].TokenIDs; len(got) != 3 || l.asked[0].Model != "m" {
		t.Errorf("12 bytes are placed as %v", got)
	}
}
