package mode_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/internal/manual"
	"signalbox/router/mode"
)

func pool(workers ...router.Worker) *router.Pool {
	p := router.NewPool(router.PoolOptions{Endpoint: "ns/backend/generate", Clock: &manual.Clock{}})
	p.SetWorkers(workers)
	return p
}

func numbered(n int) []router.Worker {
	workers := []router.Worker{}
	for i := range n {
		workers = append(workers, router.Worker{ID: uint64(i + 1)})
	}
	return workers
}

func newRouter(t testing.TB, how mode.Mode, p *router.Pool) *mode.Router {
	t.Helper()
	r, err := mode.New(mode.Options{Mode: how, Pool: p, Random: rand.NewPCG(1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func place(t testing.TB, r router.Router, request *inference.Request) *router.Placement {
	t.Helper()
	placement, err := r.Place(context.Background(), request, router.Attempt{})
	if err != nil {
		t.Fatal(err)
	}
	return placement
}

func TestRoundRobinTakesTurnsAndPeeksDoNot(t *testing.T) {
	r := newRouter(t, mode.RoundRobin, pool(numbered(3)...))
	var got []uint64
	for range 7 {
		place(t, r, &inference.Request{Routing: inference.Routing{QueryOnly: true}})
		got = append(got, place(t, r, &inference.Request{}).WorkerID)
	}
	if !slices.Equal(got, []uint64{1, 2, 3, 1, 2, 3, 1}) {
		t.Errorf("turns went to %v", got)
	}
}

// shares counts where n requests go when each ends before the next comes.
func shares(t *testing.T, r router.Router, n int) map[uint64]int {
	counts := map[uint64]int{}
	for range n {
		placement := place(t, r, &inference.Request{})
		counts[placement.WorkerID]++
		placement.End(nil)
	}
	return counts
}

// Idle workers tie: whoever always took the first of them would send all light traffic to one machine.
func TestTiesAreSpread(t *testing.T) {
	for _, how := range []mode.Mode{mode.Random, mode.PowerOfTwo, mode.LeastLoaded, mode.DeviceAwareWeighted} {
		const n = 8000
		for id, count := range shares(t, newRouter(t, how, pool(numbered(4)...)), n) {
			if math.Abs(float64(count)/n-0.25) > 0.03 {
				t.Errorf("%s gave worker %d %d of %d requests", how, id, count, n)
			}
		}
	}
}

func TestLeastLoadedLevelsOut(t *testing.T) {
	p := pool(numbered(5)...)
	r := newRouter(t, mode.LeastLoaded, p)
	for range 50 {
		place(t, r, &inference.Request{})
	}
	for id := uint64(1); id <= 5; id++ {
		if count := p.Occupancy().Count(id); count != 10 {
			t.Errorf("worker %d has %d requests, want 10", id, count)
		}
	}
}

func TestPowerOfTwoNeverTakesTheMostLoaded(t *testing.T) {
	p := pool(numbered(3)...)
	r := newRouter(t, mode.PowerOfTwo, p)
	two := uint64(2)
	for range 3 {
		place(t, r, &inference.Request{Routing: inference.Routing{BackendInstanceID: &two}})
	}
	for range 100 {
		placement := place(t, r, &inference.Request{})
		if placement.WorkerID == 2 {
			t.Fatal("a pair's more loaded worker was taken")
		}
		placement.End(nil)
	}
}

// The share of workers without accelerator follows (accelerator load × CPU workers) / (ratio × accelerators).
func TestDeviceAwareShare(t *testing.T) {
	p := pool(router.Worker{ID: 1, DeviceType: "cuda"}, router.Worker{ID: 2, DeviceType: "cpu"})
	r := newRouter(t, mode.DeviceAwareWeighted, p)
	for range 90 {
		place(t, r, &inference.Request{})
	}
	if got := p.Occupancy().Count(2); got != 10 {
		t.Errorf("the CPU worker got %d of 90 requests, want one for every eight of the other", got)
	}
	only := newRouter(t, mode.DeviceAwareWeighted, pool(router.Worker{ID: 2, DeviceType: "cpu"}))
	if got := place(t, only, &inference.Request{}).WorkerID; got != 2 {
		t.Errorf("went to %d, but there is only worker 2", got)
	}
}

func failure(t *testing.T, r router.Router, request *inference.Request, attempt router.Attempt) *inference.Error {
	t.Helper()
	placement, err := r.Place(context.Background(), request, attempt)
	typed, ok := err.(*inference.Error)
	if !ok {
		t.Fatalf("want an *inference.Error, got placement %+v and error %v", placement, err)
	}
	return typed
}

// The kind decides the client's HTTP status, the text is what operators grep for.
func TestRefusals(t *testing.T) {
	unknown, one, rank := uint64(99), uint64(1), uint32(7)
	down := pool(numbered(1)...)
	down.MarkDown(1)
	busy := pool(numbered(1)...)
	busy.MarkOverloaded(1)
	overload := inference.Errorf(inference.WorkerOverloaded, "x")
	cases := []struct {
		name    string
		how     mode.Mode
		pool    *router.Pool
		routing inference.Routing
		attempt router.Attempt
		kind    inference.Kind
		text    string
	}{
		{"nobody", mode.RoundRobin, pool(), inference.Routing{}, router.Attempt{}, inference.Unavailable, "No workers available for endpoint ns/backend/generate"},
		{"all down", mode.Random, down, inference.Routing{}, router.Attempt{}, inference.Unavailable, "No workers available"},
		{"all busy", mode.LeastLoaded, busy, inference.Routing{}, router.Attempt{}, inference.ResourceExhausted, "All workers are busy, please retry later"},
		{"pinned busy", mode.RoundRobin, busy, inference.Routing{BackendInstanceID: &one}, router.Attempt{}, inference.WorkerOverloaded, "Selected worker is overloaded, please retry later"},
		{"direct without id", mode.Direct, pool(numbered(1)...), inference.Routing{}, router.Attempt{Phase: router.Decode}, inference.InvalidArgument, "worker ID required for decode request in Direct routing mode"},
		{"unknown id", mode.Direct, pool(numbered(1)...), inference.Routing{BackendInstanceID: &unknown}, router.Attempt{}, inference.InvalidArgument, "99"},
		{"unknown id in turn", mode.RoundRobin, pool(numbered(1)...), inference.Routing{BackendInstanceID: &unknown}, router.Attempt{}, inference.InvalidArgument, "99"},
		{"rank alone", mode.RoundRobin, pool(numbered(1)...), inference.Routing{DPRank: &rank}, router.Attempt{}, inference.InvalidArgument, "dp_rank 7"},
		{"rank of another", mode.RoundRobin, pool(numbered(1)...), inference.Routing{BackendInstanceID: &one, DPRank: &rank}, router.Attempt{}, inference.InvalidArgument, "outside [0, 1)"},
		{"nobody allowed", mode.Random, pool(numbered(2)...), inference.Routing{AllowedWorkerIDs: []uint64{9}}, router.Attempt{}, inference.Unroutable, "no endpoints available to route work"},
		{"taint missing", mode.Random, pool(numbered(2)...), inference.Routing{RequiredTaints: []string{"gpu"}}, router.Attempt{}, inference.Unroutable, "no endpoints available"},
		{"all tried", mode.RoundRobin, pool(numbered(2)...), inference.Routing{}, router.Attempt{Tried: []uint64{1, 2}}, inference.Unavailable, "no untried eligible worker remains after migration"},
		{"all tried, overloaded", mode.RoundRobin, pool(numbered(1)...), inference.Routing{}, router.Attempt{Tried: []uint64{1}, LastError: overload}, inference.ResourceExhausted, "all eligible workers rejected the request as overloaded"},
	}
	for _, c := range cases {
		got := failure(t, newRouter(t, c.how, c.pool), &inference.Request{Routing: c.routing}, c.attempt)
		if got.Kind != c.kind || !strings.Contains(got.Message, c.text) {
			t.Errorf("%s: refused with %s %q, want %s %q", c.name, got.Kind, got.Message, c.kind, c.text)
		}
	}
	closed := newRouter(t, mode.Random, pool(numbered(1)...))
	closed.Close()
	if got := failure(t, closed, &inference.Request{}, router.Attempt{}); got.Kind != inference.Unavailable {
		t.Errorf("a closed router refused with %s", got.Kind)
	}
}

func TestConditionsNarrowTheChoice(t *testing.T) {
	p := pool(router.Worker{ID: 1, Taints: []string{"a"}}, router.Worker{ID: 2, Taints: []string{"a", "b"}},
		router.Worker{ID: 3, Topology: router.Topology{Domains: map[string]string{"zone": "z1"}}})
	r := newRouter(t, mode.RoundRobin, p)
	only := func(want uint64, routing inference.Routing, attempt router.Attempt) {
		t.Helper()
		for range 4 {
			placement, err := r.Place(context.Background(), &inference.Request{Routing: routing}, attempt)
			if err != nil || placement.WorkerID != want {
				t.Fatalf("went to %+v (%v), want worker %d", placement, err, want)
			}
		}
	}
	only(2, inference.Routing{RequiredTaints: []string{"a", "b"}}, router.Attempt{})
	only(3, inference.Routing{RequiredTaints: []string{"dynamo.topology/zone=z1"}}, router.Attempt{})
	only(2, inference.Routing{PreferredTaints: map[string]float32{"b": 0.5, "nobody": 1}}, router.Attempt{})
	only(1, inference.Routing{AllowedWorkerIDs: []uint64{1, 2}}, router.Attempt{Tried: []uint64{2}})
	only(3, inference.Routing{}, router.Attempt{Pin: &router.Pin{WorkerID: 3}})
	only(1, inference.Routing{}, router.Attempt{Prefer: &router.Pin{WorkerID: 1}})
	p.MarkOverloaded(1)
	placement, err := r.Place(context.Background(), &inference.Request{}, router.Attempt{Prefer: &router.Pin{WorkerID: 1}})
	if err != nil || placement.WorkerID == 1 {
		t.Errorf("a preferred worker that is busy was not passed over: %+v %v", placement, err)
	}
}

type adapters []uint64

func (a adapters) Candidates(string) ([]uint64, bool) { return a, true }

func TestAdapterRestriction(t *testing.T) {
	p := pool(numbered(4)...)
	r, err := mode.New(mode.Options{Mode: mode.RoundRobin, Pool: p, Adapters: adapters{2, 4, 9}})
	if err != nil {
		t.Fatal(err)
	}
	request := &inference.Request{Routing: inference.Routing{LoRAName: "sql"}}
	for _, want := range []uint64{2, 4, 2} {
		if got := place(t, r, request).WorkerID; got != want {
			t.Errorf("went to worker %d, want %d", got, want)
		}
	}
	p.SetOverloaded([]uint64{2, 4})
	if got := failure(t, r, request, router.Attempt{}); got.Message != "All eligible LoRA workers are overloaded (lora=sql)" {
		t.Error(got)
	}
	p.SetWorkers(numbered(1))
	if got := failure(t, r, request, router.Attempt{}); got.Message != "No workers available after LoRA filtering (lora=sql)" {
		t.Error(got)
	}
	if _, err := mode.New(mode.Options{Mode: mode.LeastLoaded, Pool: p, Adapters: adapters{}}); err == nil {
		t.Error("least-loaded does not know adapters, yet it started with them")
	}
}

func TestExplainNamesEveryCandidate(t *testing.T) {
	p := pool(numbered(3)...)
	p.MarkOverloaded(3)
	r := newRouter(t, mode.LeastLoaded, p)
	place(t, r, &inference.Request{Routing: inference.Routing{AllowedWorkerIDs: []uint64{1}}})
	placement, err := r.Place(context.Background(), &inference.Request{}, router.Attempt{Explain: true})
	if err != nil {
		t.Fatal(err)
	}
	decision := placement.Decision
	if len(decision.Candidates) != 2 || decision.Candidates[0].Load != 1 || decision.Candidates[1].Load != 0 || decision.Winner != 1 ||
		len(decision.Excluded) != 1 || decision.Excluded[0] != (router.Exclusion{WorkerID: 3, Reason: "overloaded"}) {
		t.Errorf("the decision reads %+v", decision)
	}
}

// Whatever the order of events, what was counted is given back, and only once.
func TestCountersReturnToZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		how := rapid.SampledFrom([]mode.Mode{mode.PowerOfTwo, mode.LeastLoaded, mode.DeviceAwareWeighted}).Draw(t, "mode")
		p := pool(numbered(4)...)
		r, err := mode.New(mode.Options{Mode: how, Pool: p, Random: rand.NewPCG(1, 2)})
		if err != nil {
			t.Fatal(err)
		}
		var open []*router.Placement
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1, 2:
				request := &inference.Request{Routing: inference.Routing{QueryOnly: rapid.Bool().Draw(t, "query")}}
				if placement, err := r.Place(context.Background(), request, router.Attempt{}); err == nil && !placement.QueryOnly {
					open = append(open, placement)
				}
			case 3:
				if len(open) > 0 {
					open[0].End(nil)
					open[0].End(nil)
					open = open[1:]
				}
			case 4:
				p.SetWorkers(numbered(rapid.IntRange(0, 6).Draw(t, "workers")))
			}
			total := 0
			for id := uint64(1); id <= 6; id++ {
				total += p.Occupancy().Count(id)
			}
			if total != len(open) {
				t.Fatalf("%d requests in flight are counted as %d", len(open), total)
			}
		}
	})
}

func TestConcurrentChoicesSeeEachOther(t *testing.T) {
	p := pool(numbered(8)...)
	r := newRouter(t, mode.LeastLoaded, p)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				if _, err := r.Place(context.Background(), &inference.Request{}, router.Attempt{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for id := uint64(1); id <= 8; id++ {
		if got := p.Occupancy().Count(id); got != 100 {
			t.Errorf("worker %d has %d of 800 requests, want exactly 100", id, got)
		}
	}
}
