package kv

import (
	"slices"

	"signalbox/inference"
	"signalbox/router"
)

// fleet maps the ranks of a snapshot to numbers: ordinals in order of worker and rank, and rows of the load tracker.
type fleet struct {
	aligned    bool
	membership uint64
	first      []int32 // ordinal of each worker's first rank
	starts     []uint32
	rows       []int32 // by ordinal
	ordinals   map[inference.Rank]int32
}

// ordinal returns a rank's ordinal.
func (f *fleet) ordinal(ref router.RankRef) int32 {
	return f.first[ref.Worker] + int32(ref.Rank-f.starts[ref.Worker])
}

// align takes over a change of the discovered workers.
func (r *Router) align() {
	r.mutex.Lock()
	r.alignTo(r.options.Pool.Snapshot())
	gone := r.gone
	r.gone = nil
	r.mutex.Unlock()
	if r.options.Forget == nil {
		return
	}
	for _, id := range gone {
		r.options.Forget(id)
	}
}

// alignTo gives every rank of the snapshot a row and takes those of others away, with the requests on them. Workers that left
// are noted in r.gone, for the pool's watcher to report. The caller holds the mutex.
func (r *Router) alignTo(snapshot *router.Snapshot) {
	f := &r.fleet
	if f.aligned && f.membership == snapshot.Membership {
		return
	}
	old := f.ordinals
	f.aligned, f.membership = true, snapshot.Membership
	f.first, f.starts, f.rows = f.first[:0], f.starts[:0], f.rows[:0]
	f.ordinals = make(map[inference.Rank]int32, len(old))
	for i := range snapshot.Workers {
		worker := &snapshot.Workers[i]
		start, end, _ := worker.Ranks()
		f.first, f.starts = append(f.first, int32(len(f.rows))), append(f.starts, start)
		for number := start; number < end; number++ {
			rank := inference.Rank{WorkerID: worker.ID, DPRank: number}
			f.ordinals[rank] = int32(len(f.rows))
			f.rows = append(f.rows, r.tracker.Ensure(rank))
		}
	}
	r.rowOf = append(r.rowOf[:0], make([]int32, len(f.rows))...)
	now := r.clock.Now()
	for rank := range old {
		if _, still := f.ordinals[rank]; still {
			continue
		}
		r.tracker.Remove(rank, now)
		if snapshot.Find(rank.WorkerID) < 0 && !slices.Contains(r.gone, rank.WorkerID) {
			r.gone = append(r.gone, rank.WorkerID)
		}
	}
}
