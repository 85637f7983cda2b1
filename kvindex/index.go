package kvindex

import "iter"

// Index knows which ranks hold which blocks. It is safe for concurrent use; look-ups take no lock.
type Index struct {
	options Options
	simple  *simple
}

// New returns an empty index.
func New(options Options) (*Index, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	return &Index{options: options, simple: newSimple(options)}, nil
}

// Apply applies one event; when it returns, look-ups see it. Events of one worker must be applied in order, by one goroutine at a
// time; events of different workers may be applied at the same time. The error is one of those above, wrapped.
func (x *Index) Apply(event Event) error { return x.simple.apply(event) }

// RemoveRank forgets the rank and all that it holds. A later event makes it known again.
func (x *Index) RemoveRank(rank Rank) { x.simple.removeRank(rank) }

// RemoveWorker forgets all ranks of the worker. A later event makes it known again.
func (x *Index) RemoveWorker(workerID uint64) { x.simple.removeWorker(workerID) }

// Find answers a query into matches, whose previous content is dropped. It takes no lock and never waits for events. With events
// arriving meanwhile, each rank's count is one that was true at some time during the call.
func (x *Index) Find(matches *Matches, query Query) { x.simple.find(matches, query) }

// Events returns stored events that make an empty index equal to what this one holds of the rank: device first, parents before
// children, chains as long as possible, then lower tiers. Events of the shard wait meanwhile.
func (x *Index) Events(rank Rank) iter.Seq[Event] { return x.simple.events(rank) }

// Ranks lists the ranks that are known, in order. A rank is known from its first event on, even if it holds nothing.
func (x *Index) Ranks() []Rank { return x.simple.ranks() }

// TierSeen reports whether any rank ever stored blocks in the tier.
func (x *Index) TierSeen(tier Tier) bool { return x.simple.tierSeen(tier) }

// Stats returns the size of the index.
func (x *Index) Stats() Stats { return x.simple.stats() }
