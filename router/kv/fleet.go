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
	// table finds ordinals by rank: open addressing, at most half full. Go's map would do, but a look-up for each of a thousand
	// ranks that hold a common prefix is a good part of a placement.
	table []fleetPlace
	ranks []inference.Rank // by ordinal
}

// fleetPlace is one place of the table: ordinal + 1, or 0 for none.
type fleetPlace struct {
	rank    inference.Rank
	ordinal int32
}

func (f *fleet) home(rank inference.Rank) int {
	return int((rank.WorkerID*0x9e3779b97f4a7c15+uint64(rank.DPRank)*0xbf58476d1ce4e5b9)>>32) & (len(f.table) - 1)
}

// find returns a rank's ordinal, or -1.
func (f *fleet) find(rank inference.Rank) int32 {
	if len(f.table) == 0 {
		return -1
	}
	for at := f.home(rank); ; at = (at + 1) & (len(f.table) - 1) {
		there := &f.table[at]
		if there.ordinal == 0 || there.rank == rank {
			return there.ordinal - 1
		}
	}
}

// index makes the table.
func (f *fleet) index() {
	size := 4
	for size < 2*len(f.ranks) {
		size *= 2
	}
	f.table = make([]fleetPlace, size)
	for ordinal, rank := range f.ranks {
		at := f.home(rank)
		for f.table[at].ordinal != 0 {
			at = (at + 1) & (size - 1)
		}
		f.table[at] = fleetPlace{rank: rank, ordinal: int32(ordinal) + 1}
	}
}

// ordinal returns a rank's ordinal.
func (f *fleet) ordinal(ref router.RankRef) int32 {
	return f.first[ref.Worker] + int32(ref.Rank-f.starts[ref.Worker])
}

// align takes over a change of the discovered workers.
func (r *Router) align() {
	r.mutex.Lock()
	r.alignTo(r.options.Pool.Snapshot())
	r.drain()
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
	old := slices.Clone(f.ranks)
	f.aligned, f.membership = true, snapshot.Membership
	f.first, f.starts, f.rows, f.ranks = f.first[:0], f.starts[:0], f.rows[:0], f.ranks[:0]
	for i := range snapshot.Workers {
		worker := &snapshot.Workers[i]
		start, end, _ := worker.Ranks()
		f.first, f.starts = append(f.first, int32(len(f.rows))), append(f.starts, start)
		for number := start; number < end; number++ {
			rank := inference.Rank{WorkerID: worker.ID, DPRank: number}
			f.rows, f.ranks = append(f.rows, r.tracker.Ensure(rank)), append(f.ranks, rank)
		}
	}
	f.index()
	r.rowOf = append(r.rowOf[:0], make([]int32, len(f.rows))...)
	r.plainVersion, r.table.Rows = 0, r.table.Rows[:0]
	if r.line != nil {
		r.line.queue.SetWorkers(len(snapshot.Workers))
	}
	now := r.clock.Now()
	for _, rank := range old {
		if f.find(rank) >= 0 {
			continue
		}
		r.tracker.Remove(rank, now)
		if snapshot.Find(rank.WorkerID) < 0 && !slices.Contains(r.gone, rank.WorkerID) {
			r.gone = append(r.gone, rank.WorkerID)
		}
	}
}
