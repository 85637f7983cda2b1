//go:build !race

package kv_test

import (
	"context"
	"testing"

	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/kv"
)

// The router is on the way of every request: what it does over and over, it does without new memory. (The race detector makes
// pools forget on purpose.)
func TestTheSteadyStateAllocatesNothing(t *testing.T) {
	index := &fixed{}
	b := newBench(t, numbered(64), func(o *kv.Options) { o.Index = index })
	for i := range 64 {
		index.rows = append(index.rows, kvindex.Match{Rank: kvindex.Rank{WorkerID: uint64(i + 1)}, Blocks: [kvindex.Tiers]uint32{uint32(i % 16)}})
	}
	request := b.request(words(1, 100))
	lease := new(kv.Lease)
	allocations := testing.AllocsPerRun(500, func() {
		*lease = kv.Lease{}
		if err := b.PlaceIn(context.Background(), lease, request, router.Attempt{}); err != nil {
			t.Fatal(err)
		}
		lease.Progress(1)
		lease.End(nil)
	})
	if allocations >= 1 {
		t.Errorf("%v allocations per placement", allocations)
	}
}

// fixed is an index with one answer.
type fixed struct{ rows []kvindex.Match }

func (f *fixed) Find(matches *kvindex.Matches, _ kvindex.Query) {
	matches.Ranks = append(matches.Ranks[:0], f.rows...)
}
