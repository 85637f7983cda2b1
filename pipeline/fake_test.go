package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"signalbox/inference"
	"signalbox/preprocess/piece"
	"signalbox/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledger is a router that places requests on its workers in order and keeps books of every placement.
type ledger struct {
	workers []uint64
	rank    func(worker uint64) (uint32, bool) // nil: no ranks
	refuse  error                              // instead of a placement
	onPlace func()

	mu       sync.Mutex
	open     int // placements that were not given back
	ends     []end
	attempts []router.Attempt
	requests []inference.Routing // as the router saw them
}

// end is how a placement was given back.
type end struct {
	worker  uint64
	kind    inference.Kind // "" after a complete answer
	reports string         // what was reported before, in order
	tokens  int
}

// Place implements router.Router.
func (l *ledger) Place(ctx context.Context, request *inference.Request, attempt router.Attempt) (*router.Placement, error) {
	if l.onPlace != nil {
		l.onPlace()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = append(l.attempts, attempt)
	l.requests = append(l.requests, request.Routing)
	if l.refuse != nil {
		return nil, l.refuse
	}
	if ctx.Err() != nil {
		return nil, inference.Errorf(inference.Cancelled, "cancelled while it was placed")
	}
	for _, worker := range l.workers {
		if slices.Contains(attempt.Tried, worker) {
			continue
		}
		pin := router.Pin{WorkerID: worker}
		if l.rank != nil {
			pin.Rank, pin.HasRank = l.rank(worker)
		}
		if request.Routing.QueryOnly {
			p := router.NewPlacement(pin, nil)
			p.QueryOnly = true
			return p, nil
		}
		l.open++
		return router.NewPlacement(pin, &booking{ledger: l, end: end{worker: worker}}), nil
	}
	if attempt.LastError != nil {
		return nil, attempt.LastError
	}
	return nil, inference.Errorf(inference.Unavailable, "nobody is left")
}

// Close implements router.Router.
func (l *ledger) Close() {}

// booking is one entry of the books.
type booking struct {
	ledger *ledger
	end    end
	over   bool
}

func (b *booking) report(what string) {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	b.end.reports += what
}
func (b *booking) Dispatched() { b.report("d") }
func (b *booking) FirstToken() { b.report("f") }
func (b *booking) Progress(n int) {
	b.report("p")
	b.end.tokens += n
}

// End implements router.Lease.
func (b *booking) End(outcome error) {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	if b.over {
		panic("a placement was given back twice")
	}
	b.over = true
	if outcome != nil {
		b.end.kind = inference.KindOf(outcome)
	}
	b.ledger.open--
	b.ledger.ends = append(b.ledger.ends, b.end)
}

// settled checks that every placement was given back, and how: a worker and a kind each, in order; "*" is any kind.
func (l *ledger) settled(t testing.TB, want ...string) {
	t.Helper()
	eventually(t, "all placements are given back", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.open == 0
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	same := len(l.ends) == len(want)
	var got []string
	for i, e := range l.ends {
		got = append(got, fmt.Sprintf("%d %s", e.worker, e.kind))
		same = same && (got[i] == want[i] || fmt.Sprintf("%d *", e.worker) == want[i])
	}
	if !same {
		t.Errorf("given back: %q, want %q", got, want)
	}
}

// eventually polls for what another goroutine does.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	late := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// script is what a worker does with a request.
type script struct {
	refuse error
	items  []*inference.Output
	fail   error         // after the items; nil ends the stream cleanly
	hang   bool          // after the items, until the stream is closed or cancelled
	sent   chan struct{} // closed by the first request, when set
}

// workers play all workers of a pool. It is a Sender.
type workers struct {
	scripts map[uint64]*script

	mu       sync.Mutex
	requests []*inference.Request
	open     int
}

// Send implements inference.Sender.
func (w *workers) Send(ctx context.Context, target inference.Target, request *inference.Request) (inference.Stream, error) {
	s := w.scripts[target.WorkerID]
	copied := *request
	copied.TokenIDs = slices.Clone(request.TokenIDs)
	w.mu.Lock()
	w.requests = append(w.requests, &copied)
	w.mu.Unlock()
	if ctx.Err() != nil {
		return nil, &inference.Error{Kind: inference.Cancelled, Cause: ctx.Err()}
	}
	if s.refuse != nil {
		return nil, s.refuse
	}
	w.mu.Lock()
	w.open++
	w.mu.Unlock()
	stream := &scripted{workers: w, script: s, closed: make(chan struct{})}
	context.AfterFunc(ctx, func() { _ = stream.Close() })
	if s.sent != nil {
		close(s.sent)
	}
	return stream, nil
}

// streams is how many streams are open.
func (w *workers) streams() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

type scripted struct {
	workers *workers
	script  *script
	next    int
	once    sync.Once
	closed  chan struct{}
}

// Next implements inference.Stream. The items are copies that the next call spoils, as the contract allows.
func (s *scripted) Next(ctx context.Context) (*inference.Output, error) {
	select {
	case <-s.closed:
		return nil, inference.Errorf(inference.Cancelled, "the stream was closed")
	default:
	}
	if s.next < len(s.script.items) {
		s.next++
		item := *s.script.items[s.next-1]
		return &item, nil
	}
	if s.script.hang {
		select {
		case <-s.closed:
		case <-ctx.Done():
		}
		return nil, inference.Errorf(inference.Cancelled, "the stream was closed")
	}
	if s.script.fail != nil {
		return nil, s.script.fail
	}
	return nil, io.EOF
}

func (s *scripted) Buffered() bool { return s.next < len(s.script.items) }

func (s *scripted) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.workers.mu.Lock()
		s.workers.open--
		s.workers.mu.Unlock()
	})
	return nil
}

// letters is a tokenizer of one token per byte whose decoder never shows half a character.
type letters struct{}

func (letters) Encode(dst []uint32, text string, _ bool) []uint32 {
	for _, b := range []byte(text) {
		dst = append(dst, uint32(b))
	}
	return dst
}
func (l letters) EncodePieces(dst []uint32, prompt piece.Prompt) []uint32 {
	return l.Encode(dst, prompt.Text, false)
}
func (letters) VocabSize() int                          { return 512 }
func (letters) Token(id uint32) string                  { return string([]byte{byte(id)}) }
func (letters) NewDecoder([]uint32, bool) Decoder       { return &wholeCharacters{} }
func ids(text string) []uint32                          { return letters{}.Encode(nil, text, false) }
func say(text string) *inference.Output                 { return &inference.Output{TokenIDs: ids(text)} }
func finish(r inference.FinishReason) *inference.Output { return &inference.Output{Finish: r} }
func ptr[T any](v T) *T                                 { return &v }

// silent is an Observer that only counts what moved.
type silent struct {
	mu       sync.Mutex
	migrated []string
}

func (*silent) Stage(string, string, float64)                      {}
func (*silent) Rendered(float64)                                   {}
func (*silent) Tokenized(float64, int)                             {}
func (*silent) MigrationExceeded(string)                           {}
func (*silent) Placed(string, *router.Placement)                   {}
func (*silent) FirstToken(string, *router.Placement, float64, int) {}
func (*silent) InterToken(string, *router.Placement, float64)      {}
func (s *silent) Migrated(_, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.migrated = append(s.migrated, kind)
}

// bench is a pipeline on fakes.
type bench struct {
	*Pipeline
	ledger   *ledger
	workers  *workers
	observer *silent
}

// newBench makes a pipeline whose workers 1, 2, … do what the scripts say.
func newBench(scripts ...*script) *bench {
	b := &bench{ledger: &ledger{}, workers: &workers{scripts: map[uint64]*script{}}, observer: &silent{}}
	b.add(b.ledger, scripts...)
	b.Pipeline = &Pipeline{Model: Model{Name: "m", Checksum: "c", EOSTokenIDs: []uint32{256}, Tokenizer: letters{}},
		Decode: b.hop(b.ledger), Observer: b.observer, Limiter: NewLimiter(1)}
	return b
}

func (b *bench) add(l *ledger, scripts ...*script) {
	for _, s := range scripts {
		id := uint64(len(b.workers.scripts) + 1)
		b.workers.scripts[id] = s
		l.workers = append(l.workers, id)
	}
}

func (b *bench) hop(l *ledger) Hop {
	return Hop{Router: l, Sender: b.workers, Target: func(id uint64) (inference.Target, bool) { return inference.Target{WorkerID: id}, true }}
}

func job(change func(*inference.Request)) *Job {
	r := &inference.Request{ID: "r", TokenIDs: ids("prompt"), Stop: inference.StopConditions{MaxTokens: ptr(uint32(100))}}
	if change != nil {
		change(r)
	}
	return &Job{Request: r, Received: time.Now(), Endpoint: "completions", Parsing: Parsing{Off: true}}
}

// answer is what a client gets.
type answer struct {
	text   string
	finish inference.FinishReason
	stop   inference.StopReason
	err    error
	deltas []string
}

// run generates and reads everything.
func (b *bench) run(t testing.TB, j *Job) answer {
	t.Helper()
	run, err := b.Generate(t.Context(), j)
	if err != nil {
		return answer{err: err}
	}
	defer run.Close()
	return drainRun(t.Context(), run)
}

func drainRun(ctx context.Context, run *Run) (a answer) {
	for {
		delta, err := run.Next(ctx)
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			a.err = err
			return a
		}
		a.text += delta.Content
		a.deltas = append(a.deltas, delta.Content)
		if delta.Finish != inference.FinishNone {
			a.finish, a.stop = delta.Finish, delta.StopReason
		}
	}
}
