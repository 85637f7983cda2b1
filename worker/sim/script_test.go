package sim

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/inference"
	"signalbox/internal/golden"
)

// scripted starts an engine with the scripts of a file and of a trace; "" for none.
func scripted(t *testing.T, scripts, trace string) *Engine {
	t.Helper()
	config := instant()
	config.Scripts = NewScripts()
	for text, load := range map[string]func(string) error{scripts: config.Scripts.LoadScripts, trace: config.Scripts.LoadReplays} {
		if text == "" {
			continue
		}
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := load(path); err != nil {
			t.Fatal(err)
		}
	}
	e, err := New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func annotated(annotation string) *inference.Request {
	r := request(3, prompt(8, 0)...)
	r.Annotations = []string{"formatted_prompt", annotation}
	return r
}

// play reads all items of a scripted answer and its end.
func play(t *testing.T, e *Engine, name string) (items []inference.Output, end error) {
	t.Helper()
	stream, err := e.Generate(t.Context(), annotated(scriptAnnotation+name))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for {
		item, err := stream.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return items, err
		}
		items = append(items, *item)
	}
}

func TestScriptsArePlayed(t *testing.T) {
	e := scripted(t, `{
		"whole": [{"token_ids":[1,2],"text":"ab","index":1,"log_probs":[-0.5,-1],"top_logprobs":[[{"rank":1,"token_id":1,"token":"a","logprob":-0.5,"bytes":[97,255]}],[]],
			"engine_data":{"k":[1]}},
			{"token_ids":[],"finish_reason":"stop","stop_reason":"END","completion_usage":{"prompt_tokens":8,"completion_tokens":2,"total_tokens":10,
			"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":null},"completion_tokens_details":{"reasoning_tokens":1}}}],
		"token": [{"token_ids":[7],"finish_reason":"eos","stop_reason":7}],
		"error": [{"finish_reason":{"error":"broken"}}], "word": [{"finish_reason":"error: broken"}],
		"value": [{"token_ids":[1]},{"raise":"value"}], "type": [{"raise":"type"}], "runtime": [{"raise":"runtime"}], "cancel": [{"raise":"cancel"}],
		"http": [{"raise":"http","code":429}], "crash": [{"token_ids":[1]},{"raise":"crash"},{"token_ids":[2]}], "nothing": [], "stall": [{"stall_ms":3600000}]}`, "")
	items, err := play(t, e, "whole")
	want := []inference.Output{
		{TokenIDs: []uint32{1, 2}, Text: "ab", HasText: true, Index: 1, Logprobs: []float64{-0.5, -1}, EngineData: []byte(`{"k":[1]}`),
			TopLogprobs: [][]inference.TopToken{{{Rank: 1, TokenID: 1, Token: "a", HasText: true, Logprob: -0.5, Bytes: []byte{97, 255}}}, nil}},
		{TokenIDs: []uint32{}, Finish: inference.FinishStop, StopReason: inference.StopReason{Text: "END"}, Usage: &inference.Usage{PromptTokens: 8,
			CompletionTokens: 2, TotalTokens: 10, CachedTokens: ptr(uint32(4)), CompletionDetails: []byte(`{"reasoning_tokens":1}`)}},
	}
	if diff := cmp.Diff(want, items); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if items, err := play(t, e, "token"); err != nil || items[0].StopReason != (inference.StopReason{TokenID: 7, IsToken: true}) || items[0].Finish != inference.FinishEOS {
		t.Errorf("%+v, %v", items, err)
	}
	for _, name := range []string{"error", "word"} {
		if items, err := play(t, e, name); err != nil || items[0].Finish != inference.FinishError || items[0].FinishMessage != "broken" {
			t.Errorf("%s: %+v, %v", name, items, err)
		}
	}
	for name, want := range map[string]struct {
		kind   inference.Kind
		items  int
		status int
	}{"value": {inference.InvalidArgument, 1, 0}, "type": {inference.InvalidArgument, 0, 0}, "runtime": {inference.Unknown, 0, 0}, "cancel": {inference.Cancelled, 0, 0},
		"http": {inference.Unknown, 0, 429}, "crash": {inference.Disconnected, 1, 0}} {
		items, err := play(t, e, name)
		var failure *inference.Error
		if !errors.As(err, &failure) || failure.Kind != want.kind || failure.Status != want.status || len(items) != want.items {
			t.Errorf("%s: %d items, %v", name, len(items), err)
		}
	}
	if items, err := play(t, e, "nothing"); err != nil || len(items) != 0 {
		t.Errorf("an empty script: %v, %v", items, err)
	}
	if got := generate(t, e, annotated(scriptAnnotation+"unknown")); len(got.tokens) != 3 {
		t.Errorf("a script that is not there: %+v", got)
	}
}

func ptr[T any](v T) *T { return &v }

// TestAStallEndsWithItsReader: goleak would find a script that goes on stalling.
func TestAStallEndsWithItsReader(t *testing.T) {
	for name, leave := range map[string]func(cancel context.CancelFunc, stream inference.Stream){
		"closed":    func(_ context.CancelFunc, stream inference.Stream) { stream.Close() },
		"cancelled": func(cancel context.CancelFunc, _ inference.Stream) { cancel() },
	} {
		e := scripted(t, `{"stall":[{"token_ids":[1]},{"stall_ms":3600000},{"token_ids":[2]}]}`, "")
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := e.Generate(ctx, annotated(scriptAnnotation+"stall"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Next(ctx); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := stream.Next(ctx)
			ended <- err
		}()
		leave(cancel, stream)
		select {
		case err := <-ended:
			if inference.KindOf(err) != inference.Cancelled {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the reader still waits", name)
		}
		cancel()
	}
}

func TestReplaysAnswerWithTheirTokens(t *testing.T) {
	e := scripted(t, "", "{\"request_id\":\"a\",\"output_token_ids\":[5,6,7,8,9]}\n\n{\"request_id\":\"empty\"}\n{\"other\":1}\n")
	got := generate(t, e, annotated(replayAnnotation+"a"))
	if !slices.Equal(got.tokens, []uint32{5, 6, 7, 8, 9}) || got.finish != inference.FinishLength {
		t.Errorf("%+v: all tokens are wanted, whatever max_tokens says", got)
	}
	r := annotated(replayAnnotation + "a")
	r.EOSTokenIDs = []uint32{7}
	if got := generate(t, e, r); !slices.Equal(got.tokens, []uint32{5, 6, 7}) || got.finish != inference.FinishEOS {
		t.Errorf("up to the end token: %+v", got)
	}
	if got := generate(t, e, annotated(replayAnnotation+"empty")); len(got.tokens) != 0 || got.finish != inference.FinishLength {
		t.Errorf("no tokens: %+v", got)
	}
}

// TestFilesThatCannotBeScripts names the file, the place and what would be right.
func TestFilesThatCannotBeScripts(t *testing.T) {
	for text, want := range map[string]string{
		`nonsense`:                           "script file",
		`{"a":[{"raise":"panic"}]}`:          `script "a", item 0: raise "panic": expected value, type`,
		`{"a":[{},{"finish_reason":"bye"}]}`: `script "a", item 1: finish_reason "bye"`,
		`{"a":[{"finish_reason":[]}]}`:       "expected a word or an object",
		`{"a":[{"stop_reason":{}}]}`:         "expected a string or a token id",
		`{"a":[{"token_ids":["x"]}]}`:        "token_ids",
		`{"a":{}}`:                           "script file",
	} {
		path := filepath.Join(t.TempDir(), "scripts.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := NewScripts().LoadScripts(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(path, []byte("{\"request_id\":\"a\",\"output_token_ids\":[1]}\n{\"request_id\":7}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := NewScripts().LoadReplays(path); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
	if err := NewScripts().LoadReplays(path + ".not"); err == nil {
		t.Error("a trace that is not there was read")
	}
	if err := NewScripts().LoadScripts(path + ".not"); err == nil {
		t.Error("a file that is not there was read")
	}
}

// TestRecordedScriptsLoad reads the files of the recorded cases.
func TestRecordedScriptsLoad(t *testing.T) {
	scripts := NewScripts()
	if err := scripts.LoadScripts(filepath.Join(golden.Dir(t, "http-scripted"), "scripts.json")); err != nil {
		t.Error(err)
	}
	if err := scripts.LoadReplays(filepath.Join(golden.Dir(t, "http"), "trace.jsonl")); err != nil {
		t.Error(err)
	}
	if len(scripts.items) < 10 || len(scripts.replays) < 3 {
		t.Errorf("%d scripts and %d replays", len(scripts.items), len(scripts.replays))
	}
}

func FuzzScriptItem(f *testing.F) {
	for _, seed := range []string{`{"token_ids":[1],"finish_reason":"eos"}`, `{"raise":"http","code":500}`, `{"top_logprobs":[[{"bytes":[300]}]],"stop_reason":5}`,
		`{"completion_usage":{"prompt_tokens_details":{}},"finish_reason":{"error":"x"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		item, err := parseScriptItem(raw)
		if err != nil {
			return
		}
		if item.output.Finish > inference.FinishToolCalls {
			t.Fatalf("finish reason %d", item.output.Finish)
		}
	})
}
