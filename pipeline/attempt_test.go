package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/inference"
	"signalbox/router"
)

// lost is a connection that ended where none of its messages did: no end of a stream, for all that its cause says.
func lost() error {
	return &inference.Error{Kind: inference.Disconnected, Message: "the worker died", Cause: io.EOF}
}

// TestEveryWayOutGivesThePlacementBack walks all ways in which a request can go and checks that each placement is given back
// once, with the right outcome, and that no stream is left open.
func TestEveryWayOutGivesThePlacementBack(t *testing.T) {
	good := func() *script { return &script{items: []*inference.Output{say("ab"), finish(inference.FinishLength)}} }
	for name, test := range map[string]struct {
		scripts []*script
		change  func(*bench, *Job)
		text    string
		err     inference.Kind
		ends    []string
	}{
		"complete":                     {scripts: []*script{good()}, text: "ab", ends: []string{"1 "}},
		"no finish reason":             {scripts: []*script{{items: []*inference.Output{say("ab")}}}, text: "ab", ends: []string{"1 "}},
		"nothing at all":               {scripts: []*script{{}}, ends: []string{"1 "}},
		"refused, another takes it":    {scripts: []*script{{refuse: inference.Errorf(inference.CannotConnect, "x")}, good()}, text: "ab", ends: []string{"1 CannotConnect", "2 "}},
		"overloaded, another takes it": {scripts: []*script{{refuse: inference.Errorf(inference.WorkerOverloaded, "x")}, good()}, text: "ab", ends: []string{"1 WorkerOverloaded", "2 "}},
		"refused by all":               {scripts: []*script{{refuse: inference.Errorf(inference.CannotConnect, "x")}, {refuse: inference.Errorf(inference.ConnectionTimeout, "y")}}, err: inference.ConnectionTimeout, ends: []string{"1 CannotConnect", "2 ConnectionTimeout"}},
		"refused for good":             {scripts: []*script{{refuse: inference.Errorf(inference.InvalidArgument, "x")}, good()}, err: inference.InvalidArgument, ends: []string{"1 InvalidArgument"}},
		"exhausted is no reason to go": {scripts: []*script{{refuse: inference.Errorf(inference.ResourceExhausted, "x")}, good()}, err: inference.ResourceExhausted, ends: []string{"1 ResourceExhausted"}},
		"lost before the first token":  {scripts: []*script{{fail: lost()}, good()}, text: "ab", ends: []string{"1 Disconnected", "2 "}},
		"lost twice, then refused":     {scripts: []*script{{fail: lost()}, {fail: lost()}, {refuse: inference.Errorf(inference.CannotConnect, "x")}, good()}, text: "ab", ends: []string{"1 Disconnected", "2 Disconnected", "3 CannotConnect", "4 "}},
		"lost by all":                  {scripts: []*script{{fail: lost()}, {fail: lost()}}, err: inference.Disconnected, ends: []string{"1 Disconnected", "2 Disconnected"}},
		"lost after a token":           {scripts: []*script{{items: []*inference.Output{say("a")}, fail: lost()}, good()}, text: "a", err: inference.Disconnected, ends: []string{"1 Disconnected"}},
		"failed before the first":      {scripts: []*script{{fail: inference.Errorf(inference.BackendUnknown, "x")}, good()}, err: inference.BackendUnknown, ends: []string{"1 BackendUnknown"}},
		"the engine reports an error":  {scripts: []*script{{items: []*inference.Output{say("a"), {Finish: inference.FinishError, FinishMessage: "x"}}}}, text: "a", err: inference.BackendUnknown, ends: []string{"1 BackendUnknown"}},
		"a choice out of range":        {scripts: []*script{{items: []*inference.Output{{Index: 4000, TokenIDs: ids("a")}}}}, err: inference.ProtocolViolation, ends: []string{"1 Protocol"}},
		"a stop string":                {scripts: []*script{{items: []*inference.Output{say("ab"), say("cd")}, hang: true}}, change: func(_ *bench, j *Job) { j.Request.Stop.Strings = []string{"bc"} }, text: "a", ends: []string{"1 "}},
		"the end token":                {scripts: []*script{{items: []*inference.Output{say("ab"), {TokenIDs: []uint32{256}}}, hang: true}}, text: "ab", ends: []string{"1 "}},
		"pinned and lost": {scripts: []*script{{fail: lost()}, good()}, change: func(_ *bench, j *Job) { j.Request.Routing.BackendInstanceID = ptr(uint64(1)) },
			err: inference.Disconnected, ends: []string{"1 Disconnected"}},
		"pinned and refused": {scripts: []*script{{refuse: inference.Errorf(inference.CannotConnect, "x")}, good()}, change: func(_ *bench, j *Job) { j.Request.Routing.DecodeWorkerID = ptr(uint64(1)) },
			err: inference.CannotConnect, ends: []string{"1 CannotConnect"}},
		"vanished, another takes it": {scripts: []*script{good(), good()}, change: func(b *bench, _ *Job) {
			b.Decode.Target = func(id uint64) (inference.Target, bool) { return inference.Target{WorkerID: id}, id != 1 }
		}, text: "ab", ends: []string{"1 CannotConnect", "2 "}},
		"nobody is there":   {err: inference.Unavailable},
		"a question":        {scripts: []*script{good()}, change: func(_ *bench, j *Job) { j.Request.Routing.QueryOnly = true }},
		"too long a prompt": {scripts: []*script{good()}, change: func(b *bench, _ *Job) { b.Model.ContextLength, b.Model.RejectPromptOverflow = 3, true }, err: inference.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(test.scripts...)
			j := job(nil)
			if test.change != nil {
				test.change(b, j)
			}
			got := b.run(t, j)
			if got.text != test.text || kindOf(got.err) != test.err {
				t.Errorf("text %q, error %v; want %q and %q", got.text, got.err, test.text, test.err)
			}
			b.ledger.settled(t, test.ends...)
			if n := b.workers.streams(); n != 0 {
				t.Errorf("%d streams are left open", n)
			}
		})
	}
}

func kindOf(err error) inference.Kind {
	if err == nil {
		return ""
	}
	return inference.KindOf(err)
}

// TestReportsOnTheWay checks what the router hears of a request that moves after its first token.
func TestReportsOnTheWay(t *testing.T) {
	b := newBench(&script{items: []*inference.Output{say("abc"), say("d")}, fail: lost()}, &script{items: []*inference.Output{say("ef"), finish(inference.FinishLength)}})
	b.MigrationLimit = 1
	if got := b.run(t, job(nil)); got.err != nil || got.text != "abcdef" {
		t.Fatalf("%+v", got)
	}
	want := []end{{worker: 1, kind: inference.Disconnected, reports: "dfpp", tokens: 4}, {worker: 2, reports: "dfp", tokens: 2}}
	if diff := cmp.Diff(want, b.ledger.ends, cmp.AllowUnexported(end{})); diff != "" {
		t.Error(diff)
	}
}

// TestRetriesAreBounded: a request does not visit a whole fleet that refuses it.
func TestRetriesAreBounded(t *testing.T) {
	scripts := make([]*script, 30)
	for i := range scripts {
		scripts[i] = &script{refuse: inference.Errorf(inference.CannotConnect, "x")}
	}
	b := newBench(scripts...)
	if got := b.run(t, job(nil)); inference.KindOf(got.err) != inference.CannotConnect {
		t.Error(got.err)
	}
	if n := len(b.ledger.attempts); n != maxUnstartedRetries+1 {
		t.Errorf("%d workers were tried", n)
	}
	for i, attempt := range b.ledger.attempts {
		if len(attempt.Tried) != i || i > 0 && attempt.LastError == nil {
			t.Errorf("attempt %d: tried %v, last error %v", i, attempt.Tried, attempt.LastError)
		}
	}
}

// TestARankBindsOneTryOnly: the rank that the router chose for one worker says nothing about the next.
func TestARankBindsOneTryOnly(t *testing.T) {
	b := newBench(&script{refuse: inference.Errorf(inference.CannotConnect, "x")}, &script{fail: lost()}, &script{items: []*inference.Output{say("a")}, fail: lost()},
		&script{items: []*inference.Output{finish(inference.FinishLength)}})
	b.MigrationLimit = 1
	b.ledger.rank = func(worker uint64) (uint32, bool) { return uint32(worker) + 6, worker < 4 }
	if got := b.run(t, job(nil)); got.err != nil || got.text != "a" {
		t.Fatalf("%+v", got)
	}
	for i, routing := range b.ledger.requests {
		if routing.DPRank != nil {
			t.Errorf("attempt %d was bound to rank %d", i, *routing.DPRank)
		}
	}
	for i, want := range []*uint32{ptr(uint32(7)), ptr(uint32(8)), ptr(uint32(9)), nil} {
		if diff := cmp.Diff(want, b.workers.requests[i].Routing.DPRank); diff != "" {
			t.Errorf("worker %d was sent (-want +got):\n%s", i+1, diff)
		}
	}
}

// TestAMovedRequestGoesOnWhereItWas checks what the second worker is asked after the first one broke off.
func TestAMovedRequestGoesOnWhereItWas(t *testing.T) {
	b := newBench(&script{items: []*inference.Output{say("one "), say("tw")}, fail: lost()}, &script{items: []*inference.Output{say("o th")}, fail: lost()},
		&script{items: []*inference.Output{say("ree"), finish(inference.FinishStop)}})
	b.MigrationLimit = 2
	got := b.run(t, job(func(r *inference.Request) { r.Stop.MinTokens = ptr(uint32(8)) }))
	if got.err != nil || got.text != "one two three" || got.finish != inference.FinishStop {
		t.Fatalf("%+v", got)
	}
	for i, want := range []struct {
		prompt   string
		max, min uint32
	}{{"prompt", 100, 8}, {"promptone tw", 94, 2}, {"promptone two th", 90, 0}} {
		r := b.workers.requests[i]
		if !slices.Equal(r.TokenIDs, ids(want.prompt)) || *r.Stop.MaxTokens != want.max || *r.Stop.MinTokens != want.min {
			t.Errorf("worker %d: prompt %q, max %d, min %d", i+1, string(bytesOf(r.TokenIDs)), *r.Stop.MaxTokens, *r.Stop.MinTokens)
		}
	}
	if !slices.Equal(b.observer.migrated, []string{"ongoing_request", "ongoing_request"}) {
		t.Errorf("reported: %v", b.observer.migrated)
	}
}

func bytesOf(ids []uint32) (text []byte) {
	for _, id := range ids {
		text = append(text, byte(id))
	}
	return text
}

// TestWhatMayNotMove: beyond the limits, with guided decoding or several choices, a stream that broke stays broken.
func TestWhatMayNotMove(t *testing.T) {
	for name, change := range map[string]func(*bench, *Job){
		"no limit set":      func(b *bench, _ *Job) { b.MigrationLimit = 0 },
		"limit used up":     func(b *bench, _ *Job) { b.MigrationLimit = 1 },
		"too long":          func(b *bench, _ *Job) { b.MigrationMaxLength = 6 },
		"guided":            func(_ *bench, j *Job) { j.Request.Sampling.Guided = &inference.GuidedDecoding{Regex: "x"} },
		"several choices":   func(_ *bench, j *Job) { j.Request.Sampling.N = ptr(uint8(2)) },
		"pinned":            func(_ *bench, j *Job) { j.Request.Routing.BackendInstanceID = ptr(uint64(1)) },
		"application error": func(b *bench, _ *Job) { b.workers.scripts[1].fail = inference.Errorf(inference.BackendUnknown, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			broken := func() *script { return &script{items: []*inference.Output{say("a")}, fail: lost()} }
			b := newBench(broken(), broken(), &script{items: []*inference.Output{say("b")}})
			b.MigrationLimit = 3
			j := job(nil)
			change(b, j)
			got := b.run(t, j)
			if got.err == nil || strings.Contains(got.text, "b") {
				t.Errorf("%+v", got)
			}
			if b.ledger.open != 0 || b.workers.streams() != 0 {
				t.Errorf("%d placements and %d streams are open", b.ledger.open, b.workers.streams())
			}
		})
	}
}

// TestAnAnswerThatWasThere: a stream that breaks after the last token that it may have, or after its finish, has lost nothing.
func TestAnAnswerThatWasThere(t *testing.T) {
	for name, items := range map[string][]*inference.Output{
		"the last token":  {say("ab"), say("c")},
		"the finish":      {say("abc"), finish(inference.FinishLength)},
		"an early finish": {say("a"), finish(inference.FinishEOS)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(&script{items: items, fail: lost()}, &script{items: []*inference.Output{say("x")}})
			b.MigrationLimit = 1
			got := b.run(t, job(func(r *inference.Request) { r.Stop.MaxTokens = ptr(uint32(3)) }))
			if got.err != nil || !strings.HasPrefix("abc", got.text) || got.finish == inference.FinishNone {
				t.Errorf("%+v", got)
			}
			if len(b.workers.requests) != 1 {
				t.Errorf("%d workers were asked", len(b.workers.requests))
			}
			if b.ledger.open != 0 || b.workers.streams() != 0 {
				t.Errorf("%d placements and %d streams are open", b.ledger.open, b.workers.streams())
			}
		})
	}
	// An application error is the answer, whatever came before it.
	b := newBench(&script{items: []*inference.Output{say("abc")}, fail: inference.Errorf(inference.BackendUnknown, "x")})
	if got := b.run(t, job(func(r *inference.Request) { r.Stop.MaxTokens = ptr(uint32(3)) })); kindOf(got.err) != inference.BackendUnknown {
		t.Errorf("%+v", got)
	}
}

// TestAMovedDecodeGetsItsPromptAgain: the second decode worker is handed what a prefill worker computed for it, of the prompt and all
// that was generated.
func TestAMovedDecodeGetsItsPromptAgain(t *testing.T) {
	for name, items := range map[string][]*inference.Output{"after a token": {say("on")}, "before the first": nil} {
		t.Run(name, func(t *testing.T) {
			prefill := &script{items: []*inference.Output{handOver(`"d"`), finish(inference.FinishLength)}}
			b, pool := disaggregated([]*script{{items: items, fail: lost()}, {items: []*inference.Output{say("e"), finish(inference.FinishStop)}}}, []*script{prefill})
			b.MigrationLimit = 1
			got := b.run(t, job(nil))
			sofar := ""
			if items != nil {
				sofar = "on"
			}
			if got.err != nil || got.text != sofar+"e" {
				t.Fatalf("%+v", got)
			}
			var told []string
			for _, r := range b.workers.requests {
				told = append(told, fmt.Sprintf("%s %d %v", bytesOf(r.TokenIDs), *r.Stop.MaxTokens, r.PrefillResult != nil))
			}
			want := []string{"prompt 1 false", "prompt 100 true", "prompt" + sofar + " 1 false", fmt.Sprintf("prompt%s %d true", sofar, 100-len(sofar))}
			if !slices.Equal(told, want) {
				t.Errorf("workers were sent %q, want %q", told, want)
			}
			for i, routing := range pool.requests {
				if routing.PrefillWorkerID != nil {
					t.Errorf("prefill %d was bound to a worker", i)
				}
			}
			b.ledger.settled(t, "1 Disconnected", "2 ")
			pool.settled(t, "3 ", "3 ")
		})
	}
}

// TestNoTokenIsLostOrDoubled numbers the tokens: whatever workers break wherever, the client sees each number once, in order, and as
// many as it asked for.
func TestNoTokenIsLostOrDoubled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		breaks := rapid.SliceOfN(rapid.IntRange(0, 30), 0, 6).Draw(t, "tokens before each break")
		limit := rapid.Uint32Range(1, 90).Draw(t, "max_tokens")
		numbering := &counting{breaks: breaks, size: rapid.IntRange(1, 4).Draw(t, "tokens per item")}
		b := newBench()
		for range len(breaks) + 1 {
			b.ledger.workers = append(b.ledger.workers, uint64(len(b.ledger.workers)+1))
		}
		b.MigrationLimit = len(breaks)
		b.Decode.Sender = numbering
		j := job(func(r *inference.Request) {
			r.TokenIDs = []uint32{400, 401}
			r.Stop.MaxTokens = &limit
		})
		run, err := b.Generate(context.Background(), j)
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		var got []uint32
		for {
			delta, err := run.Next(context.Background())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, delta.TokenIDs...)
		}
		if len(got) != int(limit) {
			t.Fatalf("%d tokens of %d: %v", len(got), limit, got)
		}
		for i, id := range got {
			if id != uint32(i) {
				t.Fatalf("token %d is number %d: %v", i, id, got)
			}
		}
		if usage := run.Usage(); usage.CompletionTokens != int(limit) || usage.PromptTokens != 2 {
			t.Fatalf("usage %+v", usage)
		}
		if b.ledger.open != 0 {
			t.Fatalf("%d placements are open", b.ledger.open)
		}
	})
}

// counting is workers that continue to count where the prompt ends: token 0 after a prompt of letters. Each request but the last is
// broken off after some tokens.
type counting struct {
	breaks []int
	size   int
	asked  int
}

func (c *counting) Send(_ context.Context, _ inference.Target, r *inference.Request) (inference.Stream, error) {
	s := &countingStream{left: int(*r.Stop.MaxTokens), breaks: -1, size: c.size}
	if last := r.TokenIDs[len(r.TokenIDs)-1]; last < 400 {
		s.number = last + 1
	}
	if c.asked < len(c.breaks) {
		s.breaks = c.breaks[c.asked]
	}
	c.asked++
	return s, nil
}

type countingStream struct {
	number uint32
	left   int
	breaks int // tokens until the break; -1 for none
	size   int
	done   bool
}

func (s *countingStream) Next(context.Context) (*inference.Output, error) {
	if s.breaks == 0 {
		return nil, lost()
	}
	if s.done {
		return nil, io.EOF
	}
	count := min(s.size, s.left)
	if s.breaks > 0 {
		count = min(count, s.breaks)
		s.breaks -= count
	}
	output := &inference.Output{}
	for range count {
		output.TokenIDs = append(output.TokenIDs, s.number)
		s.number++
	}
	if s.left -= count; s.left == 0 && count == 0 {
		output.Finish, s.done = inference.FinishLength, true
	}
	return output, nil
}

func (s *countingStream) Buffered() bool { return false }
func (s *countingStream) Close() error   { return nil }

// TestCancellationGivesThePlacementBack cancels, or closes, at every point of a request's way.
func TestCancellationGivesThePlacementBack(t *testing.T) {
	type end uint8
	const (
		byContext end = iota
		byClose
		already // what was prepared does it
	)
	for name, at := range map[string]func(b *bench, cancel context.CancelFunc) end{
		"before anything":    func(_ *bench, cancel context.CancelFunc) end { cancel(); return already },
		"while it is placed": func(b *bench, cancel context.CancelFunc) end { b.ledger.onPlace = cancel; return already },
		"while its worker is looked up": func(b *bench, cancel context.CancelFunc) end {
			onLookup(b, 1, cancel)
			return already
		},
		"in mid-stream": func(*bench, context.CancelFunc) end { return byContext },
		"by Close":      func(*bench, context.CancelFunc) end { return byClose },
		"while it moves to the next": func(b *bench, cancel context.CancelFunc) end {
			breaking(b)
			places := 0
			b.ledger.onPlace = func() {
				if places++; places == 2 {
					cancel()
				}
			}
			return already
		},
		"while the next one's worker is looked up": func(b *bench, cancel context.CancelFunc) end {
			breaking(b)
			onLookup(b, 2, cancel)
			return already
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(&script{items: []*inference.Output{say("a")}, hang: true}, &script{items: []*inference.Output{say("b")}, hang: true})
			b.MigrationLimit = 1
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			how := at(b, cancel)
			run, err := b.Generate(ctx, job(nil))
			if err == nil {
				if _, err = run.Next(ctx); err == nil {
					ended := make(chan error, 1)
					go func() {
						_, err := run.Next(ctx)
						ended <- err
					}()
					switch how {
					case byClose:
						run.Close()
					case byContext:
						cancel()
					}
					err = <-ended
				}
				run.Close()
				run.Close()
			}
			if kind := inference.KindOf(err); kind != inference.Cancelled {
				t.Errorf("ended with %v", err)
			}
			b.ledger.mu.Lock()
			defer b.ledger.mu.Unlock()
			if b.ledger.open != 0 || b.workers.streams() != 0 {
				t.Errorf("%d placements and %d streams are open", b.ledger.open, b.workers.streams())
			}
			for _, e := range b.ledger.ends {
				if e.kind == "" {
					t.Errorf("worker %d heard of a complete answer", e.worker)
				}
			}
		})
	}
}

// breaking makes the first worker break after its item.
func breaking(b *bench) { b.workers.scripts[1].hang, b.workers.scripts[1].fail = false, lost() }

// onLookup calls back when a worker's address is asked for the nth time.
func onLookup(b *bench, nth int, call func()) {
	calls := 0
	b.Decode.Target = func(id uint64) (inference.Target, bool) {
		if calls++; calls == nth {
			call()
		}
		return inference.Target{WorkerID: id}, true
	}
}

// TestTheRoutersRefusalIsPassedOn: nothing is tried against it.
func TestTheRoutersRefusalIsPassedOn(t *testing.T) {
	b := newBench(&script{})
	b.ledger.refuse = &router.QueueLimitError{}
	got := b.run(t, job(nil))
	var limit *router.QueueLimitError
	if !errors.As(got.err, &limit) || len(b.ledger.attempts) != 1 {
		t.Errorf("%v after %d attempts", got.err, len(b.ledger.attempts))
	}
}
