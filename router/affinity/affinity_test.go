package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/affinity"
	"signalbox/router/internal/manual"
	"signalbox/router/kv"
	"signalbox/router/mode"
)

type bench struct {
	*affinity.Router
	t     testing.TB
	pool  *router.Pool
	clock *manual.Clock
	told  []affinity.Binding
	mutex sync.Mutex
	next  int
}

const ttl = time.Minute

func workers(n int) (list []router.Worker) {
	for i := range n {
		list = append(list, router.Worker{ID: uint64(i + 1), DataParallelSize: 2})
	}
	return list
}

// newBench returns a router in a mode of router/mode, or in mode kv, with sessions.
func newBench(t testing.TB, how string, change func(*affinity.Options)) *bench {
	t.Helper()
	b := &bench{t: t, clock: &manual.Clock{}}
	b.pool = router.NewPool(router.PoolOptions{Endpoint: "n/c/e", Clock: b.clock})
	b.pool.SetWorkers(workers(4))
	var inner router.Router
	var err error
	if how == "kv" {
		inner, err = kv.New(kv.Options{Config: kv.DefaultConfig(), Pool: b.pool, BlockSize: 4, Random: rand.NewPCG(1, 2)})
	} else {
		inner, err = mode.New(mode.Options{Mode: mode.Mode(how), Pool: b.pool})
	}
	if err != nil {
		t.Fatal(err)
	}
	options := affinity.Options{Inner: inner, Pool: b.pool, TTL: ttl, WorkersOnly: how != "kv", Explicit: how == "direct", RouterID: 77,
		Publish: func(told affinity.Binding) {
			b.mutex.Lock()
			defer b.mutex.Unlock()
			b.told = append(b.told, told)
		}}
	if change != nil {
		change(&options)
	}
	if b.Router, err = affinity.New(options); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) request(session string) *inference.Request {
	b.next++
	r := &inference.Request{ID: fmt.Sprint("r", b.next), TokenIDs: []uint32{uint32(b.next), 2, 3, 4, 5, 6, 7, 8}}
	r.Routing.SessionID = session
	return r
}

func (b *bench) place(session string) *router.Placement {
	b.t.Helper()
	placement, err := b.Place(context.Background(), b.request(session), router.Attempt{})
	if err != nil {
		b.t.Fatal(err)
	}
	return placement
}

// serve places a request, has it taken and ends it.
func (b *bench) serve(session string) router.Pin {
	b.t.Helper()
	placement := b.place(session)
	placement.FirstToken()
	placement.End(nil)
	return placement.Pin()
}

func (b *bench) refused(request *inference.Request, kind inference.Kind, text string) {
	b.t.Helper()
	_, err := b.Place(context.Background(), request, router.Attempt{})
	if err == nil || inference.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		b.t.Errorf("got %v, want %v with %q", err, kind, text)
	}
}

func TestASessionStaysWhereItBegan(t *testing.T) {
	for _, how := range []string{"round-robin", "random", "least-loaded", "power-of-two", "kv"} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t, how, nil)
			used := map[router.Pin]bool{}
			for _, session := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
				home := b.serve(session)
				used[home] = true
				for range 4 {
					b.serve("") // others come in between
					if got := b.serve(session); got != home {
						t.Errorf("session %s went to %+v after %+v", session, got, home)
					}
				}
				if home.HasRank != (how == "kv") {
					t.Errorf("bound to %+v", home)
				}
			}
			if len(used) < 2 {
				t.Errorf("all sessions are on %v", used)
			}
		})
	}
}

// The idle timer stands still while requests are in flight and starts again when the last one ends.
func TestIdleSessionsExpire(t *testing.T) {
	b := newBench(t, "round-robin", nil)
	home := b.serve("s")
	b.clock.Advance(ttl - time.Nanosecond)
	running := b.place("s")
	running.Dispatched()
	b.clock.Advance(10 * ttl)
	if got := b.serve("s"); got != home {
		t.Error("a session with a request in flight expired")
	}
	running.End(errors.New("broken off"))
	b.clock.Advance(ttl - time.Nanosecond)
	if got := b.serve("s"); got != home {
		t.Error("the timer did not start again")
	}
	b.clock.Advance(ttl)
	if got := b.serve("s"); got == home {
		t.Error("the session outlived its time")
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }() // ends with ctx
	for b.Sessions() > 0 {
		b.clock.AwaitTimer()
		b.clock.Advance(30 * time.Second)
		runtime.Gosched()
	}
	stop()
	<-done
}

// A session is bound by a worker that took its request, not by one that refused; who comes meanwhile waits for the outcome.
func TestBindingOnFirstSuccess(t *testing.T) {
	b := newBench(t, "round-robin", nil)
	first := b.place("s")
	type result struct {
		placement *router.Placement
		err       error
	}
	follower := make(chan result, 2)
	ctx, cancel := context.WithCancel(context.Background())
	for _, c := range []context.Context{context.Background(), ctx} {
		request := b.request("s")
		go func() { // ends when the session is bound, or with its context
			placement, err := b.Place(c, request, router.Attempt{})
			follower <- result{placement, err}
		}()
	}
	cancel()
	if got := <-follower; inference.KindOf(got.err) != inference.Cancelled {
		t.Errorf("the wait did not end with its client: %+v", got)
	}
	select {
	case got := <-follower:
		t.Fatalf("a request did not wait: %+v", got)
	default:
	}
	first.End(inference.Errorf(inference.CannotConnect, "refused"))
	second := <-follower
	if second.err != nil || second.placement.WorkerID == first.WorkerID {
		t.Fatalf("after the first one failed: %+v", second)
	}
	second.placement.Dispatched()
	if got := b.serve("s"); got.WorkerID != second.placement.WorkerID {
		t.Error("the session is not bound to who took its request")
	}
}

// A cancelled first request binds nothing either, and a cancelled later one changes nothing.
func TestCancellation(t *testing.T) {
	b := newBench(t, "round-robin", nil)
	cancelled := inference.Errorf(inference.Cancelled, "gone")
	b.place("s").End(cancelled)
	if b.Sessions() != 0 {
		t.Error("a cancelled request bound its session")
	}
	home := b.serve("s")
	b.place("s").End(cancelled)
	if got := b.serve("s"); got != home {
		t.Error("a cancelled request unbound its session")
	}
}

// A worker that dies loses its sessions; a request that cannot reach it chooses anew.
func TestABoundWorkerDies(t *testing.T) {
	b := newBench(t, "kv", nil)
	home := b.serve("s")
	// Discovery has noticed.
	b.pool.SetWorkers(slices.DeleteFunc(workers(4), func(w router.Worker) bool { return w.ID == home.WorkerID }))
	second := b.serve("s")
	if second.WorkerID == home.WorkerID || b.serve("s") != second {
		t.Errorf("%+v after %+v", second, home)
	}
	// A connection has failed.
	b.pool.SetWorkers(workers(4))
	dying := b.place("s")
	dying.End(inference.Errorf(inference.CannotConnect, "refused"))
	retry, err := b.Place(context.Background(), b.request("s"), router.Attempt{Tried: []uint64{dying.WorkerID}})
	if err != nil || retry.WorkerID == second.WorkerID {
		t.Fatalf("%+v, %v", retry, err)
	}
	retry.Dispatched()
	// It dies in mid-stream, and the stream goes on elsewhere: so does the session.
	retry.End(inference.Errorf(inference.Disconnected, "broken"))
	moved, err := b.Place(context.Background(), b.request("s"), router.Attempt{Tried: []uint64{retry.WorkerID}})
	if err != nil || moved.WorkerID == retry.WorkerID {
		t.Fatalf("%+v, %v", moved, err)
	}
	moved.Dispatched()
	moved.End(nil)
	if got := b.serve("s"); got != moved.Pin() {
		t.Errorf("%+v, want %+v", got, moved.Pin())
	}
}

// A busy worker keeps its sessions in the hard mode, whose requests are refused meanwhile; the soft mode moves them for good.
func TestABoundWorkerIsOverloaded(t *testing.T) {
	for _, how := range []string{"kv", "round-robin"} {
		b := newBench(t, how, nil)
		home := b.serve("s")
		b.pool.MarkOverloaded(home.WorkerID)
		for range 2 {
			_, err := b.Place(context.Background(), b.request("s"), router.Attempt{})
			if kind := inference.KindOf(err); kind != inference.ResourceExhausted && kind != inference.WorkerOverloaded {
				t.Errorf("%s, hard: %v", how, err)
			}
		}
		b.pool.SetOverloaded(nil)
		if got := b.serve("s"); got != home {
			t.Errorf("%s, hard: %+v after %+v", how, got, home)
		}

		b = newBench(t, how, func(o *affinity.Options) { o.Soft = true })
		home = b.serve("s")
		if got := b.serve("s"); got != home {
			t.Errorf("%s, soft: the session moved without need", how)
		}
		b.pool.MarkOverloaded(home.WorkerID)
		moved := b.serve("s")
		b.pool.SetOverloaded(nil)
		if moved.WorkerID == home.WorkerID || b.serve("s") != moved {
			t.Errorf("%s, soft: %+v after %+v", how, moved, home)
		}
	}
}

func pin(r *inference.Request, worker uint64, rank ...uint32) *inference.Request {
	r.Routing.BackendInstanceID, r.Routing.DecodeWorkerID = &worker, &worker
	if len(rank) > 0 {
		r.Routing.DPRank = &rank[0]
	}
	return r
}

func TestExplicitTargets(t *testing.T) {
	b := newBench(t, "kv", nil)
	first, err := b.Place(context.Background(), pin(b.request("s"), 2, 1), router.Attempt{})
	if err != nil {
		t.Fatal(err)
	}
	first.Dispatched()
	if got := b.serve("s"); got != (router.Pin{WorkerID: 2, Rank: 1, HasRank: true}) {
		t.Errorf("%+v", got)
	}
	b.refused(pin(b.request("s"), 3), inference.InvalidArgument, "session s is bound to worker 2, not 3")
	b.refused(pin(b.request("s"), 2, 0), inference.InvalidArgument, "session s is bound to DP rank 1 of worker 2, not 0")
	// Without rank, the binding's is meant.
	if p, err := b.Place(context.Background(), pin(b.request("s"), 2), router.Attempt{}); err != nil || p.Rank != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	rank := uint32(1)
	ranked := b.request("s")
	ranked.Routing.DPRank = &rank
	b.refused(ranked, inference.InvalidArgument, "needs a worker id")

	soft := newBench(t, "kv", func(o *affinity.Options) { o.Soft = true })
	home := soft.serve("s")
	soft.refused(pin(soft.request("s"), home.WorkerID%4+1), inference.InvalidArgument, "is bound to worker")

	plain := newBench(t, "round-robin", nil)
	home = plain.serve("s")
	plain.refused(pin(plain.request("s"), home.WorkerID, 1), inference.InvalidArgument, "session s has worker-only affinity and cannot add DP rank 1")
}

// In direct mode every request names its worker; the binding only checks it.
func TestDirectMode(t *testing.T) {
	b := newBench(t, "direct", nil)
	b.refused(b.request("s"), inference.InvalidArgument, "worker ID required")
	p, err := b.Place(context.Background(), pin(b.request("s"), 3), router.Attempt{})
	if err != nil {
		t.Fatal(err)
	}
	p.Dispatched()
	b.refused(b.request("s"), inference.InvalidArgument, "worker ID required")
	b.refused(pin(b.request("s"), 2), inference.InvalidArgument, "is bound to worker 3, not 2")
	if p, err = b.Place(context.Background(), pin(b.request("s"), 3), router.Attempt{}); err != nil || p.WorkerID != 3 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestQuestionsBindNothing(t *testing.T) {
	b := newBench(t, "kv", nil)
	ask := func() router.Pin {
		request := b.request("s")
		request.Routing.QueryOnly = true
		p, err := b.Place(context.Background(), request, router.Attempt{})
		if err != nil {
			t.Fatal(err)
		}
		return p.Pin()
	}
	ask()
	if b.Sessions() != 0 || len(b.told) != 0 {
		t.Error("a question bound its session")
	}
	home := b.serve("s")
	for range 5 {
		if got := ask(); got != home {
			t.Errorf("asked where, the answer is %+v, not %+v", got, home)
		}
	}
}

func TestTheTableIsBounded(t *testing.T) {
	b := newBench(t, "round-robin", func(o *affinity.Options) { o.MaxSessions = 3 })
	for _, id := range []string{"a", "b", "c"} {
		b.serve(id)
	}
	b.refused(b.request("d"), inference.ResourceExhausted, "session affinity entry limit reached")
	b.Learn(affinity.Binding{SessionID: "e", Target: router.Pin{WorkerID: 1}})
	if b.Sessions() != 3 {
		t.Errorf("%d sessions", b.Sessions())
	}
	b.serve("a") // those that are known are served
	b.clock.Advance(ttl)
	b.serve("d") // idle ones make room
}

// Every use is told twice: when a worker took the request, and when it ended, so that peers' timers start again.
func TestPeers(t *testing.T) {
	ours, theirs := newBench(t, "kv", nil), newBench(t, "kv", nil)
	home := ours.serve("s")
	if len(ours.told) != 2 || ours.told[0] != ours.told[1] || ours.told[0].Writer != 77 || ours.told[0].Version == 0 {
		t.Fatalf("%+v", ours.told)
	}
	for _, told := range ours.told {
		theirs.Learn(told)
	}
	if got := theirs.serve("s"); got != home {
		t.Errorf("the peer went to %+v, not %+v", got, home)
	}
	if theirs.told[0] != ours.told[0] {
		t.Errorf("the peer tells %+v, it was told %+v", theirs.told[0], ours.told[0])
	}
	// The first live binding wins; the same one keeps it alive; a worker that is not known binds nobody.
	other := home
	other.WorkerID = home.WorkerID%4 + 1
	conflict := affinity.Binding{SessionID: "s", Target: other, Version: 1 << 62}
	theirs.Learn(conflict)
	theirs.clock.Advance(ttl - time.Second)
	theirs.Learn(ours.told[0])
	theirs.clock.Advance(ttl - time.Second)
	if got := theirs.serve("s"); got != home {
		t.Errorf("a conflicting binding won: %+v", got)
	}
	theirs.clock.Advance(ttl)
	theirs.Learn(conflict)
	if got := theirs.serve("s"); got != other {
		t.Errorf("an expired binding was not replaced: %+v", got)
	}
	theirs.Learn(affinity.Binding{SessionID: "x", Target: router.Pin{WorkerID: 99}})
	if theirs.Sessions() != 1 {
		t.Error("a binding to a foreign worker was kept")
	}
}

// Ten thousand sessions come and go for an hour: the table holds those of the last minute and nothing else.
func TestAnHourOfSessions(t *testing.T) {
	b := newBench(t, "round-robin", func(o *affinity.Options) { o.Publish = nil })
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }() // ends with ctx
	var early, late runtime.MemStats
	for second := range 3600 {
		for i := range 3 {
			b.serve(fmt.Sprint("session ", (second*3+i)%10000))
		}
		b.clock.AwaitTimer()
		b.clock.Advance(time.Second)
		if n := b.Sessions(); n > 3*(60+30+30) {
			t.Fatalf("%d sessions after %d s", n, second)
		}
		switch second {
		case 600:
			runtime.GC()
			runtime.ReadMemStats(&early)
		case 3599:
			runtime.GC()
			runtime.ReadMemStats(&late)
		}
	}
	if late.HeapAlloc > early.HeapAlloc+(1<<20) {
		t.Errorf("the heap grew from %d to %d bytes", early.HeapAlloc, late.HeapAlloc)
	}
	stop()
	<-done
}

// Many requests of few sessions at once, some failing, while workers come and go: nobody waits for ever, and every session's requests
// are on one worker as long as it lives.
func TestManyAtOnce(t *testing.T) {
	b := newBench(t, "kv", func(o *affinity.Options) { o.Publish = nil })
	var wait sync.WaitGroup
	for g := range 12 {
		wait.Go(func() { // ends after its requests
			random := rand.New(rand.NewPCG(uint64(g), 3))
			for i := range 200 {
				request := &inference.Request{ID: fmt.Sprint(g, "/", i), TokenIDs: []uint32{1, 2, 3, 4, 5}}
				request.Routing.SessionID = fmt.Sprint(random.IntN(5))
				placement, err := b.Place(context.Background(), request, router.Attempt{})
				if err != nil {
					t.Error(err)
					continue
				}
				switch random.IntN(5) {
				case 0:
					placement.End(inference.Errorf(inference.Cancelled, "gone"))
				case 1:
					placement.End(inference.Errorf(inference.BackendUnknown, "broken"))
				default:
					placement.Progress(1)
					placement.End(nil)
				}
			}
		})
	}
	for i := range 60 {
		b.pool.SetWorkers(workers(3 + i%2))
		runtime.Gosched()
	}
	wait.Wait()
	if b.Sessions() > 5 {
		t.Errorf("%d sessions", b.Sessions())
	}
	b.Close()
	b.refused(b.request("0"), inference.Unavailable, "shutdown")
}

func TestImpossibleOptionsAreNamed(t *testing.T) {
	pool := router.NewPool(router.PoolOptions{})
	inner, err := mode.New(mode.Options{Mode: mode.RoundRobin, Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	for want, options := range map[string]affinity.Options{
		"needs a router":    {Pool: pool, TTL: time.Second},
		"at least a second": {Inner: inner, Pool: pool, TTL: time.Millisecond},
		"must be positive":  {Inner: inner, Pool: pool, TTL: time.Second, MaxSessions: -1},
	} {
		if _, err := affinity.New(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
