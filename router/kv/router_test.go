package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/internal/manual"
	"signalbox/router/kv"
)

// shelf is an index that is told what ranks hold, by local hash. A plain map stands in for the real one: what is tested here is
// what the router makes of its answers.
type shelf struct {
	held  map[kvindex.Rank][]uint64
	asked int
}

func (s *shelf) put(workerID uint64, rank uint32, locals []uint64) {
	if s.held == nil {
		s.held = map[kvindex.Rank][]uint64{}
	}
	s.held[kvindex.Rank{WorkerID: workerID, DPRank: rank}] = locals
}

func (s *shelf) Find(matches *kvindex.Matches, query kvindex.Query) {
	s.asked++
	locals := query.Locals
	matches.Ranks = matches.Ranks[:0]
	for rank, held := range s.held {
		n := 0
		for n < len(locals) && n < len(held) && held[n] == locals[n] {
			n++
		}
		if n > 0 {
			matches.Ranks = append(matches.Ranks, kvindex.Match{Rank: rank, Blocks: [kvindex.Tiers]uint32{uint32(n)}})
		}
	}
}

// notebook is a shelf that learns from placements.
type notebook struct{ shelf }

func (n *notebook) Record(rank kvindex.Rank, locals, sequence []uint64, _ time.Duration) {
	if len(locals) != len(sequence) {
		panic(fmt.Sprintf("%d local and %d sequence hashes", len(locals), len(sequence)))
	}
	n.put(rank.WorkerID, rank.DPRank, slices.Clone(locals))
}

type bench struct {
	*kv.Router
	t     testing.TB
	pool  *router.Pool
	clock *manual.Clock
	next  int
}

const blockSize = 4

func newBench(t testing.TB, workers []router.Worker, change func(*kv.Options)) *bench {
	t.Helper()
	b := &bench{t: t, clock: &manual.Clock{}}
	b.pool = router.NewPool(router.PoolOptions{Endpoint: "ns/backend/generate", Clock: b.clock})
	b.pool.SetWorkers(workers)
	options := kv.Options{Config: kv.DefaultConfig(), Pool: b.pool, BlockSize: blockSize, Random: rand.NewPCG(1, 2)}
	if change != nil {
		change(&options)
	}
	r, err := kv.New(options)
	if err != nil {
		t.Fatal(err)
	}
	b.Router = r
	return b
}

func numbered(n int) (workers []router.Worker) {
	for i := range n {
		workers = append(workers, router.Worker{ID: uint64(i + 1)})
	}
	return workers
}

// words returns a prompt of n tokens; equal seeds begin alike.
func words(seed uint32, n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = seed*100000 + uint32(i)
	}
	return tokens
}

func locals(t testing.TB, scope kvhash.Scope, tokens []uint32) []uint64 {
	t.Helper()
	hasher, err := kvhash.New(scope)
	if err != nil {
		t.Fatal(err)
	}
	return hasher.AppendBlocks(nil, tokens)
}

func (b *bench) request(tokens []uint32) *inference.Request {
	b.next++
	return &inference.Request{ID: fmt.Sprint("r", b.next), TokenIDs: tokens}
}

func (b *bench) place(request *inference.Request, attempt router.Attempt) *router.Placement {
	b.t.Helper()
	placement, err := b.Place(context.Background(), request, attempt)
	if err != nil {
		b.t.Fatal(err)
	}
	return placement
}

func (b *bench) load(workerID uint64, rank uint32) kv.RankLoad {
	b.t.Helper()
	for _, l := range b.AppendLoads(nil) {
		if l.Rank == (inference.Rank{WorkerID: workerID, DPRank: rank}) {
			return l
		}
	}
	b.t.Fatalf("rank %d of worker %d has no load", rank, workerID)
	return kv.RankLoad{}
}

// The worker that holds the prefix wins while it has room, and stops winning when its load outweighs what the prefix saves.
func TestCacheAndLoadAreWeighed(t *testing.T) {
	index := &shelf{}
	b := newBench(t, numbered(3), func(o *kv.Options) { o.Index = index })
	prompt := words(1, 40)
	index.put(2, 0, locals(t, kvhash.Scope{BlockSize: blockSize}, prompt)[:6])
	first := b.place(b.request(prompt), router.Attempt{Explain: true})
	if first.WorkerID != 2 || first.CachedTokens != 24 || first.OverlapBlocks != 6 || first.InputBlocks != 10 || first.HitRate() != 0.6 {
		t.Fatalf("placed on worker %d with %d cached tokens, %v of %d blocks", first.WorkerID, first.CachedTokens, first.OverlapBlocks, first.InputBlocks)
	}
	winner := first.Decision.Candidates[first.Decision.Winner]
	if winner.DeviceBlocks != 6 || winner.Credit != 6 || winner.PrefillCost != 4 || winner.DecodeCost != 10 || winner.Cost != 14 || first.Decision.Reason != "lowest cost" {
		t.Errorf("decision %+v, winner %+v", first.Decision, winner)
	}
	if l := b.load(2, 0); l.ActivePrefillTokens != 16 || l.ActiveDecodeBlocks != 10 || l.ActiveRequests != 1 {
		t.Errorf("load %+v", l)
	}
	// Another prompt shares nothing: the idle workers are cheaper.
	if other := b.place(b.request(words(2, 40)), router.Attempt{}); other.WorkerID == 2 {
		t.Error("an unrelated prompt went to the busy worker")
	}
	// The same prompt again: worker 2 costs (16+40)/4-6 = 8 of prefill and 10 of decode, the idle one 10 and 10.
	if again := b.place(b.request(prompt), router.Attempt{}); again.WorkerID != 2 {
		t.Errorf("the same prompt went to worker %d", again.WorkerID)
	}
	// Now worker 2 has 16+16 tokens to compute: 12 and 10 against 10 and 10.
	if third := b.place(b.request(prompt), router.Attempt{}); third.WorkerID == 2 {
		t.Error("load did not outweigh the cache")
	}
}

// Cold traffic spreads by ties alone.
func TestTiesAreSpread(t *testing.T) {
	b := newBench(t, numbered(4), nil)
	counts := map[uint64]int{}
	const n = 8000
	for range n {
		placement := b.place(b.request(words(1, 8)), router.Attempt{})
		counts[placement.WorkerID]++
		placement.End(nil)
	}
	for id, count := range counts {
		if math.Abs(float64(count)/n-0.25) > 0.03 {
			t.Errorf("worker %d got %d of %d requests", id, count, n)
		}
	}
}

// With one of two candidates better, temperature 1 gives it 0.731 of the requests whatever the costs.
func TestTemperatureMakesOdds(t *testing.T) {
	index := &shelf{}
	b := newBench(t, numbered(2), func(o *kv.Options) { o.Index, o.Config.RouterTemperature = index, 1 })
	prompt := words(1, 8)
	index.put(1, 0, locals(t, kvhash.Scope{BlockSize: blockSize}, prompt))
	won := 0
	const n = 8000
	for range n {
		placement := b.place(b.request(prompt), router.Attempt{})
		if placement.WorkerID == 1 {
			won++
		}
		placement.End(nil)
	}
	if math.Abs(float64(won)/n-0.7311) > 0.03 {
		t.Errorf("the better worker won %d of %d", won, n)
	}
	// A request may ask for the best alone.
	zero := 0.0
	for range 50 {
		request := b.request(prompt)
		request.RouterOverride = &inference.RouterOverride{RouterTemperature: &zero}
		placement := b.place(request, router.Attempt{})
		if placement.WorkerID != 1 {
			t.Fatal("temperature 0 took the worse worker")
		}
		placement.End(nil)
	}
}

// A lease that leaks load makes a worker unattractive for ever.
func TestEveryWayOutFreesTheRank(t *testing.T) {
	ends := map[string]func(*router.Placement){
		"complete":        func(p *router.Placement) { p.Progress(3); p.End(nil) },
		"before dispatch": func(p *router.Placement) { p.End(inference.Errorf(inference.CannotConnect, "x")) },
		"cancelled":       func(p *router.Placement) { p.Dispatched(); p.End(inference.Errorf(inference.Cancelled, "x")) },
		"broken stream":   func(p *router.Placement) { p.Progress(1); p.End(inference.Errorf(inference.Disconnected, "x")) },
		"twice":           func(p *router.Placement) { p.End(nil); p.End(nil); p.Progress(4) },
	}
	for name, end := range ends {
		b := newBench(t, numbered(1), func(o *kv.Options) { o.Config.TrackOutputBlocks = true })
		end(b.place(b.request(words(1, 13)), router.Attempt{}))
		if l := b.load(1, 0); l.ActiveRequests != 0 || l.ActiveDecodeBlocks != 0 || l.ActivePrefillTokens != 0 {
			t.Errorf("%s: load %+v is left", name, l)
		}
		if stats := b.Stats(); stats.ActiveRequests != 0 || stats.BlockRecords != 0 {
			t.Errorf("%s: %+v is left", name, stats)
		}
	}
}

func TestPrefillEndsWithTheFirstToken(t *testing.T) {
	b := newBench(t, numbered(1), nil)
	placement := b.place(b.request(words(1, 13)), router.Attempt{})
	if l := b.load(1, 0); l.ActivePrefillTokens != 13 || l.ActiveDecodeBlocks != 3 {
		t.Errorf("booked %+v", l)
	}
	placement.FirstToken()
	if l := b.load(1, 0); l.ActivePrefillTokens != 0 || l.ActiveDecodeBlocks != 3 {
		t.Errorf("after the first token: %+v", l)
	}
}

func TestOutputBlocksGrowAndDecay(t *testing.T) {
	b := newBench(t, numbered(1), func(o *kv.Options) { o.Config.TrackOutputBlocks = true })
	plain := b.place(b.request(words(1, 13)), router.Attempt{})
	plain.Progress(3) // 16 tokens fit the four blocks that the prompt began
	if l := b.load(1, 0); l.ActiveDecodeBlocks != 3 {
		t.Errorf("within the prompt's last block: %+v", l)
	}
	plain.Progress(1)
	plain.Progress(9) // at most one block per item, however many tokens it has
	if l := b.load(1, 0); l.ActiveDecodeBlocks != 5 {
		t.Errorf("after 13 tokens: %+v", l)
	}
	plain.End(nil)

	hinted := b.request(words(2, 16))
	expected := uint32(16)
	hinted.Routing.ExpectedOutputTokens = &expected
	placement := b.place(hinted, router.Attempt{})
	for range 8 {
		placement.Progress(1)
	}
	// Half of the output is there: two output blocks and four of the prompt weigh a half each.
	if l := b.load(1, 0); l.ActiveDecodeBlocks != 4 {
		t.Errorf("halfway: %+v", l)
	}
	placement.End(nil)
}

func TestSharedPrefixesCountOnce(t *testing.T) {
	for _, reuse := range []bool{true, false} {
		b := newBench(t, numbered(1), func(o *kv.Options) { o.Config.AssumeKVReuse = reuse })
		for range 3 {
			b.place(b.request(words(1, 16)), router.Attempt{})
		}
		want := map[bool]uint64{true: 4, false: 12}[reuse]
		if l := b.load(1, 0); l.ActiveDecodeBlocks != want {
			t.Errorf("with reuse %v three equal prompts hold %d blocks, want %d", reuse, l.ActiveDecodeBlocks, want)
		}
	}
}

// Adapter, namespace and speculation decide what is the same block.
func TestScopeEntersTheHashes(t *testing.T) {
	prompt := words(1, 17)
	for name, scope := range map[string]kvhash.Scope{
		"plain": {BlockSize: blockSize}, "adapter": {BlockSize: blockSize, LoRA: "a"}, "salt": {BlockSize: blockSize, CacheNamespace: "tenant"},
		"eagle": {BlockSize: blockSize, Eagle: true},
	} {
		index := &shelf{}
		b := newBench(t, numbered(2), func(o *kv.Options) { o.Index, o.Eagle = index, scope.Eagle })
		index.put(1, 0, locals(t, scope, prompt))
		request := b.request(prompt)
		request.Routing.LoRAName, request.Routing.CacheSalt = scope.LoRA, scope.CacheNamespace
		if placement := b.place(request, router.Attempt{}); placement.WorkerID != 1 || placement.CachedTokens != 16 {
			t.Errorf("%s: worker %d with %d cached tokens", name, placement.WorkerID, placement.CachedTokens)
		}
		other := b.request(prompt)
		other.Routing.CacheSalt = "another tenant"
		if placement := b.place(other, router.Attempt{}); placement.CachedTokens != 0 {
			t.Errorf("%s: a stranger sees %d cached tokens", name, placement.CachedTokens)
		}
	}
}

func TestMediaEnterTheHashes(t *testing.T) {
	index := &shelf{}
	b := newBench(t, numbered(2), func(o *kv.Options) { o.Index = index })
	hasher, _ := kvhash.New(kvhash.Scope{BlockSize: blockSize})
	expanded := words(1, 16)
	index.put(1, 0, hasher.AppendBlocksWithObjects(nil, expanded, [][]kvhash.Object{nil, {{Hash: 77}}}))
	request := b.request(words(1, 9))
	request.MultiModalRouting = &inference.MultiModalRouting{RoutingTokenIDs: expanded, ExpandedPromptLen: 16,
		Blocks: [][]inference.MediaSpan{nil, {{Hash: 77}}}}
	if placement := b.place(request, router.Attempt{}); placement.WorkerID != 1 || placement.InputTokens != 16 || placement.CachedTokens != 16 {
		t.Errorf("worker %d, %d of %d tokens cached", placement.WorkerID, placement.CachedTokens, placement.InputTokens)
	}
	request = b.request(words(1, 9))
	request.MultiModalRouting = &inference.MultiModalRouting{RoutingTokenIDs: expanded, Blocks: [][]inference.MediaSpan{nil, {{Hash: 78}}}}
	if placement := b.place(request, router.Attempt{}); placement.WorkerID == 1 && placement.CachedTokens != 4 {
		t.Errorf("another image: %d tokens cached", placement.CachedTokens)
	}
}

// Ranks are workers of their own, and a placement names one that the worker owns.
func TestRanks(t *testing.T) {
	index := &shelf{}
	workers := []router.Worker{{ID: 7, DataParallelStart: 4, DataParallelSize: 2}, {ID: 9, DataParallelSize: 2}, {ID: 11, RanksUnknown: true}}
	b := newBench(t, workers, func(o *kv.Options) { o.Index = index })
	prompt := words(1, 16)
	index.put(7, 5, locals(t, kvhash.Scope{BlockSize: blockSize}, prompt))
	index.put(9, 8, locals(t, kvhash.Scope{BlockSize: blockSize}, prompt)) // not its rank: an event that went astray
	if p := b.place(b.request(prompt), router.Attempt{}); p.WorkerID != 7 || p.Rank != 5 || !p.HasRank {
		t.Errorf("placed at %+v", p.Pin())
	}
	seen := map[router.Pin]bool{}
	for i := range uint32(200) {
		p := b.place(b.request(words(i+2, 8)), router.Attempt{})
		seen[p.Pin()] = true
	}
	for pin := range seen {
		if !workers[0].Owns(pin.Rank) && pin.WorkerID == 7 || !workers[1].Owns(pin.Rank) && pin.WorkerID == 9 || pin.WorkerID == 11 {
			t.Errorf("placed at %+v", pin)
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d ranks were used: %v", len(seen), seen)
	}
}

// The decode leg goes by load alone: its prompt comes from elsewhere.
func TestDecodeLegIgnoresTheCache(t *testing.T) {
	index := &shelf{}
	b := newBench(t, numbered(2), func(o *kv.Options) { o.Index = index })
	prompt := words(1, 16)
	index.put(1, 0, locals(t, kvhash.Scope{BlockSize: blockSize}, prompt))
	busy := b.request(words(3, 8))
	one := uint64(1)
	busy.Routing.DecodeWorkerID = &one
	b.place(busy, router.Attempt{})
	zero, no := 0.0, false
	request := b.request(prompt)
	request.RouterOverride = &inference.RouterOverride{OverlapScoreCredit: &zero, AssumeKVReuse: &no, TrackPrefillTokens: &no}
	asked := index.asked
	p := b.place(request, router.Attempt{Phase: router.Decode, Untracked: true})
	if p.WorkerID != 2 || index.asked != asked {
		t.Errorf("placed on worker %d after %d look-ups", p.WorkerID, index.asked-asked)
	}
	if l := b.load(2, 0); l.ActivePrefillTokens != 0 || l.ActiveDecodeBlocks != 4 {
		t.Errorf("booked %+v", l)
	}
}

// A prefill pool costs prompts only.
func TestPrefillPoolTracksNoBlocks(t *testing.T) {
	b := newBench(t, numbered(1), func(o *kv.Options) { o.PrefillPool, o.BlockSize = true, 64 })
	p := b.place(b.request(words(1, 1963)), router.Attempt{Phase: router.Prefill, Explain: true})
	if cost := p.Decision.Candidates[0].Cost; cost != 30.671875 {
		t.Errorf("the prefill leg costs %v", cost)
	}
	if l := b.load(1, 0); l.ActiveDecodeBlocks != 0 || l.ActivePrefillTokens != 1963 {
		t.Errorf("booked %+v", l)
	}
}

func TestRecordersLearnFromPlacements(t *testing.T) {
	index := &notebook{}
	b := newBench(t, numbered(4), func(o *kv.Options) { o.Index, o.Recorder = index, index })
	prompt := words(1, 32)
	first := b.place(b.request(prompt), router.Attempt{})
	first.End(nil)
	for range 20 {
		p := b.place(b.request(prompt), router.Attempt{})
		if p.WorkerID != first.WorkerID || p.CachedTokens != 32 {
			t.Fatalf("worker %d after worker %d, %d tokens cached", p.WorkerID, first.WorkerID, p.CachedTokens)
		}
		p.End(nil)
	}
	question := b.request(words(2, 32))
	question.Routing.QueryOnly = true
	b.place(question, router.Attempt{})
	if again := b.place(b.request(words(2, 32)), router.Attempt{}); again.CachedTokens != 0 {
		t.Error("a question was recorded as a placement")
	}
}

func TestPredictedCachesHoldPromptAndOutput(t *testing.T) {
	lru, err := kvindex.NewLRU(kvindex.Options{Shards: 1}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	lru.SetCapacity(kvindex.Rank{WorkerID: 1}, 64/blockSize)
	b := newBench(t, numbered(1), func(o *kv.Options) { o.Index, o.Recorder, o.Forget = lru.Index(), lru, lru.RemoveWorker })
	first := b.place(b.request(words(1, 32)), router.Attempt{})
	if !first.FollowsOutput {
		t.Fatal("the placement does not ask for its output")
	}
	answer := words(7, 2*blockSize)
	for _, token := range answer {
		first.Output([]uint32{token})
	}
	turn := append(words(1, 32), answer...)
	if next := b.place(b.request(turn), router.Attempt{}); next.CachedTokens != len(turn) {
		t.Errorf("%d tokens of the next turn are cached, want all %d of prompt and answer", next.CachedTokens, len(turn))
	} else {
		next.End(nil)
	}
	first.End(nil)
	b.place(b.request(words(3, 64)), router.Attempt{}).End(nil) // fills the cache
	if again := b.place(b.request(turn), router.Attempt{}); again.CachedTokens != 0 {
		t.Errorf("%d tokens are cached beyond the capacity", again.CachedTokens)
	}
}

// The blocks of a request whose end was lost do not stay in use for ever.
func TestExpiredRequestsLetGoOfTheirBlocks(t *testing.T) {
	lru, err := kvindex.NewLRU(kvindex.Options{Shards: 1}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	lru.SetCapacity(kvindex.Rank{WorkerID: 1}, 8)
	b := newBench(t, numbered(1), func(o *kv.Options) {
		o.Index, o.Recorder, o.Forget, o.RequestExpiry = lru.Index(), lru, lru.RemoveWorker, time.Minute
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		b.Run(ctx)
		close(done)
	}()
	lost := b.place(b.request(words(1, 32)), router.Attempt{}) // 8 blocks
	for range 3 {
		b.clock.AwaitTimer()
		b.clock.Advance(time.Minute)
		b.clock.AwaitTimer()
	}
	b.place(b.request(words(2, 32)), router.Attempt{}).End(nil)
	if again := b.place(b.request(words(1, 32)), router.Attempt{}); again.CachedTokens != 0 {
		t.Errorf("%d tokens of the lost request are still held", again.CachedTokens)
	}
	lost.End(nil)
	cancel()
	<-done
}

func TestTheLongerPrefixOfBothIndexesCounts(t *testing.T) {
	primary, side := &shelf{}, &notebook{}
	b := newBench(t, numbered(2), func(o *kv.Options) { o.Index, o.Predicted, o.Recorder = primary, side, side })
	prompt := words(1, 32)
	hashes := locals(t, kvhash.Scope{BlockSize: blockSize}, prompt)
	primary.put(1, 0, hashes[:5])
	side.put(1, 0, hashes[:3])
	side.put(2, 0, hashes[:4])
	p := b.place(b.request(prompt), router.Attempt{Explain: true})
	if c := p.Decision.Candidates; c[0].DeviceBlocks != 5 || c[1].DeviceBlocks != 4 {
		t.Errorf("overlaps %v and %v", c[0].DeviceBlocks, c[1].DeviceBlocks)
	}
}

func TestWithoutCreditThereIsNoIndex(t *testing.T) {
	index := &shelf{}
	b := newBench(t, numbered(2), func(o *kv.Options) { o.Index = index; o.Config.ApplyLoadAware() })
	for range 10 {
		b.place(b.request(words(1, 16)), router.Attempt{})
	}
	if index.asked != 0 {
		t.Error("the index was asked")
	}
	if one, two := b.load(1, 0), b.load(2, 0); one.ActiveRequests != 5 || two.ActiveRequests != 5 {
		t.Errorf("load is uneven: %+v and %+v", one, two)
	}
}

func TestQuestionsBookNothing(t *testing.T) {
	b := newBench(t, numbered(1), nil)
	request := b.request(words(1, 16))
	request.Routing.QueryOnly = true
	p := b.place(request, router.Attempt{})
	if l := b.load(1, 0); !p.QueryOnly || l.ActiveRequests != 0 {
		t.Errorf("load %+v after a question", l)
	}
	p.End(nil)
}

// A stream of any length stays; a request whose end was lost goes within two periods.
func TestOnlyIdleRequestsExpire(t *testing.T) {
	b := newBench(t, numbered(1), func(o *kv.Options) { o.RequestExpiry = time.Minute })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		b.Run(ctx)
		close(done)
	}()
	busy := b.place(b.request(words(1, 4)), router.Attempt{})
	idle := b.place(b.request(words(2, 4)), router.Attempt{})
	for range 5 {
		busy.Progress(1)
		b.clock.AwaitTimer()
		b.clock.Advance(time.Minute)
		b.clock.AwaitTimer()
	}
	if stats := b.Stats(); stats.ActiveRequests != 1 || stats.Expired != 1 {
		t.Errorf("after five periods: %+v", stats)
	}
	idle.Progress(1)
	idle.End(nil)
	busy.End(nil)
	if stats := b.Stats(); stats.ActiveRequests != 0 {
		t.Errorf("at the end: %+v", stats)
	}
	cancel()
	<-done
}

func TestWorkersComeAndGo(t *testing.T) {
	var left []uint64
	b := newBench(t, numbered(2), func(o *kv.Options) { o.Forget = func(id uint64) { left = append(left, id) } })
	held := b.place(b.request(words(1, 16)), router.Attempt{})
	b.pool.SetWorkers([]router.Worker{{ID: 3 - held.WorkerID}, {ID: 5, DataParallelSize: 2}})
	if !slices.Equal(left, []uint64{held.WorkerID}) {
		t.Errorf("forgotten: %v", left)
	}
	if stats := b.Stats(); stats.ActiveRequests != 0 {
		t.Errorf("a request is left on a worker that has gone: %+v", stats)
	}
	held.Progress(1)
	held.End(inference.Errorf(inference.Disconnected, "x"))
	if loads := b.AppendLoads(nil); len(loads) != 3 {
		t.Errorf("loads %+v", loads)
	}
}

func TestPinsAreHonoured(t *testing.T) {
	b := newBench(t, []router.Worker{{ID: 1}, {ID: 2, DataParallelStart: 3}}, nil)
	two, rank := uint64(2), uint32(0)
	for range 5 {
		request := b.request(words(1, 400))
		request.Routing.DecodeWorkerID, request.Routing.BackendInstanceID = &two, &two
		if p := b.place(request, router.Attempt{Explain: true, Tried: []uint64{2}}); p.WorkerID != 2 || p.Rank != 3 || p.Decision.Reason != "pinned" || len(p.Decision.Candidates) != 1 {
			t.Fatalf("placed at %+v: %+v", p.Pin(), p.Decision)
		}
	}
	// A rank without a worker is ignored here.
	request := b.request(words(1, 4))
	request.Routing.DPRank = &rank
	if p := b.place(request, router.Attempt{}); p.WorkerID != 1 {
		t.Errorf("placed at %+v", p.Pin())
	}
	if p := b.place(b.request(words(9, 4)), router.Attempt{Prefer: &router.Pin{WorkerID: 2}}); p.WorkerID != 2 {
		t.Errorf("the preferred worker was not taken, but %+v", p.Pin())
	}
}

// The kind decides the client's HTTP status, the text is what operators grep for.
func TestRefusals(t *testing.T) {
	two, nine, rank := uint64(2), uint64(9), uint32(7)
	overload := inference.Errorf(inference.WorkerOverloaded, "x")
	multi := []router.Worker{{ID: 1, Taints: []string{"gpu"}}, {ID: 2, DataParallelSize: 2}}
	cases := map[string]struct {
		workers  []router.Worker
		overload []uint64
		down     uint64
		routing  inference.Routing
		attempt  router.Attempt
		kind     inference.Kind
		text     string
	}{
		"nobody":       {kind: inference.Unroutable, text: "no endpoints available to route work"},
		"taint":        {workers: multi, routing: inference.Routing{RequiredTaints: []string{"x"}}, kind: inference.Unroutable, text: "no endpoints available to route work"},
		"overloaded":   {workers: multi, overload: []uint64{1, 2}, kind: inference.ResourceExhausted, text: "all eligible workers are overloaded"},
		"unknown pin":  {workers: multi, routing: inference.Routing{BackendInstanceID: &nine}, kind: inference.InvalidArgument, text: "worker 9"},
		"no rank":      {workers: multi, routing: inference.Routing{BackendInstanceID: &two}, kind: inference.Unroutable, text: "Pinned worker 2 requires an explicit dp_rank because it has multiple or unknown DP ranks"},
		"bad rank":     {workers: multi, routing: inference.Routing{BackendInstanceID: &two, DPRank: &rank}, kind: inference.Unroutable, text: "Pinned worker 2 dp_rank 7 is not eligible: worker 2 dp_rank 7 is outside [0, 2)"},
		"pin down":     {workers: numbered(2), down: 2, routing: inference.Routing{BackendInstanceID: &two}, kind: inference.Unroutable, text: "Pinned worker 2 dp_rank 0 is not eligible: worker 2 is unavailable"},
		"pin busy":     {workers: numbered(2), overload: []uint64{2}, routing: inference.Routing{BackendInstanceID: &two}, kind: inference.ResourceExhausted, text: "pinned worker 2 is overloaded"},
		"pin outside":  {workers: numbered(2), routing: inference.Routing{BackendInstanceID: &two, AllowedWorkerIDs: []uint64{1}}, kind: inference.Unroutable, text: "worker 2 is not in allowed worker set"},
		"pin taint":    {workers: numbered(2), routing: inference.Routing{BackendInstanceID: &two, RequiredTaints: []string{"x"}}, kind: inference.Unroutable, text: "worker 2 does not satisfy routing constraints"},
		"all tried":    {workers: numbered(2), attempt: router.Attempt{Tried: []uint64{1, 2}}, kind: inference.Unavailable, text: "no untried eligible worker remains after migration"},
		"all rejected": {workers: numbered(1), attempt: router.Attempt{Tried: []uint64{1}, LastError: overload}, kind: inference.ResourceExhausted, text: "all eligible workers rejected the request as overloaded"},
	}
	for name, c := range cases {
		b := newBench(t, c.workers, nil)
		b.pool.SetOverloaded(c.overload)
		b.pool.MarkDown(c.down)
		request := b.request(words(1, 8))
		request.Routing = c.routing
		_, err := b.Place(context.Background(), request, c.attempt)
		if err == nil || inference.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %s %q", name, err, c.kind, c.text)
		}
		if stats := b.Stats(); stats.ActiveRequests != 0 {
			t.Errorf("%s: %+v", name, stats)
		}
	}
	b := newBench(t, numbered(1), nil)
	request := b.request(words(1, 8))
	b.place(request, router.Attempt{})
	if _, err := b.Place(context.Background(), request, router.Attempt{}); err == nil || !strings.Contains(err.Error(), "failed to book scheduler state: Request r1 already exists") {
		t.Errorf("the same id twice: %v", err)
	}
	b.Close()
	if _, err := b.Place(context.Background(), b.request(nil), router.Attempt{}); inference.KindOf(err) != inference.Unavailable {
		t.Errorf("after the end: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := newBench(t, numbered(1), nil).Place(ctx, &inference.Request{}, router.Attempt{}); inference.KindOf(err) != inference.Cancelled {
		t.Errorf("a cancelled context: %v", err)
	}
}

func TestImpossibleOptionsAreNamed(t *testing.T) {
	pool := router.NewPool(router.PoolOptions{})
	for text, change := range map[string]func(*kv.Options){
		"pool":                    func(o *kv.Options) { o.Pool = nil },
		"block size 0":            func(o *kv.Options) { o.BlockSize = 0 },
		"host_cache_hit_weight":   func(o *kv.Options) { o.Config.HostCacheHitWeight = 2 },
		"request expiry -1s":      func(o *kv.Options) { o.RequestExpiry = -time.Second },
		"router_track_active_blo": func(o *kv.Options) { o.Config.TrackOutputBlocks, o.Config.TrackActiveBlocks = true, false },
	} {
		options := kv.Options{Config: kv.DefaultConfig(), Pool: pool, BlockSize: 4}
		change(&options)
		if _, err := kv.New(options); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// tenPerSecond computes ten tokens per second and cannot tell about odd prompts.
type tenPerSecond struct{}

func (tenPerSecond) PredictPrefill(input, cached int) (time.Duration, error) {
	if input%2 == 1 {
		return 0, errors.New("no data for odd prompts")
	}
	return time.Duration(input-cached) * time.Second / 10, nil
}

// With a model, prompt work shrinks while it is being computed; without an estimate it counts in full.
func TestPredictedPrefillDecays(t *testing.T) {
	b := newBench(t, numbered(1), func(o *kv.Options) { o.Predictor = tenPerSecond{} })
	first := b.place(b.request(words(1, 100)), router.Attempt{})
	b.clock.Advance(4 * time.Second)
	if l := b.load(1, 0); l.ActivePrefillTokens != 60 {
		t.Errorf("after 4 of 10 seconds: %+v", l)
	}
	first.FirstToken()
	b.place(b.request(words(2, 101)), router.Attempt{})
	b.clock.Advance(time.Hour)
	if l := b.load(1, 0); l.ActivePrefillTokens != 101 || b.Stats().Unpredicted != 1 {
		t.Errorf("without an estimate: %+v, %+v", l, b.Stats())
	}
}

func TestKeyedTrackingKeepsTheIndexPublic(t *testing.T) {
	key, err := kvhash.NewTrackingKey(bytes.Repeat([]byte{7}, kvhash.TrackingKeySize), "k1")
	if err != nil {
		t.Fatal(err)
	}
	index := &shelf{}
	b := newBench(t, numbered(2), func(o *kv.Options) { o.Index, o.TrackingKey, o.Model = index, &key, "m" })
	prompt := words(1, 16)
	index.put(1, 0, locals(t, kvhash.Scope{BlockSize: blockSize}, prompt))
	for range 2 {
		if p := b.place(b.request(prompt), router.Attempt{}); p.WorkerID != 1 || p.CachedTokens != 16 {
			t.Errorf("worker %d, %d cached tokens", p.WorkerID, p.CachedTokens)
		}
	}
	if l := b.load(1, 0); l.ActiveDecodeBlocks != 4 {
		t.Errorf("two equal prompts hold %d blocks under a key", l.ActiveDecodeBlocks)
	}
}

// A policy file's settings replace those of the flags, one by one, under the same rules.
func TestOverlay(t *testing.T) {
	config := kv.DefaultConfig()
	config.RouterTemperature = 0.5
	if err := config.Overlay([]byte(`{"router_ttl_secs":60,"use_kv_events":false,"host_cache_hit_weight":0.1}`)); err != nil {
		t.Fatal(err)
	}
	if config.TTLSecs != 60 || config.UseKVEvents || config.HostCacheHitWeight != 0.1 || config.RouterTemperature != 0.5 || config.DiskCacheHitWeight != 0.25 {
		t.Errorf("%+v", config)
	}
	before := config
	for _, text := range []string{`{"host_cache_hit_weight":2}`, `{"nope":1}`, `{"router_event_threads":0}`} {
		if err := config.Overlay([]byte(text)); err == nil || config.TTLSecs != before.TTLSecs || config.HostCacheHitWeight != 0.1 {
			t.Errorf("%s was accepted: %+v, %v", text, config, err)
		}
	}
}
