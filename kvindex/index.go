package kvindex

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Index knows which ranks hold which blocks. It is safe for concurrent use; look-ups take no lock.
type Index struct {
	shards []*shard
	// directory leads from workers to shards. It is replaced, by whoever holds the mutex, when workers come and go.
	directory atomic.Pointer[map[uint64]*shard]
	mutex     sync.Mutex
	seen      [Tiers]atomic.Bool
}

// New returns an empty index.
func New(options Options) (*Index, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	budget := &budget{limited: options.MaxBlocks > 0}
	budget.room.Store(int64(options.MaxBlocks))
	x := &Index{}
	shards := max(options.Shards, 1)
	if options.FirstNameWins {
		shards = 1 // the first name wins over those of all workers
	}
	for range shards {
		x.shards = append(x.shards, newShard(options, budget))
	}
	x.directory.Store(&map[uint64]*shard{})
	return x, nil
}

// enter returns the worker's shard, locked; nil if the worker is not known and is not to be.
func (x *Index) enter(workerID uint64, welcome bool) *shard {
	for {
		directory := x.directory.Load()
		s := (*directory)[workerID]
		if s == nil && welcome {
			s = x.welcome(workerID)
		}
		if s == nil {
			return nil
		}
		s.mutex.Lock()
		if now := x.directory.Load(); now == directory || (*now)[workerID] == s {
			return s
		}
		s.mutex.Unlock() // the worker has been removed meanwhile
	}
}

// welcome makes a worker known, in the shard with the fewest.
func (x *Index) welcome(workerID uint64) *shard {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	directory := *x.directory.Load()
	if s := directory[workerID]; s != nil {
		return s
	}
	workers := make(map[*shard]int)
	for _, s := range directory {
		workers[s]++
	}
	fewest := slices.MinFunc(x.shards, func(a, b *shard) int { return cmp.Compare(workers[a], workers[b]) })
	directory = maps.Clone(directory)
	directory[workerID] = fewest
	x.directory.Store(&directory)
	return fewest
}

// Apply applies one event; when it returns, look-ups see it. Events of one worker must be applied in order, by one goroutine at a
// time; events of different workers may be applied at the same time. The error is one of those above, wrapped.
func (x *Index) Apply(event Event) error {
	if event.Tier >= Tiers || event.Op < Stored || event.Op > Cleared {
		return fmt.Errorf("operation %d, tier %d: %w", event.Op, event.Tier, ErrInvalidEvent)
	}
	s := x.enter(event.Rank.WorkerID, event.Op == Stored)
	if s == nil {
		if event.Op == Removed && len(event.Hashes) > 0 {
			return fmt.Errorf("block %d: %w", event.Hashes[0], ErrUnknownBlock)
		}
		return nil
	}
	defer s.mutex.Unlock()
	if event.Op == Stored && !x.seen[event.Tier].Load() {
		x.seen[event.Tier].Store(true)
	}
	return s.apply(&event)
}

// RemoveRank forgets the rank and all that it holds. A later event makes it known again.
func (x *Index) RemoveRank(rank Rank) {
	x.remove(rank.WorkerID, func(known Rank) bool { return known == rank })
}

// RemoveWorker forgets all ranks of the worker. A later event makes it known again.
func (x *Index) RemoveWorker(workerID uint64) {
	x.remove(workerID, func(known Rank) bool { return known.WorkerID == workerID })
}

func (x *Index) remove(workerID uint64, chosen func(Rank) bool) {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	directory := *x.directory.Load()
	s := directory[workerID]
	if s == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	others := false
	for _, r := range s.ranks {
		switch {
		case r == nil:
		case chosen(r.name):
			s.leave(r)
		case r.name.WorkerID == workerID:
			others = true
		}
	}
	if !others {
		directory = maps.Clone(directory)
		delete(directory, workerID)
		x.directory.Store(&directory)
	}
}

// Find answers a query into matches, whose previous content is dropped. It takes no lock and never waits for events. With events
// arriving meanwhile, each rank's count is one that was true at some time during the call.
func (x *Index) Find(matches *Matches, query Query) {
	for {
		directory := x.directory.Load()
		sequence := matches.prepare(&query)
		matches.find(x.shards, sequence, query.DeviceOnly)
		// A worker that left and came back meanwhile could be in the answer of two shards.
		if x.directory.Load() == directory {
			return
		}
	}
}

// Events returns stored events that make an empty index equal to what this one holds of the rank: device first, parents before
// children, chains as long as possible, then lower tiers. Left out is what no look-up can reach: blocks on the device behind one
// that the rank has lost. It needs [Options].Replay, and yields nothing without. Events of the shard wait while they are gathered.
func (x *Index) Events(rank Rank) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		s := x.enter(rank.WorkerID, false)
		if s == nil {
			return
		}
		var events []Event
		if r := s.rank(rank); r != nil && s.options.Replay {
			events = s.events(r)
		}
		s.mutex.Unlock()
		for _, event := range events {
			if !yield(event) {
				return
			}
		}
	}
}

// Ranks lists the ranks that are known, in order. A rank is known from its first event on, even if it holds nothing.
func (x *Index) Ranks() []Rank {
	var list []Rank
	for _, s := range x.shards {
		s.mutex.Lock()
		list = slices.AppendSeq(list, maps.Keys(s.numberOf))
		s.mutex.Unlock()
	}
	slices.SortFunc(list, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(a.WorkerID, b.WorkerID), cmp.Compare(a.DPRank, b.DPRank))
	})
	return list
}

// TierSeen reports whether any rank ever stored blocks in the tier.
func (x *Index) TierSeen(tier Tier) bool { return tier < Tiers && x.seen[tier].Load() }

// Stats returns the size of the index.
func (x *Index) Stats() Stats {
	stats := Stats{Workers: len(*x.directory.Load())}
	for _, s := range x.shards {
		s.mutex.Lock()
		s.addTo(&stats)
		s.mutex.Unlock()
	}
	return stats
}
