package kv_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/kv"
)

// synchronised is a notebook that many may use.
type synchronised struct {
	mutex sync.Mutex
	notebook
}

func (s *synchronised) Find(matches *kvindex.Matches, query kvindex.Query) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.notebook.Find(matches, query)
}

func (s *synchronised) Record(rank kvindex.Rank, locals, sequence []uint64, now time.Duration) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.notebook.Record(rank, locals, sequence, now)
}

// Requests come and go from many goroutines while workers do; at the end nothing is left.
func TestManyAtOnce(t *testing.T) {
	index := &synchronised{}
	b := newBench(t, numbered(8), func(o *kv.Options) { o.Index, o.Recorder, o.Config.TrackOutputBlocks = index, index, true })
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Add(1)
		go func() { // ends after its requests
			defer wait.Done()
			random := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range 300 {
				request := &inference.Request{ID: fmt.Sprint(g, "/", i), TokenIDs: words(random.Uint32N(5), 1+random.IntN(60))}
				placement, err := b.Place(context.Background(), request, router.Attempt{Explain: i%7 == 0})
				if err != nil {
					if inference.KindOf(err) != inference.Unroutable {
						t.Error(err)
					}
					continue
				}
				for range random.IntN(5) {
					placement.Progress(1 + random.IntN(6))
				}
				placement.End(nil)
			}
		}()
	}
	for i := range 100 {
		b.pool.SetWorkers(numbered(1 + i%8))
		_ = b.AppendLoads(nil)
	}
	wait.Wait()
	if stats := b.Stats(); stats.ActiveRequests != 0 || stats.BlockRecords != 0 {
		t.Errorf("%+v is left", stats)
	}
}
