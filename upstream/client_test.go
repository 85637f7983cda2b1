package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/inference"
	"signalbox/internal/fakeengine"
)

// engine starts an imitated engine and describes it as the fleet would.
func engine(t *testing.T, kind fakeengine.Kind, config Config) (*fakeengine.Engine, *Server, *Client) {
	t.Helper()
	e, err := fakeengine.Start(kind, "m", false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	client := NewClient(ClientOptions{})
	t.Cleanup(client.Close)
	config.URL = e.URL()
	about, err := client.describe(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return e, newServer(config, about), client
}

func tokens123(limit uint32) *inference.Request {
	return &inference.Request{ID: "id-1", TokenIDs: []uint32{1, 2, 3}, Stop: inference.StopConditions{MaxTokens: &limit}}
}

// read reads an answer to its end and returns its tokens.
func read(t *testing.T, stream inference.Stream, err error) (ids []uint32, last inference.Output) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for {
		out, err := stream.Next(t.Context())
		if err == io.EOF {
			return ids, last
		}
		if err != nil {
			t.Fatal(err)
		}
		ids, last = append(ids, out.TokenIDs...), *out
	}
}

func TestEnginesAreDescribed(t *testing.T) {
	_, vllm, _ := engine(t, fakeengine.VLLM, Config{})
	want := About{Kind: VLLM, Version: "0.11.0", Model: "m", ContextLength: 4096, BlockSize: 16, Blocks: 1000}
	if diff := cmp.Diff(want, vllm.About); diff != "" {
		t.Error(diff)
	}
	_, sg, _ := engine(t, fakeengine.SGLang, Config{ContextLength: 100, BlockSize: 8})
	want = About{Kind: SGLang, Version: "0.5.4", Model: "m", ContextLength: 100, BlockSize: 8, Blocks: 1000, Slots: 64}
	if diff := cmp.Diff(want, sg.About); diff != "" {
		t.Error(diff)
	}
	if _, err := NewClient(ClientOptions{}).describe(t.Context(), Config{URL: vllm.URL, Model: "other"}); err == nil {
		t.Error("a model that is not listed is taken")
	}
}

func TestEnginesAreAskedWithTokens(t *testing.T) {
	for _, kind := range []fakeengine.Kind{fakeengine.VLLM, fakeengine.SGLang} {
		t.Run(string(kind), func(t *testing.T) {
			e, s, client := engine(t, kind, Config{Ranks: 2})
			e.Answer = []uint32{5, 6}
			temperature, rank, none := float32(0.7), uint32(1), uint32(1)
			r := tokens123(3)
			r.Sampling.Temperature, r.Routing.DPRank, r.Output.Logprobs = &temperature, &rank, &none
			r.Stop.Strings, r.Stop.HiddenTokenIDs, r.EOSTokenIDs = []string{"\n"}, []uint32{9}, []uint32{9}
			r.Sampling.Guided = &inference.GuidedDecoding{JSON: []byte(`{"type":"object"}`)}
			stream, err := client.Send(t.Context(), s, r)
			ids, last := read(t, stream, err)
			if diff := cmp.Diff([]uint32{5, 6, 5}, ids); diff != "" {
				t.Error(diff)
			}
			if last.Finish != inference.FinishLength || last.Usage == nil || last.Usage.PromptTokens != 3 || last.Usage.CompletionTokens != 3 || last.Usage.CachedTokens == nil {
				t.Errorf("the last item is %+v with %+v", last, last.Usage)
			}
			if len(last.Logprobs) != 1 || len(last.TopLogprobs) != 1 || last.TopLogprobs[0][0].TokenID != 5 {
				t.Errorf("log probabilities %v and %v", last.Logprobs, last.TopLogprobs)
			}
			seen := e.Seen()[0]
			text, err := json.Marshal(seen.Body)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"logprobs":1,"max_tokens":3,"model":"m","prompt":[1,2,3],"return_token_ids":true,"return_tokens_as_token_ids":true,"stop":["\n"],"stop_token_ids":[9],"stream":true,"stream_options":{"include_usage":true},"structured_outputs":{"json":{"type":"object"}},"temperature":0.7}`
			header := "1"
			if kind == fakeengine.SGLang {
				want = `{"data_parallel_rank":1,"input_ids":[1,2,3],"logprob_start_len":-1,"return_logprob":true,"rid":"id-1","sampling_params":{"max_new_tokens":3,"temperature":0.7,"stop":["\n"],"stop_token_ids":[9],"json_schema":"{\"type\":\"object\"}"},"stream":true,"top_logprobs_num":1}`
				header = ""
			}
			if string(text) != want {
				t.Errorf("it was asked\n%s\nwant\n%s", text, want)
			}
			if got := seen.Header.Get("X-Data-Parallel-Rank"); got != header || seen.Header.Get("X-Request-Id") != "id-1" || seen.Header["Idempotency-Key"] != nil {
				t.Errorf("headers %v", seen.Header)
			}
		})
	}
}

func TestALimitIsAlwaysTold(t *testing.T) {
	e, s, client := engine(t, fakeengine.VLLM, Config{ContextLength: 20})
	stream, err := client.Send(t.Context(), s, &inference.Request{TokenIDs: []uint32{1, 2, 3}})
	if ids, _ := read(t, stream, err); len(ids) != 17 {
		t.Errorf("%d tokens, want the 17 that are left of the context: the engine's own default is 16", len(ids))
	}
	if got := string(e.Seen()[0].Body["max_tokens"]); got != "17" {
		t.Errorf("max_tokens %s", got)
	}
}

func TestWhatNoServerCanDoIsRefused(t *testing.T) {
	_, s, client := engine(t, fakeengine.SGLang, Config{})
	for name, change := range map[string]func(*inference.Request){
		"salt":     func(r *inference.Request) { r.Routing.CacheSalt = "tenant" },
		"media":    func(r *inference.Request) { r.MultiModal = map[string][]inference.Media{"image_url": {{URL: "x"}}} },
		"beams":    func(r *inference.Request) { r.Sampling.UseBeamSearch = number(true) },
		"prefill":  func(r *inference.Request) { r.PrefillResult = &inference.PrefillResult{} },
		"adapters": func(r *inference.Request) { r.Routing.LoRAName = "x" },
	} {
		r := tokens123(1)
		change(r)
		if _, err := client.Send(t.Context(), s, r); inference.KindOf(err) != inference.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// held starts a stream that waits after its first token.
func held(t *testing.T, idle time.Duration) (e *fakeengine.Engine, s *Server, stream inference.Stream, cancel func(), release func()) {
	t.Helper()
	e, s, client := engine(t, fakeengine.VLLM, Config{})
	client.options.IdleTimeout, client.options.Grace = idle, time.Millisecond
	release = e.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.Send(ctx, s, tokens123(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close(); release(); cancel() })
	if _, err := stream.Next(ctx); err != nil {
		t.Fatal(err)
	}
	return e, s, stream, cancel, release
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-ticker.C {
		if condition() {
			return
		}
	}
	t.Fatal("it did not happen: " + what)
}

func TestAClientThatGoesStopsTheServer(t *testing.T) {
	e, _, stream, cancel, _ := held(t, 0)
	cancel()
	if _, err := stream.Next(t.Context()); inference.KindOf(err) != inference.Cancelled {
		t.Errorf("the stream ended with %v", err)
	}
	eventually(t, "the server sees the client go", func() bool { return e.Left() == 1 })

	e, _, stream, _, _ = held(t, 0)
	_ = stream.Close()
	eventually(t, "the server sees the stream closed", func() bool { return e.Left() == 1 })
}

func TestAServerThatGoesEndsItsStreams(t *testing.T) {
	_, s, stream, _, _ := held(t, 0)
	s.leave()
	if _, err := stream.Next(t.Context()); inference.KindOf(err) != inference.Disconnected {
		t.Errorf("the stream ended with %v; want one that moves on", err)
	}
}

func TestAServerThatLeavesMayFinish(t *testing.T) {
	reader, writer := io.Pipe()
	s := testStream(completions{vllm: true}, reader)
	s.client.options.Grace = 200 * time.Millisecond
	t.Cleanup(func() { _ = s.Close(); s.client.Close() })
	s.server.leave()
	for begun := time.Now(); time.Since(begun) < 3*s.client.options.Grace; {
		go func() { // ends when it is read
			_, _ = io.WriteString(writer, "data: {\"choices\":[{\"index\":0,\"token_ids\":[5]}]}\n\n")
		}()
		if out, err := s.Next(t.Context()); err != nil || len(out.TokenIDs) != 1 || s.context.Err() != nil {
			t.Fatalf("a server that has left and goes on: %v, %v", err, context.Cause(s.context))
		}
	}
	<-s.context.Done() // now nothing comes any more
	if inference.KindOf(context.Cause(s.context)) != inference.Disconnected {
		t.Errorf("it ended for %v", context.Cause(s.context))
	}
}

func TestASilentServerIsGivenUp(t *testing.T) {
	_, _, stream, _, _ := held(t, 20*time.Millisecond)
	if _, err := stream.Next(t.Context()); inference.KindOf(err) != inference.ResponseTimeout {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestASlowClientIsNotTheServersSilence(t *testing.T) {
	e, s, client := engine(t, fakeengine.VLLM, Config{})
	e.Answer = []uint32{5}
	client.options.IdleTimeout = 50 * time.Millisecond
	stream, err := client.Send(t.Context(), s, tokens123(3))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * client.options.IdleTimeout) // the client's own time
	if ids, _ := read(t, stream, nil); len(ids) != 2 {
		t.Errorf("%v came after it, want two tokens", ids)
	}
}

func TestAStreamOutlivesACallersTime(t *testing.T) {
	_, _, stream, _, release := held(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := stream.Next(ctx); inference.KindOf(err) != inference.ResponseTimeout {
		t.Fatalf("the call ended with %v", err)
	}
	if stream.Buffered() {
		t.Error("something is said to be there")
	}
	release()
	if ids, last := read(t, stream, nil); len(ids) != 2 || last.Finish != inference.FinishLength {
		t.Errorf("%v and %v came after it", ids, last.Finish)
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"token_ids\":[1],\"finish_reason\":\"length\"}]}\n\n")
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n")
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := NewClient(ClientOptions{})
	defer client.Close()
	s := newServer(Config{URL: server.URL}, About{Kind: VLLM, Model: "m"})
	for range 5 {
		stream, err := client.Send(t.Context(), s, tokens123(1))
		if err != nil {
			t.Fatal(err)
		}
		out, err := stream.Next(t.Context())
		if err != nil || out.Usage == nil || out.Finish != inference.FinishLength {
			t.Fatalf("%+v, %v", out, err)
		}
		_ = stream.Close() // whoever has the last word goes at once
		client.wait.Wait()
	}
	if count := connections.Load(); count != 1 {
		t.Errorf("%d connections for five requests, one after the other", count)
	}
}

func TestNobodyListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	client := NewClient(ClientOptions{})
	defer client.Close()
	_, err = client.Send(t.Context(), newServer(Config{URL: "http://" + address}, About{}), tokens123(1))
	var failure *inference.Error
	if !errors.As(err, &failure) || failure.Kind != inference.CannotConnect || !failure.Kind.Migratable() {
		t.Errorf("%v; want a failure that is tried elsewhere", err)
	}
}

func TestBodiesGoToTheirRoutes(t *testing.T) {
	e, s, client := engine(t, fakeengine.VLLM, Config{})
	s.About.Model = "theirs"
	stream, err := client.Forward(t.Context(), s, "id", []byte(`{"model":"ours","messages":[{"role":"user","content":"x"}],"nvext":{},"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	bodies := 0
	for {
		out, err := stream.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil || !json.Valid(out.Body) {
			t.Fatalf("%s, %v", out.Body, err)
		}
		bodies++
	}
	_ = stream.Close()
	seen := e.Seen()[0]
	if bodies != 17 || seen.Path != "/v1/chat/completions" || string(seen.Body["model"]) != `"theirs"` || seen.Body["nvext"] != nil {
		t.Errorf("%d bodies; %s was asked %s", bodies, seen.Path, seen.Body)
	}
	if _, err := client.Forward(t.Context(), s, "id", []byte(`{"model":"ours"}`)); inference.KindOf(err) != inference.InvalidArgument {
		t.Errorf("a body that asks for nothing: %v", err)
	}
	e.Refuse(1, 400, `{"error":{"message":"no"}}`)
	if _, err := client.Forward(t.Context(), s, "id", []byte(`{"prompt":"x"}`)); inference.KindOf(err) != inference.InvalidArgument {
		t.Errorf("a refusal: %v", err)
	}
}

func TestTheKeyIsSent(t *testing.T) {
	t.Setenv("A_KEY_FOR_THE_TEST", "secret")
	e, s, client := engine(t, fakeengine.VLLM, Config{KeyEnv: "A_KEY_FOR_THE_TEST"})
	stream, err := client.Send(t.Context(), s, tokens123(1))
	read(t, stream, err)
	if got := e.Seen()[0].Header.Get("Authorization"); got != "Bearer secret" {
		t.Errorf("Authorization: %q", got)
	}
}
