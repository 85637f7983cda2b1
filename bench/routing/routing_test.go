// Package routing measures how long a KV router takes to place a request, with 10,000 others in flight. See README.md.
package routing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/kv"
)

const (
	blockSize      = 16
	promptTokens   = 2000
	groups         = 20   // of prompts that begin alike
	sharedTokens   = 1008 // of the prompts of a group, in whole blocks
	prompts        = 1000
	activeRequests = 10000
)

// situation is a router in the middle of its work.
type situation struct {
	router   *kv.Router
	requests []inference.Request
	leases   []kv.Lease
	next     int
}

// spread says who holds the beginning of a group's prompts.
type spread int

const (
	nobody   spread = iota // no index at all: placement by load
	some                   // each prompt is on one worker, so that a group's beginning is on up to 50
	everyone               // every worker holds the beginnings of all groups, besides
)

func newSituation(tb testing.TB, workers int, held spread) *situation {
	tb.Helper()
	pool := router.NewPool(router.PoolOptions{Endpoint: "bench"})
	list := make([]router.Worker, workers)
	for i := range list {
		list[i] = router.Worker{ID: uint64(i + 1)}
	}
	pool.SetWorkers(list)
	random := rand.New(rand.NewPCG(1, 2))
	tokens := makePrompts(random)
	options := kv.Options{Config: kv.DefaultConfig(), Pool: pool, BlockSize: blockSize, Random: rand.NewPCG(3, 4)}
	if held == nobody {
		options.Config.ApplyLoadAware()
	} else {
		options.Index = fill(tb, tokens, workers, held)
	}
	r, err := kv.New(options)
	if err != nil {
		tb.Fatal(err)
	}
	s := &situation{router: r, requests: make([]inference.Request, activeRequests), leases: make([]kv.Lease, activeRequests)}
	for i := range s.requests {
		s.requests[i] = inference.Request{ID: fmt.Sprint("request-", i), TokenIDs: tokens[i%prompts]}
		s.place(tb, i)
	}
	return s
}

func makePrompts(random *rand.Rand) [][]uint32 {
	shared := make([][]uint32, groups)
	for i := range shared {
		shared[i] = appendRandom(nil, random, sharedTokens)
	}
	tokens := make([][]uint32, prompts)
	for i := range tokens {
		tokens[i] = appendRandom(append([]uint32(nil), shared[i%groups]...), random, promptTokens-sharedTokens)
	}
	return tokens
}

func appendRandom(tokens []uint32, random *rand.Rand, count int) []uint32 {
	for range count {
		tokens = append(tokens, random.Uint32N(150000))
	}
	return tokens
}

func fill(tb testing.TB, tokens [][]uint32, workers int, held spread) *kvindex.Index {
	tb.Helper()
	index, err := kvindex.New(kvindex.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	hasher, err := kvhash.New(kvhash.Scope{BlockSize: blockSize})
	if err != nil {
		tb.Fatal(err)
	}
	store := func(worker int, tokens []uint32) {
		locals := hasher.AppendBlocks(nil, tokens)
		sequence := hasher.AppendSequence(nil, locals)
		blocks := make([]kvindex.Block, len(locals))
		for i := range blocks {
			blocks[i] = kvindex.Block{Hash: sequence[i], Local: locals[i]}
		}
		if err := index.Apply(kvindex.Event{Rank: kvindex.Rank{WorkerID: uint64(worker + 1)}, Op: kvindex.Stored, Blocks: blocks}); err != nil {
			tb.Fatal(err)
		}
	}
	for i := range tokens {
		store(i%workers, tokens[i])
	}
	for group := 0; held == everyone && group < groups; group++ {
		for worker := range workers {
			store(worker, tokens[group][:sharedTokens])
		}
	}
	return index
}

func (s *situation) place(tb testing.TB, i int) {
	s.leases[i] = kv.Lease{}
	if err := s.router.PlaceIn(context.Background(), &s.leases[i], &s.requests[i], router.Attempt{}); err != nil {
		tb.Fatal(err)
	}
}

// step ends the oldest request and places a new one, whose first token comes at once.
func (s *situation) step(tb testing.TB) {
	i := s.next
	s.next = (s.next + 1) % activeRequests
	s.leases[i].End(nil)
	s.place(tb, i)
	s.leases[i].FirstToken()
}

// processorTime returns what the process has used of processors. Unlike the clock it does not count what other programs used.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func BenchmarkPlace(b *testing.B) {
	for held, name := range []string{nobody: "load", some: "cache", everyone: "cache-everywhere"} {
		for _, workers := range []int{1, 8, 64, 1000} {
			b.Run(fmt.Sprintf("%s/workers=%d", name, workers), func(b *testing.B) {
				s := newSituation(b, workers, spread(held))
				b.ReportAllocs()
				before := processorTime()
				for b.Loop() {
					s.step(b)
				}
				b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
