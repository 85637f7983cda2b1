package kv_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/router"
	"signalbox/router/kv"
	"signalbox/router/policy"
)

// waiting returns how many requests are in line, in all classes.
func (b *bench) waiting() (n uint64) {
	for _, class := range b.AppendClasses(nil) {
		n += class.Requests
	}
	return n
}

func (b *bench) awaitWaiting(n uint64) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); b.waiting() != n; runtime.Gosched() {
		if time.Now().After(deadline) {
			b.t.Fatalf("%d requests wait, want %d", b.waiting(), n)
		}
	}
}

// ticket is a request that is being placed.
type ticket struct {
	name      string
	placement *router.Placement
	err       error
}

// queueUp places requests from goroutines of their own and waits until each is in line.
func (b *bench) queueUp(ctx context.Context, results chan<- ticket, requests ...*inference.Request) {
	b.t.Helper()
	for _, request := range requests {
		before := b.waiting()
		go func() { // ends when the request is placed or refused
			placement, err := b.Place(ctx, request, router.Attempt{Explain: true})
			results <- ticket{request.ID, placement, err}
		}()
		b.awaitWaiting(before + 1)
	}
}

func threshold(f float64) func(*kv.Options) {
	return func(o *kv.Options) { o.Config.QueueThreshold = &f }
}

func classes(t testing.TB, text string) func(*kv.Options) {
	t.Helper()
	config, err := policy.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return func(o *kv.Options) { o.Profile = config.Profile("") }
}

func (b *bench) named(name string, tokens int) *inference.Request {
	b.next++
	return &inference.Request{ID: name, TokenIDs: words(uint32(b.next), tokens)}
}

// Requests wait while every rank is busy, and go one by one as first tokens and ends make room.
func TestRequestsWaitForRoom(t *testing.T) {
	b := newBench(t, numbered(2), threshold(0))
	running := []*router.Placement{b.place(b.named("a", 40), router.Attempt{}), b.place(b.named("b", 40), router.Attempt{})}
	if running[0].WorkerID == running[1].WorkerID {
		t.Fatal("the second request did not take the idle worker")
	}
	results := make(chan ticket, 3)
	b.queueUp(context.Background(), results, b.named("c", 40), b.named("d", 40), b.named("e", 40))
	b.clock.Advance(3 * time.Second)
	for i, free := range []func(){func() { running[1].FirstToken() }, func() { running[0].End(nil) }} {
		free()
		got := <-results
		if want := []string{"c", "d"}[i]; got.err != nil || got.name != want || !got.placement.Queued || got.placement.WorkerID != running[1-i].WorkerID {
			t.Fatalf("%+v went, want %s on worker %d", got, want, running[1-i].WorkerID)
		}
		if d := got.placement.Decision; d.PolicyClass != "default" || d.QueuedSeconds != 3 {
			t.Errorf("the decision says class %q after %v s", d.PolicyClass, d.QueuedSeconds)
		}
		if got.placement.QueueDepth != 2-i {
			t.Errorf("%d waited when %s went", got.placement.QueueDepth, got.name)
		}
	}
	b.awaitWaiting(1)
	b.Close()
	if last := <-results; inference.KindOf(last.err) != inference.Unavailable {
		t.Errorf("at the end of the router %+v", last)
	}
	b.awaitWaiting(0)
}

// Without a threshold nobody waits, whatever the load.
func TestNobodyWaitsByDefault(t *testing.T) {
	b := newBench(t, numbered(1), nil)
	for i := range 50 {
		if p := b.place(b.named(fmt.Sprint(i), 4000), router.Attempt{}); p.Queued || p.QueueDepth != 0 {
			t.Fatalf("%+v", p)
		}
	}
}

// The threshold is a share of what a rank computes per step, and strict.
func TestThresholdIsAShareOfTheBatch(t *testing.T) {
	b := newBench(t, []router.Worker{{ID: 1, MaxNumBatchedTokens: 1000}}, threshold(0.5))
	b.place(b.named("a", 500), router.Attempt{})
	b.place(b.named("b", 1), router.Attempt{}) // 500 is not more than half
	results := make(chan ticket, 1)
	ctx, cancel := context.WithCancel(context.Background())
	b.queueUp(ctx, results, b.named("c", 1))
	if question := b.named("q", 10); true {
		question.Routing.QueryOnly = true
		b.place(question, router.Attempt{AtOnce: true})
	}
	cancel()
	if got := <-results; inference.KindOf(got.err) != inference.Cancelled {
		t.Errorf("%+v", got)
	}
	b.awaitWaiting(0)
}

// A question waits its turn and counts towards its class's limit, as the request that it is about would; answered, it keeps nobody busy.
func TestQuestionsWaitTheirTurn(t *testing.T) {
	b := newBench(t, []router.Worker{{ID: 1, MaxNumBatchedTokens: 1000}}, threshold(0))
	running := b.place(b.named("a", 500), router.Attempt{})
	results := make(chan ticket, 2)
	question := b.named("q", 10)
	question.Routing.QueryOnly = true
	b.queueUp(t.Context(), results, question)
	b.queueUp(t.Context(), results, b.named("b", 10))
	running.End(nil)
	for range 2 { // both go: the question has booked nothing
		got := <-results
		if got.err != nil || got.placement.QueryOnly != (got.name == "q") {
			t.Errorf("%+v", got)
		}
		got.placement.End(nil)
	}
	b.awaitWaiting(0)
	if l := b.load(1, 0); l.ActiveRequests != 0 {
		t.Errorf("left behind: %+v", l)
	}
	if received := b.AppendClasses(nil)[0].Received; received != 2 {
		t.Errorf("%d requests were counted, want 2", received)
	}
}

func jump(request *inference.Request, seconds float64, strict uint32) *inference.Request {
	request.Routing.PriorityJump, request.Routing.StrictPriority = &seconds, &strict
	return request
}

// order lets everybody who waits go on a single worker and returns the names.
func (b *bench) order(results <-chan ticket, running *router.Placement, n int) (names []string) {
	b.t.Helper()
	for range n {
		running.End(nil)
		next := <-results
		if next.err != nil {
			b.t.Fatal(next.err)
		}
		running = next.placement
		names = append(names, next.name)
	}
	running.End(nil)
	return names
}

func TestPriorities(t *testing.T) {
	for policyName, want := range map[string][]string{"fcfs": {"strict", "b", "d", "a"}, "wspt": {"strict", "d", "b", "a"}} {
		b := newBench(t, numbered(1), func(o *kv.Options) {
			threshold(0)(o)
			o.Config.QueuePolicy = policyName
		})
		running := b.place(b.named("running", 40), router.Attempt{})
		results := make(chan ticket, 4)
		// With fcfs b overtakes a by its priority, with wspt d does by being short.
		for _, request := range []*inference.Request{b.named("a", 900), jump(b.named("b", 900), 5, 0), b.named("strict", 2000), b.named("d", 20)} {
			if request.ID == "strict" {
				jump(request, 0, 1)
			}
			if request.ID == "d" {
				jump(request, 3.5, 0)
			}
			b.queueUp(context.Background(), results, request)
			b.clock.Advance(time.Second)
		}
		if got := b.order(results, running, 4); !slices.Equal(got, want) {
			t.Errorf("%s: %v went, want %v", policyName, got, want)
		}
	}
}

const twoTenants = `
default_policy_family: bulk
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: premium, policy_family: premium, cache_bucket: all, quantum: 400, prefill_busy_threshold: 0}
  - {name: bulk, policy_family: bulk, cache_bucket: all, quantum: 100, prefill_busy_threshold: 0, request_queue_limit_per_worker: 4}
`

// Under overload premium gets four times the service of bulk, and bulk still gets its fifth.
func TestClassesShareUnderOverload(t *testing.T) {
	b := newBench(t, numbered(1), classes(t, twoTenants))
	running := b.place(b.named("running", 40), router.Attempt{})
	results := make(chan ticket, 12)
	for i := range 12 {
		request := b.named(fmt.Sprint("premium", i), 100)
		request.Routing.PolicyClass = "premium"
		if i%3 == 0 {
			request = b.named(fmt.Sprint("bulk", i), 100)
		}
		b.queueUp(context.Background(), results, request)
	}
	want := []string{"premium1", "premium2", "premium4", "premium5", "bulk0", "premium7", "premium8", "premium10", "premium11", "bulk3", "bulk6", "bulk9"}
	if got := b.order(results, running, 12); !slices.Equal(got, want) {
		t.Errorf("%v went, want %v", got, want)
	}
}

// A full class refuses with what waits and the limit of all workers together; removing workers sends nobody away.
func TestClassLimits(t *testing.T) {
	b := newBench(t, numbered(2), classes(t, `
default_policy_family: f
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: c, policy_family: f, cache_bucket: all, quantum: 1, prefill_busy_threshold: 0, request_queue_limit_per_worker: 1, raw_isl_token_queue_limit_per_worker: 1000}
  - {name: open, quantum: 1}
`))
	b.place(b.named("a", 40), router.Attempt{})
	b.place(b.named("b", 40), router.Attempt{})
	results := make(chan ticket, 2)
	ctx, cancel := context.WithCancel(context.Background())
	b.queueUp(ctx, results, b.named("c", 40), b.named("d", 40))
	refused := func() router.QueueLimitError {
		_, err := b.Place(ctx, b.named("e", 40), router.Attempt{})
		var limit *router.QueueLimitError
		if !errors.As(err, &limit) || inference.KindOf(err) != inference.ResourceExhausted {
			t.Fatalf("a full class answered %v", err)
		}
		return *limit
	}
	if got, want := refused(), (router.QueueLimitError{PolicyClass: "c", LimitKind: router.LimitRequests, Current: 2, Limit: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	b.pool.SetWorkers(numbered(1))
	if got := refused(); got.Current != 2 || got.Limit != 1 {
		t.Errorf("with one worker left: %+v", got)
	}
	// Another class is not held up, and one without thresholds never waits.
	open := b.named("open", 40)
	open.Routing.PolicyClass = "open"
	if p := b.place(open, router.Attempt{}); p.Queued {
		t.Error("a class without thresholds waited")
	}
	if stats := b.AppendClasses(nil); stats[0].Refused.Requests != 2 || stats[0].RawTokens != 80 || stats[1].Refused.Requests != 0 {
		t.Errorf("%+v", stats)
	}
	cancel()
	<-results
	<-results
	b.awaitWaiting(0)
}

// The bucket follows from what the best worker has cached.
func TestClassFollowsTheCache(t *testing.T) {
	index := &shelf{}
	b := newBench(t, numbered(1), func(o *kv.Options) {
		classes(t, `
default_policy_family: f
uncached_isl_buckets: [{min_tokens: 0, bucket: warm}, {min_tokens: 50, bucket: cold}]
policy_classes:
  - {name: warm, policy_family: f, cache_bucket: warm, quantum: 1, prefill_busy_threshold: 0}
  - {name: cold, policy_family: f, cache_bucket: cold, quantum: 1, prefill_busy_threshold: 0}
`)(o)
		o.Index = index
	})
	b.place(b.named("a", 40), router.Attempt{})
	cold := b.named("cold", 100)
	warm := b.named("warm", 100)
	index.put(1, 0, locals(t, kvhash.Scope{BlockSize: blockSize}, warm.TokenIDs)[:20])
	results := make(chan ticket, 2)
	ctx, cancel := context.WithCancel(context.Background())
	b.queueUp(ctx, results, cold, warm)
	got := b.AppendClasses(nil)
	if got[0].Requests != 1 || got[0].CachedTokens != 80 || got[1].Requests != 1 || got[1].CachedTokens != 0 {
		t.Errorf("%+v", got)
	}
	cancel()
	<-results
	<-results
}

// A pinned request waits for its own worker only, and holds nobody else up.
func TestPinnedRequestsHaveALaneOfTheirOwn(t *testing.T) {
	b := newBench(t, numbered(2), threshold(0))
	first := b.place(b.named("a", 40), router.Attempt{})
	other := uint64(3) - first.WorkerID
	results := make(chan ticket, 3)
	pinned := b.named("pinned", 40)
	pinned.Routing.BackendInstanceID = &first.WorkerID
	b.queueUp(context.Background(), results, pinned)
	// The class has a backlog now, so that a newcomer gets in line; as the first of a lane that can go it goes at once.
	if p := b.place(b.named("free", 40), router.Attempt{}); p.WorkerID != other {
		t.Errorf("%+v", p)
	}
	b.queueUp(context.Background(), results, b.named("late", 40))
	first.End(nil)
	if got := <-results; got.name != "pinned" || got.placement.WorkerID != first.WorkerID {
		t.Errorf("%+v", got)
	} else {
		got.placement.End(nil)
	}
	if got := <-results; got.name != "late" || got.placement.WorkerID != first.WorkerID {
		t.Errorf("%+v", got)
	}
}

// When the only worker that a request may go to leaves, the request is told instead of waiting for ever.
func TestWhoWaitsForAWorkerThatLeavesIsTold(t *testing.T) {
	b := newBench(t, numbered(2), threshold(0))
	b.place(b.named("a", 40), router.Attempt{})
	b.place(b.named("b", 40), router.Attempt{})
	results := make(chan ticket, 2)
	pinned, one := b.named("pinned", 40), uint64(1)
	pinned.Routing.BackendInstanceID = &one
	b.queueUp(context.Background(), results, pinned, b.named("any", 40))
	b.pool.SetWorkers([]router.Worker{{ID: 2}})
	if got := <-results; got.name != "pinned" || got.err == nil {
		t.Errorf("%+v", got)
	}
	b.awaitWaiting(1)
	b.pool.SetWorkers([]router.Worker{{ID: 2}, {ID: 3}})
	if got := <-results; got.err != nil || got.placement.WorkerID != 3 {
		t.Errorf("a new worker did not help: %+v", got)
	}
}

// What is cached is looked up again for who waited long, so that the choice is about caches as they are now.
func TestOverlapIsRefreshedAfterALongWait(t *testing.T) {
	for _, c := range []struct{ after, wait time.Duration }{{10 * time.Second, 11 * time.Second}, {10 * time.Second, 9 * time.Second}, {0, time.Hour}} {
		index := &shelf{}
		b := newBench(t, numbered(1), func(o *kv.Options) {
			threshold(0)(o)
			o.Index, o.OverlapRefreshAfter = index, c.after
		})
		running := b.place(b.named("a", 40), router.Attempt{})
		results := make(chan ticket, 1)
		late := b.named("late", 40)
		b.queueUp(context.Background(), results, late)
		index.put(1, 0, locals(t, kvhash.Scope{BlockSize: blockSize}, late.TokenIDs))
		b.clock.Advance(c.wait)
		running.End(nil)
		want := 0
		if c.after > 0 && c.wait > c.after {
			want = 40
		}
		if got := <-results; got.err != nil || got.placement.CachedTokens != want {
			t.Errorf("after %v of %v: %+v", c.wait, c.after, got.placement)
		}
	}
}

// Predicted prefills end without a report: the queue is looked at every 100 ms then.
func TestPredictedPrefillsMakeRoom(t *testing.T) {
	b := newBench(t, numbered(1), func(o *kv.Options) {
		threshold(0)(o)
		o.Config.PrefillLoadModel, o.Predictor = "aic", tenPerSecond{}
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }() // ends with ctx
	b.place(b.named("a", 10), router.Attempt{})
	results := make(chan ticket, 1)
	b.queueUp(context.Background(), results, b.named("b", 10))
	for len(results) == 0 {
		b.clock.AwaitTimer()
		b.clock.Advance(100 * time.Millisecond)
		runtime.Gosched()
	}
	if got := <-results; got.err != nil {
		t.Error(got.err)
	}
	stop()
	<-done
}

// Many tenants at once, some of whom give up while workers come and go: nobody is forgotten, nothing is left, and no rank ever gets
// more than one request beyond its threshold.
func TestManyWaitAtOnce(t *testing.T) {
	b := newBench(t, numbered(4), classes(t, twoTenants+`
  - {name: pinnable, quantum: 30, prefill_busy_threshold_frac: 0.00001}
`))
	var wait sync.WaitGroup
	for g := range 16 {
		wait.Go(func() { // ends after its requests
			random := rand.New(rand.NewPCG(uint64(g), 7))
			for i := range 60 {
				ctx, cancel := context.WithCancel(context.Background())
				request := &inference.Request{ID: fmt.Sprint(g, "/", i), TokenIDs: words(random.Uint32N(9), 1+random.IntN(80))}
				request.Routing.PolicyClass = []string{"premium", "bulk", "pinnable"}[random.IntN(3)]
				jump(request, random.Float64()*4, random.Uint32N(2))
				if random.IntN(4) == 0 {
					worker := 1 + random.Uint64N(2)
					request.Routing.BackendInstanceID = &worker
				}
				if random.IntN(4) == 0 {
					go cancel()
				}
				placement, err := b.Place(ctx, request, router.Attempt{})
				cancel()
				var limit *router.QueueLimitError
				switch kind := inference.KindOf(err); {
				case err == nil:
					if random.IntN(2) == 0 {
						placement.FirstToken()
					}
					runtime.Gosched()
					placement.End(nil)
				case kind == inference.Cancelled, errors.As(err, &limit):
				default:
					t.Error(err)
				}
			}
		})
	}
	for i := range 40 {
		b.pool.SetWorkers(numbered(2 + i%3))
		runtime.Gosched()
	}
	wait.Wait()
	b.awaitWaiting(0)
	for _, class := range b.AppendClasses(nil) {
		if class.RawTokens != 0 || class.CachedTokens != 0 || class.Deficit != 0 {
			t.Errorf("%+v is left", class)
		}
	}
	if stats := b.Stats(); stats.ActiveRequests != 0 || stats.BlockRecords != 0 {
		t.Errorf("%+v is left", stats)
	}
}
