package router_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/internal/manual"
)

func ids(snapshot *router.Snapshot, indexes []int32) []uint64 {
	list := []uint64{}
	for _, index := range indexes {
		list = append(list, snapshot.Workers[index].ID)
	}
	return list
}

func expectSets(t *testing.T, pool *router.Pool, routable, free []uint64) {
	t.Helper()
	snapshot := pool.Snapshot()
	if got := ids(snapshot, snapshot.Routable()); !slices.Equal(got, routable) {
		t.Errorf("routable workers are %v, want %v", got, routable)
	}
	if got := ids(snapshot, snapshot.Free()); !slices.Equal(got, free) {
		t.Errorf("free workers are %v, want %v", got, free)
	}
}

func newPool(clock router.Clock, workerIDs ...uint64) *router.Pool {
	pool := router.NewPool(router.PoolOptions{Endpoint: "ns/backend/generate", Clock: clock})
	workers := []router.Worker{}
	for _, id := range workerIDs {
		workers = append(workers, router.Worker{ID: id})
	}
	pool.SetWorkers(workers)
	return pool
}

// A worker that crashed for good must not get every n-th request, and one that hiccuped must come back by itself.
func TestMarkedDownWorkersComeBackAtTheEndOfThePeriod(t *testing.T) {
	clock := &manual.Clock{}
	pool := newPool(clock, 3, 1, 2)
	expectSets(t, pool, []uint64{1, 2, 3}, []uint64{1, 2, 3})

	clock.Advance(3 * time.Second)
	pool.MarkDown(2)
	pool.MarkDown(77)
	expectSets(t, pool, []uint64{1, 3}, []uint64{1, 3})
	clock.Advance(1999 * time.Millisecond)
	pool.MarkDown(1)
	expectSets(t, pool, []uint64{3}, []uint64{3})
	clock.Advance(time.Millisecond)
	expectSets(t, pool, []uint64{1, 2, 3}, []uint64{1, 2, 3})

	pool.MarkDown(3)
	pool.SetWorkers([]router.Worker{{ID: 3}, {ID: 4}})
	expectSets(t, pool, []uint64{3, 4}, []uint64{3, 4})
}

func TestMarkingDownCanBeTurnedOff(t *testing.T) {
	pool := router.NewPool(router.PoolOptions{Clock: &manual.Clock{}, Inhibited: -1})
	pool.SetWorkers([]router.Worker{{ID: 1}})
	pool.MarkDown(1)
	expectSets(t, pool, []uint64{1}, []uint64{1})
}

func TestARefusalLastsUntilTheWorkerIsHeardOrItIsOld(t *testing.T) {
	clock := &manual.Clock{}
	pool := newPool(clock, 1, 2, 3)
	pool.MarkOverloaded(2)
	expectSets(t, pool, []uint64{1, 2, 3}, []uint64{1, 3})
	pool.SetWorkers([]router.Worker{{ID: 1}, {ID: 2}, {ID: 3}})
	expectSets(t, pool, []uint64{1, 2, 3}, []uint64{1, 3})
	pool.SetOverloaded([]uint64{3, 99})
	expectSets(t, pool, []uint64{1, 2, 3}, []uint64{1, 2})
	pool.MarkOverloaded(2)
	pool.Healthy(3)
	pool.Healthy(99)
	expectSets(t, pool, []uint64{1, 2, 3}, []uint64{1, 3})
	clock.Advance(router.DefaultInhibited - 1)
	expectSets(t, pool, []uint64{1, 2, 3}, []uint64{1, 3})
	clock.Advance(1)
	expectSets(t, pool, []uint64{1, 2, 3}, []uint64{1, 2, 3})
}

// What is measured and what a worker says are two things: neither takes the other back, and time does not make a worker less busy.
func TestBusyAndRefusingAreKeptApart(t *testing.T) {
	clock := &manual.Clock{}
	pool := newPool(clock, 1, 2, 3)
	pool.SetBusy([]uint64{1})
	pool.MarkOverloaded(1)
	pool.MarkOverloaded(2)
	pool.Healthy(1)
	expectSets(t, pool, []uint64{1, 2, 3}, []uint64{3})
	pool.SetBusy(nil)
	expectSets(t, pool, []uint64{1, 2, 3}, []uint64{1, 3})
	pool.SetBusy([]uint64{3})
	clock.Advance(time.Hour)
	pool.SetWorkers([]router.Worker{{ID: 1}, {ID: 2}, {ID: 3}})
	expectSets(t, pool, []uint64{1, 2, 3}, []uint64{1, 2})
}

// Only failures that say something about the worker may take it out of rotation: a client's mistake must not.
func TestJudge(t *testing.T) {
	for _, kind := range []inference.Kind{inference.InvalidArgument, inference.Cancelled, inference.ResourceExhausted, inference.Unknown, inference.BackendUnknown} {
		pool := newPool(&manual.Clock{}, 1)
		pool.Judge(1, inference.Errorf(kind, "x"))
		expectSets(t, pool, []uint64{1}, []uint64{1})
	}
	for _, kind := range []inference.Kind{inference.CannotConnect, inference.Disconnected, inference.ConnectionTimeout, inference.ResponseTimeout, inference.EngineShutdown, inference.StreamIncomplete} {
		pool := newPool(&manual.Clock{}, 1)
		pool.Judge(1, inference.Errorf(kind, "x"))
		expectSets(t, pool, []uint64{}, []uint64{})
	}
	pool := newPool(&manual.Clock{}, 1)
	pool.Judge(1, inference.Errorf(inference.WorkerOverloaded, "x"))
	expectSets(t, pool, []uint64{1}, []uint64{})
}

func TestWaitForWorkers(t *testing.T) {
	clock := &manual.Clock{}
	pool := newPool(clock)
	done := make(chan error, 1)
	go func() { done <- pool.WaitForWorkers(context.Background(), 2) }()
	clock.AwaitTimer()
	clock.Advance(100 * time.Second)
	pool.SetWorkers([]router.Worker{{ID: 1}})
	clock.AwaitTimer()
	pool.SetWorkers([]router.Worker{{ID: 1}, {ID: 2}})
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	go func() { done <- pool.WaitForWorkers(context.Background(), 3) }()
	clock.AwaitTimer()
	clock.Advance(router.StartupPatience)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "timed out waiting for 3 initial workers for endpoint ns/backend/generate") {
		t.Errorf("waiting for a worker that never comes: %v", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- newPool(clock).WaitForWorkers(ctx, 1) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for one worker ends with its context, got %v", err)
	}
}

type recorder struct{ calls []string }

func (r *recorder) Dispatched()    { r.calls = append(r.calls, "dispatched") }
func (r *recorder) FirstToken()    { r.calls = append(r.calls, "first") }
func (r *recorder) Progress(n int) { r.calls = append(r.calls, strings.Repeat("+", n)) }
func (r *recorder) End(err error) {
	if err != nil {
		r.calls = append(r.calls, "failed")
		return
	}
	r.calls = append(r.calls, "ended")
}

// A load count that is returned twice, or never, skews every later choice.
func TestPlacementReportsOnceAndInOrder(t *testing.T) {
	failure := errors.New("x")
	cases := []struct {
		name string
		do   func(*router.Placement)
		want string
	}{
		{"whole answer", func(p *router.Placement) {
			p.Dispatched()
			p.Dispatched()
			p.FirstToken()
			p.FirstToken()
			p.Progress(2)
			p.Progress(0)
			p.Progress(1)
			p.End(nil)
			p.End(failure)
			p.Progress(1)
			p.FirstToken()
			p.Dispatched()
		}, "dispatched first ++ + ended"},
		{"tokens imply the rest", func(p *router.Placement) { p.Progress(1); p.End(nil) }, "dispatched first + ended"},
		{"an empty answer was dispatched", func(p *router.Placement) { p.End(nil) }, "dispatched ended"},
		{"a failed dispatch was not", func(p *router.Placement) { p.End(failure); p.End(nil) }, "failed"},
		{"first token alone", func(p *router.Placement) { p.FirstToken(); p.Dispatched(); p.End(failure) }, "dispatched first failed"},
	}
	for _, c := range cases {
		lease := &recorder{}
		c.do(router.NewPlacement(router.Pin{WorkerID: 1}, lease))
		if got := strings.Join(lease.calls, " "); got != c.want {
			t.Errorf("%s: the lease heard %q, want %q", c.name, got, c.want)
		}
	}
}

func TestPinnedPicksTheLegsOwnWorker(t *testing.T) {
	worker := func(id uint64) *uint64 { return &id }
	rank := func(r uint32) *uint32 { return &r }
	routing := inference.Routing{BackendInstanceID: worker(1), PrefillWorkerID: worker(2), DPRank: rank(5), PrefillDPRank: rank(1<<32 - 1)}
	if pin, ok := router.Pinned(&routing, router.Prefill); !ok || pin != (router.Pin{WorkerID: 2, Rank: 5, HasRank: true}) {
		t.Errorf("prefill leg goes to %+v", pin)
	}
	routing.PrefillDPRank = rank(6)
	if pin, _ := router.Pinned(&routing, router.Prefill); pin.Rank != 6 {
		t.Errorf("prefill leg goes to rank %d, want its own 6", pin.Rank)
	}
	for _, phase := range []router.Phase{router.Aggregated, router.Decode} {
		if pin, ok := router.Pinned(&routing, phase); !ok || pin.WorkerID != 1 || pin.Rank != 5 {
			t.Errorf("%s leg goes to %+v", phase, pin)
		}
	}
	routing.DecodeWorkerID = worker(3)
	if pin, _ := router.Pinned(&routing, router.Decode); pin.WorkerID != 3 {
		t.Errorf("decode leg goes to %+v", pin)
	}
	if pin, ok := router.Pinned(&inference.Routing{DPRank: rank(4)}, router.Aggregated); ok || !pin.HasRank {
		t.Errorf("a rank alone pins nothing but is reported: %+v %v", pin, ok)
	}
}
