package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"signalbox/inference"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testStream is a stream whose answer is what the reader gives.
func testStream(d dialect, source io.Reader) *stream {
	server := newServer(Config{URL: "http://test:1"}, About{Model: "m"})
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &stream{client: NewClient(ClientOptions{}), server: server, context: ctx, cancel: cancel, reading: d, expected: 1}
	s.stopWatching = context.AfterFunc(server.gone, s.await)
	_, s.usageFollows = d.(completions)
	s.begin(&http.Response{Body: io.NopCloser(source), Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}})
	return s
}

// answerOf reads a stream to its end.
func answerOf(t *testing.T, s *stream) (outputs []inference.Output, err error) {
	t.Helper()
	for {
		out, err := s.Next(t.Context())
		if err != nil {
			_ = s.Close()
			s.client.Close()
			return outputs, err
		}
		kept := *out
		kept.TokenIDs, kept.Body = append([]uint32(nil), out.TokenIDs...), append([]byte(nil), out.Body...)
		outputs = append(outputs, kept)
	}
}

func number[T any](value T) *T { return &value }

func TestAnswersAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		dialect dialect
		events  []string
		want    []inference.Output
	}{
		"vLLM": {completions{vllm: true, top: 2}, []string{
			`{"id":"c","choices":[{"index":0,"text":"Hel","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":[1,2],"token_ids":[11]}],"usage":null}`,
			`{"id":"c","choices":[{"index":0,"text":"lo","logprobs":{"text_offset":[3],"token_logprobs":[-0.5,null],"tokens":["token_id:12"],"top_logprobs":[{"token_id:12":-0.5,"token_id:98":-3,"token_id:99":-1.25},null]},"finish_reason":"stop","stop_reason":null,"token_ids":[12,2]}]}`,
			`{"id":"c","choices":[],"usage":{"prompt_tokens":4,"total_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}`},
			[]inference.Output{{TokenIDs: []uint32{11}},
				{TokenIDs: []uint32{12, 2}, Finish: inference.FinishEOS, Logprobs: []float64{-0.5, 0},
					TopLogprobs: [][]inference.TopToken{{{Rank: 1, TokenID: 12, Logprob: -0.5}, {Rank: 2, TokenID: 99, Logprob: -1.25}}, nil},
					Usage:       &inference.Usage{PromptTokens: 4, CompletionTokens: 3, TotalTokens: 7, CachedTokens: number(uint32(2))}}}},
		"vLLM, a stop string": {completions{vllm: true}, []string{`{"choices":[{"index":0,"text":"","token_ids":[5],"finish_reason":"stop","stop_reason":"END"}]}`},
			[]inference.Output{{TokenIDs: []uint32{5}, Finish: inference.FinishStop, StopReason: inference.StopReason{Text: "END"}}}},
		"another server of OpenAI's API": {completions{}, []string{
			`{"choices":[{"text":"One \ud83d\ude00","index":0,"finish_reason":null}]}`, `{"choices":[{"text":" two","index":0,"finish_reason":"length"}]}`,
			`{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":5,"total_tokens":9}}`},
			[]inference.Output{{Text: "One 😀", HasText: true, Untold: 1},
				{Text: " two", HasText: true, Untold: 4, Finish: inference.FinishLength, Usage: &inference.Usage{PromptTokens: 4, CompletionTokens: 5, TotalTokens: 9}}}},
		"SGLang, all so far": {sglang{}, []string{
			`{"text":"a","output_ids":[1],"meta_info":{"finish_reason":null,"prompt_tokens":8,"completion_tokens":1,"cached_tokens":4,"output_token_logprobs":[[-1.5,1,null]],"output_top_logprobs":[[[-1.5,1,null],[-2,3,null]]]}}`,
			`{"text":"ab","output_ids":[1,2],"meta_info":{"finish_reason":{"type":"length","length":2},"prompt_tokens":8,"completion_tokens":2,"cached_tokens":4,"output_token_logprobs":[[-1.5,1,null],[-0.5,2,null]],"output_top_logprobs":[[[-1.5,1,null]],null]}}`},
			[]inference.Output{{TokenIDs: []uint32{1}, Logprobs: []float64{-1.5}, TopLogprobs: [][]inference.TopToken{{{Rank: 1, TokenID: 1, Logprob: -1.5}, {Rank: 2, TokenID: 3, Logprob: -2}}}},
				{TokenIDs: []uint32{2}, Logprobs: []float64{-0.5}, TopLogprobs: [][]inference.TopToken{nil}, Finish: inference.FinishLength,
					Usage: &inference.Usage{PromptTokens: 8, CompletionTokens: 2, TotalTokens: 10, CachedTokens: number(uint32(4))}}}},
		"SGLang, all so far, which has grown meanwhile": {sglang{}, []string{
			`{"text":null,"output_ids":[1,2],"meta_info":{"completion_tokens":1}}`, `{"text":null,"output_ids":[1,2],"meta_info":{"completion_tokens":2}}`,
			`{"text":null,"output_ids":[1,2,3,4],"meta_info":{"completion_tokens":4,"finish_reason":{"type":"stop","matched":4}}}`},
			[]inference.Output{{TokenIDs: []uint32{1}}, {TokenIDs: []uint32{2}},
				{TokenIDs: []uint32{3, 4}, Finish: inference.FinishEOS, Usage: &inference.Usage{CompletionTokens: 4, TotalTokens: 4}}}},
		"SGLang, the new ones alone": {sglang{}, []string{
			`{"output_ids":[1,2],"meta_info":{"completion_tokens":2}}`, `{"output_ids":[3],"meta_info":{"completion_tokens":3,"finish_reason":{"type":"stop","matched":"x"}}}`},
			[]inference.Output{{TokenIDs: []uint32{1, 2}},
				{TokenIDs: []uint32{3}, Finish: inference.FinishStop, StopReason: inference.StopReason{Text: "x"}, Usage: &inference.Usage{CompletionTokens: 3, TotalTokens: 3}}}},
		"llama.cpp": {llamacpp{eos: []uint32{9}}, []string{
			`{"index":0,"content":"a","tokens":[1],"stop":false,"tokens_predicted":1,"tokens_evaluated":6}`,
			`{"index":0,"content":"€","tokens":[4],"stop":false,"tokens_predicted":4,"tokens_evaluated":6}`,
			`{"index":0,"content":"","tokens":[9],"stop":false,"tokens_predicted":5,"tokens_evaluated":6}`,
			`{"index":0,"content":"","tokens":[],"stop":true,"tokens_predicted":5,"tokens_evaluated":6,"stop_type":"eos","stopping_word":"","timings":{"cache_n":5,"prompt_n":1}}`},
			[]inference.Output{{TokenIDs: []uint32{1}}, {TokenIDs: []uint32{4}, Untold: 2, Text: "€", HasText: true},
				{TokenIDs: []uint32{9}, Finish: inference.FinishEOS, Usage: &inference.Usage{PromptTokens: 6, CompletionTokens: 5, TotalTokens: 11, CachedTokens: number(uint32(5))}}}},
		"llama.cpp goes on after an end token": {llamacpp{eos: []uint32{9}}, []string{
			`{"content":"","tokens":[9],"stop":false,"tokens_predicted":1}`, `{"content":"b","tokens":[2],"stop":false,"tokens_predicted":2}`,
			`{"content":"","tokens":[],"stop":true,"tokens_predicted":2,"stop_type":"limit"}`},
			[]inference.Output{{TokenIDs: []uint32{9}}, {TokenIDs: []uint32{2}}, {Finish: inference.FinishLength, Usage: &inference.Usage{CompletionTokens: 2, TotalTokens: 2}}}},
		"as it is": {asItIs{}, []string{`{"x":1}`, `{"error":null,"y":2}`}, []inference.Output{{Body: []byte(`{"x":1}`)}, {Body: []byte(`{"error":null,"y":2}`)}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, end := range []string{"\n\ndata: [DONE]\n\n", "\n\n", "\r\n\r\ndata:[DONE]\r\n\r\n", ""} {
				text := ": ping\n\ndata: " + strings.Join(test.events, "\n\nevent: x\ndata:") + end
				for _, source := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
					got, err := answerOf(t, testStream(test.dialect, source))
					if err != io.EOF {
						t.Errorf("it ended with %v", err)
					}
					if diff := cmp.Diff(test.want, got); diff != "" {
						t.Error(diff)
					}
				}
			}
		})
	}
}

func TestFailuresInStreams(t *testing.T) {
	for text, want := range map[string]inference.Kind{
		`data: {"choices":[{"index":0,"text":"a","token_ids":[1]}]}`: inference.StreamIncomplete,
		"": inference.StreamIncomplete,
		`data: {"error":{"message":"EngineCore died","type":"InternalServerError","code":500}}`: inference.EngineShutdown,
		`data: {"error":{"message":"too long","type":"BadRequestError","code":400}}`:            inference.InvalidArgument,
		`data: {"object":"error","message":"too long","code":400}`:                              inference.InvalidArgument,
		`data: {"choices":[{"index":0,"token_ids":[1],"finish_reason":"abort"}]}`:               inference.EngineShutdown,
		`data: {"choices":[{"index":1000000,"token_ids":[1]}]}`:                                 inference.ProtocolViolation,
		`data: {"choices":`: inference.ProtocolViolation,
		`data: nonsense`:    inference.ProtocolViolation,
		`data: {"choices":[{"index":0,"token_ids":[-1]}]}`:                                            inference.ProtocolViolation,
		"data: {\"choices\":[{\"index\":0,\"token_ids\":[1]}]}\n\ndata: [DONE]\n\n":                   inference.StreamIncomplete,
		"data: {\"choices\":[{\"index\":0,\"token_ids\":[1]}]}\n\ndata: {\"error\":{\"code\":503}}\n": inference.EngineShutdown,
	} {
		if _, err := answerOf(t, testStream(completions{vllm: true}, strings.NewReader(text))); inference.KindOf(err) != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	_, err := answerOf(t, testStream(sglang{}, strings.NewReader(`data: {"output_ids":[1],"meta_info":{"completion_tokens":1,"finish_reason":{"type":"abort","message":"too long","status_code":400}}}`)))
	var failure *inference.Error
	if !errors.As(err, &failure) || failure.Kind != inference.InvalidArgument || failure.Public != "too long" {
		t.Errorf("an abort for the client's mistake: %v", err)
	}
	if _, err := answerOf(t, testStream(completions{vllm: true}, iotest.ErrReader(errors.New("reset")))); inference.KindOf(err) != inference.Disconnected {
		t.Errorf("a broken connection: %v", err)
	}
}

func TestRefusalsAreSorted(t *testing.T) {
	s := newServer(Config{URL: "http://test:1"}, About{})
	for _, test := range []struct {
		status int
		body   string
		kind   inference.Kind
		public string
	}{
		{400, `{"error":{"message":"max_tokens is too large","type":"BadRequestError","param":null,"code":400}}`, inference.InvalidArgument, "max_tokens is too large"},
		{400, `{"object":"error","message":"bad","type":"BadRequestError","code":400}`, inference.InvalidArgument, "bad"},
		{422, `{"detail":[{"loc":["body","x"],"msg":"wrong"}]}`, inference.InvalidArgument, `[{"loc":["body","x"],"msg":"wrong"}]`},
		{422, `{"detail":"wrong"}`, inference.InvalidArgument, "wrong"},
		{400, `plain words`, inference.InvalidArgument, "plain words"},
		{400, `<html>`, inference.InvalidArgument, ""},
		{404, `{"error":{"message":"no such model"}}`, inference.CannotConnect, ""},
		{401, ``, inference.Unauthenticated, ""},
		{413, ``, inference.PayloadTooLarge, ""},
		{429, ``, inference.WorkerOverloaded, ""},
		{500, `{"error":"boom"}`, inference.RequestFailed, ""},
		{502, ``, inference.RequestFailed, ""},
		{503, `{"error":{"code":503,"message":"Loading model"}}`, inference.WorkerOverloaded, ""},
		{302, ``, inference.ProtocolViolation, ""},
	} {
		failure := refused(s, test.status, []byte(test.body))
		if failure.Kind != test.kind || failure.Public != test.public || failure.WorkerID != s.ID {
			t.Errorf("%d %s: %v, public %q; want %s, %q", test.status, test.body, failure, failure.Public, test.kind, test.public)
		}
		if moves := failure.Kind.Migratable(); moves != (test.status >= 429 || test.status == 404) {
			t.Errorf("%d: another server is tried: %t", test.status, moves)
		}
	}
	if failure := refused(s, 500, []byte(`{"error":"boom"}`)); failure.Status != 500 || failure.Kind.MarksDown() {
		t.Errorf("a server's own failure: %+v; want status 500 for the client, and no server set aside", failure)
	}
}
