package pipeline

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/inference"
)

// A worker that tells the text of tokens, not their ids.
func TestTokensWithoutIDs(t *testing.T) {
	told := func(text string, count uint32) *inference.Output {
		return &inference.Output{Text: text, HasText: true, Untold: count}
	}
	end := func() *inference.Output {
		return &inference.Output{HasText: true, Untold: 2, Finish: inference.FinishLength}
	}
	b := newBench(&script{items: []*inference.Output{told("ab", 1), told("cd", 3), end()}})
	run, err := b.Generate(t.Context(), job(nil))
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for {
		delta, err := run.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text += delta.Content
	}
	if usage := run.Usage(); text != "abcd" || usage.CompletionTokens != 6 {
		t.Errorf("%q with %d tokens, want abcd with 6", text, usage.CompletionTokens)
	}

	// Whoever goes on begins behind the text.
	b = newBench(&script{items: []*inference.Output{told("ab", 1), say("c")}, fail: inference.Errorf(inference.Disconnected, "broken")}, &script{items: []*inference.Output{say("d"), finish(inference.FinishLength)}})
	b.MigrationLimit = 1
	a := b.run(t, job(func(r *inference.Request) { r.TokenIDs = ids("x") }))
	if len(b.workers.requests) != 2 {
		t.Fatalf("%d requests, %+v", len(b.workers.requests), a)
	}
	if diff := cmp.Diff(ids("xabc"), b.workers.requests[1].TokenIDs); diff != "" {
		t.Error(diff)
	}
}

// late is a stream whose first item comes only when the caller waits long enough.
type late struct{ inference.Stream }

func (l late) Next(ctx context.Context) (*inference.Output, error) {
	if _, limited := ctx.Deadline(); limited {
		<-ctx.Done()
		return nil, &inference.Error{Kind: inference.ResponseTimeout, Cause: ctx.Err()}
	}
	return l.Stream.Next(ctx)
}

type lateSender struct{ inference.Sender }

func (s lateSender) Send(ctx context.Context, target inference.Target, r *inference.Request) (inference.Stream, error) {
	stream, err := s.Sender.Send(ctx, target, r)
	return late{stream}, err
}

func TestARunOutlivesACallersTime(t *testing.T) {
	b := newBench(&script{items: []*inference.Output{say("ab"), finish(inference.FinishLength)}}, &script{})
	b.Decode.Sender = lateSender{b.workers}
	run, err := b.Generate(t.Context(), job(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := run.Next(ctx); inference.KindOf(err) != inference.ResponseTimeout {
		t.Fatalf("the call ended with %v", err)
	}
	delta, err := run.Next(t.Context())
	if err != nil || delta.Content != "ab" || len(b.workers.requests) != 1 {
		t.Errorf("%+v, %v after %d requests; want the first worker's answer", delta, err, len(b.workers.requests))
	}
}
