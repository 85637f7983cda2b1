package kvindex

import (
	"container/list"
	"sync"
	"time"
)

// LRU is an index that predicts caches of known size from routing decisions: a rank keeps the blocks of its requests, and beyond its
// capacity those that no running request uses go, the least recently used first. Blocks in use are never dropped: a rank with more of
// them than its capacity is over it until requests end, as its engine then makes requests wait. Ranks of unknown capacity keep
// entries for a time instead, see [NewTTL]. It is safe for concurrent use.
type LRU struct {
	predicted *Predicted

	mu    sync.Mutex
	ranks map[Rank]*lruRank
}

// lruRank is the modelled cache of a rank. The LRU's mutex guards it.
type lruRank struct {
	rank     Rank
	capacity int
	blocks   map[uint64]*lruBlock // by sequence hash
	unused   list.List            // of *lruBlock, the least recently used first
}

type lruBlock struct {
	sequence uint64
	users    int
	place    *list.Element // in unused, while nobody uses it
}

// Hold is a request's claim on blocks of a rank. The zero of it is a nil pointer, whose methods do nothing.
type Hold struct {
	lru    *LRU
	rank   *lruRank
	blocks []*lruBlock // in the order of the sequence
}

// NewLRU returns an index of ranks whose capacities are still to be told; until then entries of a rank live for ttl.
func NewLRU(options Options, ttl time.Duration) (*LRU, error) {
	predicted, err := NewTTL(options, ttl)
	if err != nil {
		return nil, err
	}
	return &LRU{predicted: predicted, ranks: make(map[Rank]*lruRank)}, nil
}

// Index returns the index to look up in. Only Find and Stats are meant for others.
func (l *LRU) Index() *Index { return l.predicted.Index() }

// Expire drops what has aged out at now of ranks without a capacity; see [Predicted.Expire].
func (l *LRU) Expire(now time.Duration) { l.predicted.Expire(now) }

// SetCapacity tells how many blocks the rank holds; 0 means unknown. A rank whose capacity becomes known or unknown starts empty,
// for what was predicted of it followed the other rule.
func (l *LRU) SetCapacity(rank Rank, blocks int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.ranks[rank]
	switch {
	case blocks > 0 && known != nil:
		known.capacity = blocks
		l.evict(known)
	case blocks > 0:
		l.clear(rank)
		l.ranks[rank] = &lruRank{rank: rank, capacity: blocks, blocks: make(map[uint64]*lruBlock)}
	case known != nil:
		delete(l.ranks, rank)
		l.clear(rank)
	}
}

// clear empties the rank in the index. The caller holds the mutex.
func (l *LRU) clear(rank Rank) { _ = l.Index().Apply(Event{Rank: rank, Op: Cleared}) }

// RemoveWorker forgets all ranks of a worker. Holds on them end of themselves.
func (l *LRU) RemoveWorker(workerID uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rank := range l.ranks {
		if rank.WorkerID == workerID {
			delete(l.ranks, rank)
		}
	}
	l.Index().RemoveWorker(workerID)
}

// Record tells that the rank is about to compute a prompt and says nothing of its end; see [LRU.Hold] for those who do.
func (l *LRU) Record(rank Rank, locals, sequence []uint64, now time.Duration) {
	l.Hold(rank, locals, sequence, now).Release()
}

// Hold tells that the rank is about to compute a prompt and keeps its blocks until the hold is released. It keeps neither slice. For
// a rank of unknown capacity it is nil.
func (l *LRU) Hold(rank Rank, locals, sequence []uint64, now time.Duration) *Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.ranks[rank]
	if known == nil {
		l.predicted.Record(rank, locals, sequence, now)
		return nil
	}
	hold := &Hold{lru: l, rank: known}
	hold.add(locals, sequence)
	return hold
}

// Extend adds complete blocks of output, which follow those that are held already.
func (h *Hold) Extend(locals, sequence []uint64) {
	if h == nil || len(locals) == 0 {
		return
	}
	h.lru.mu.Lock()
	defer h.lru.mu.Unlock()
	if h.lru.ranks[h.rank.rank] == h.rank {
		h.add(locals, sequence)
	}
}

// add uses blocks, and stores those that are new. The caller holds the mutex.
func (h *Hold) add(locals, sequence []uint64) {
	fresh := make([]Block, 0, len(locals))
	event := Event{Rank: h.rank.rank, Op: Stored}
	for i, name := range sequence {
		block := h.rank.blocks[name]
		if block == nil {
			block = &lruBlock{sequence: name}
			h.rank.blocks[name] = block
			if len(fresh) == 0 && len(h.blocks) > 0 {
				event.HasParent, event.Parent = true, h.blocks[len(h.blocks)-1].sequence
			}
			fresh = append(fresh, Block{Hash: name, Local: locals[i]})
		} else if block.place != nil {
			h.rank.unused.Remove(block.place)
			block.place = nil
		}
		block.users++
		h.blocks = append(h.blocks, block)
	}
	if len(fresh) > 0 { // blocks go from the end of a prompt, so that new ones follow each other
		event.Blocks = fresh
		_ = h.lru.Index().Apply(event)
	}
	h.lru.evict(h.rank)
}

// Release ends the claim. The blocks stay until room is needed, the last of the sequence the first to go.
func (h *Hold) Release() {
	if h == nil {
		return
	}
	h.lru.mu.Lock()
	defer h.lru.mu.Unlock()
	for i := len(h.blocks) - 1; i >= 0; i-- {
		block := h.blocks[i]
		if block.users--; block.users == 0 {
			block.place = h.rank.unused.PushBack(block)
		}
	}
	h.blocks = nil
	if h.lru.ranks[h.rank.rank] == h.rank {
		h.lru.evict(h.rank)
	}
}

// evict brings the rank down to its capacity, as far as unused blocks go. The caller holds the mutex.
func (l *LRU) evict(rank *lruRank) {
	var gone []uint64
	for len(rank.blocks) > rank.capacity && rank.unused.Len() > 0 {
		block := rank.unused.Remove(rank.unused.Front()).(*lruBlock)
		delete(rank.blocks, block.sequence)
		gone = append(gone, block.sequence)
	}
	if len(gone) > 0 {
		_ = l.Index().Apply(Event{Rank: rank.rank, Op: Removed, Hashes: gone})
	}
}
