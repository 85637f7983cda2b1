package kv_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/kv"
)

// synchronised is a notebook that many may use.
type synchronised struct {
	mutex sync.Mutex
	notebook
}

func (s *synchronised) Find(rows []kv.Held, locals []uint64) []kv.Held {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.notebook.Find(rows, locals)
}

func (s *synchronised) Record(rank inference.Rank, locals, sequence []uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.notebook.Record(rank, locals, sequence)
}

func (s *synchronised) RemoveWorker(id uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.notebook.RemoveWorker(id)
}

// Requests come and go from many goroutines while workers do; at the end nothing is left.
func TestManyAtOnce(t *testing.T) {
	b := newBench(t, numbered(8), func(o *kv.Options) { o.Index, o.Config.TrackOutputBlocks = &synchronised{}, true })
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
					if inference.KindOf(err) != inference.Unknown {
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
