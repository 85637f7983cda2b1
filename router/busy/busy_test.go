package busy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/internal/manual"
)

func free(pool *router.Pool) []uint64 {
	snapshot := pool.Snapshot()
	var ids []uint64
	for _, index := range snapshot.Free() {
		ids = append(ids, snapshot.Workers[index].ID)
	}
	return ids
}

func pointer[T any](value T) *T { return &value }

// TestComparisonsAreStrict takes each threshold at its limit and one beyond.
func TestComparisonsAreStrict(t *testing.T) {
	for name, c := range map[string]struct {
		thresholds     Thresholds
		blocks, tokens uint64 // at the limit
	}{
		"blocks":                    {Thresholds{DecodeBlocks: pointer(0.5)}, 50, 0},
		"tokens":                    {Thresholds{PrefillTokens: pointer(uint64(7))}, 0, 7},
		"part of a batch":           {Thresholds{PrefillFraction: pointer(0.333)}, 0, 333},
		"either of tokens and part": {Thresholds{PrefillTokens: pointer(uint64(5000)), PrefillFraction: pointer(0.01)}, 0, 10},
	} {
		pool := router.NewPool(router.PoolOptions{Clock: &manual.Clock{}})
		pool.SetWorkers([]router.Worker{{ID: 1, TotalKVBlocks: 100, MaxNumBatchedTokens: 1000}})
		m := New(pool)
		load := Booked{Rank: inference.Rank{WorkerID: 1}, DecodeBlocks: c.blocks, PrefillTokens: c.tokens}
		m.BookedBy(func(list []Booked) []Booked { return append(list, load) })
		m.Set(c.thresholds)
		if m.AllBusy() {
			t.Errorf("%s: busy at the limit", name)
		}
		if c.blocks > 0 {
			load.DecodeBlocks++
		} else {
			load.PrefillTokens++
		}
		if !m.AllBusy() {
			t.Errorf("%s: not busy beyond the limit", name)
		}
		m.Set(Thresholds{})
		if m.AllBusy() {
			t.Errorf("%s: busy without thresholds", name)
		}
	}
}

func TestUnpublishedSizes(t *testing.T) {
	pool := router.NewPool(router.PoolOptions{Clock: &manual.Clock{}})
	pool.SetWorkers([]router.Worker{{ID: 1}})
	m := New(pool)
	tokens := uint64(5_000_000)
	m.BookedBy(func(list []Booked) []Booked {
		return append(list, Booked{Rank: inference.Rank{WorkerID: 1}, DecodeBlocks: 1 << 40, PrefillTokens: tokens})
	})
	m.Set(Thresholds{DecodeBlocks: pointer(0.0), PrefillFraction: pointer(0.5)})
	if m.AllBusy() {
		t.Error("a worker of unknown size counts as full")
	}
	tokens++
	if !m.AllBusy() {
		t.Error("half of ten million tokens are not the limit of a worker that publishes none")
	}
}

// TestASampleOfOneKindHidesNothing compares with the plain rule after every step: a rank is busy while its last report or what is
// booked on it is beyond the threshold, a worker while all its ranks are.
func TestASampleOfOneKindHidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := router.NewPool(router.PoolOptions{Clock: &manual.Clock{}})
		workers := []router.Worker{{ID: 1, TotalKVBlocks: 10}, {ID: 2, TotalKVBlocks: 10, DataParallelSize: 2}, {ID: 3, TotalKVBlocks: 20, DataParallelStart: 4, DataParallelSize: 3}}
		pool.SetWorkers(workers)
		m := New(pool)
		booked, reported := map[inference.Rank]uint64{}, map[inference.Rank]uint64{}
		m.BookedBy(func(list []Booked) []Booked {
			for rank, blocks := range booked {
				list = append(list, Booked{Rank: rank, DecodeBlocks: blocks})
			}
			return list
		})
		limit := rapid.SampledFrom([]float64{0, 0.3, 0.5, 1}).Draw(t, "threshold")
		m.Set(Thresholds{DecodeBlocks: &limit})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w := rapid.SampledFrom(workers).Draw(t, "worker")
			from, to, _ := w.Ranks()
			rank := inference.Rank{WorkerID: w.ID, DPRank: rapid.Uint32Range(from, to-1).Draw(t, "rank")}
			blocks := rapid.Uint64Range(0, 21).Draw(t, "blocks")
			if rapid.Bool().Draw(t, "book") {
				booked[rank] = blocks
				m.Refresh()
			} else {
				reported[rank] = blocks
				m.Report(rank, blocks)
				m.Report(inference.Rank{WorkerID: w.ID, DPRank: 99}, 1000)
				m.Report(inference.Rank{WorkerID: 77}, 1000)
			}
			var want []uint64
			for _, w := range workers {
				busy := true
				from, to, _ := w.Ranks()
				for r := from; r < to; r++ {
					rank := inference.Rank{WorkerID: w.ID, DPRank: r}
					if most := limit * float64(w.TotalKVBlocks); float64(booked[rank]) <= most && float64(reported[rank]) <= most {
						busy = false
					}
				}
				if !busy {
					want = append(want, w.ID)
				}
			}
			if got := free(pool); !slices.Equal(got, want) {
				t.Fatalf("free are %v, want %v; booked %v, reported %v", got, want, booked, reported)
			}
		}
	})
}

// A worker that refuses is passed over until it reports a load within the thresholds; a report beyond them is no reason to try it.
func TestARefusalIsTakenBackByAHealthyReport(t *testing.T) {
	pool := router.NewPool(router.PoolOptions{Clock: &manual.Clock{}})
	pool.SetWorkers([]router.Worker{{ID: 1, TotalKVBlocks: 10}})
	m := New(pool)
	m.Set(Thresholds{DecodeBlocks: pointer(0.5)})
	pool.MarkOverloaded(1)
	m.Report(inference.Rank{WorkerID: 1}, 6)
	m.Set(Thresholds{})
	if !m.AllBusy() {
		t.Error("a worker that refused counts as free after a report of a full cache")
	}
	m.Report(inference.Rank{WorkerID: 1}, 5)
	if m.AllBusy() {
		t.Error("a worker that refused is still passed over after a healthy report")
	}
}

// What a worker reported is forgotten with it: one that comes back begins anew.
func TestReportsLeaveWithTheWorker(t *testing.T) {
	pool := router.NewPool(router.PoolOptions{Clock: &manual.Clock{}})
	one := []router.Worker{{ID: 1, TotalKVBlocks: 10}}
	pool.SetWorkers(one)
	m := New(pool)
	m.Set(Thresholds{DecodeBlocks: pointer(0.5)})
	m.Report(inference.Rank{WorkerID: 1}, 6)
	pool.SetWorkers(nil)
	m.Refresh()
	pool.SetWorkers(one)
	if m.AllBusy() {
		t.Error("a worker that came back is judged by what it reported before")
	}
}
