package kvindex

import "time"

// LRU is an index that predicts caches of known size from routing decisions: a rank keeps the blocks of its requests, and beyond its
// capacity those that no running request uses go, the least recently used first. Blocks in use are never dropped: a rank with more of
// them than its capacity is over it until requests end, as its engine then makes requests wait. Ranks of unknown capacity keep
// entries for a time instead, see [NewTTL]. It is safe for concurrent use.
type LRU struct{ predicted *Predicted }

// Hold is a request's claim on blocks of a rank. The zero of it is a nil pointer, whose methods do nothing.
type Hold struct {
	lru      *LRU
	rank     *predictedRank
	entries  []uint32 // in the order of the sequence
	last     uint64   // sequence hash of the last one
	short    bool     // there was no room for all
	released bool
}

// NewLRU returns an index of ranks whose capacities are still to be told; until then entries of a rank live for ttl. At the limit
// options.MaxBlocks a rank makes room for a new block by forgetting one that it does not use; if it uses all, it does not keep the
// new one, nor those behind it, which Stats.Refused counts.
func NewLRU(options Options, ttl time.Duration) (*LRU, error) {
	predicted, err := NewTTL(options, ttl)
	if err != nil {
		return nil, err
	}
	return &LRU{predicted: predicted}, nil
}

// Index returns the index to look up in. Only Find is meant for others.
func (l *LRU) Index() *Index { return l.predicted.index }

// Stats returns the size of the index.
func (l *LRU) Stats() Stats { return l.predicted.Stats() }

// LRUStats count what happened since the start.
type LRUStats struct {
	// Holds are the claims that were not released yet.
	Holds int
	// Evicted are the blocks that had to go for others, Evictions the times that some had to.
	Evicted, Evictions uint64
	// Extended counts the times that output was added to a hold.
	Extended uint64
	// Unsized counts the ranks whose capacity became unknown or was so from the start.
	Unsized uint64
}

// Counts returns what happened since the start.
func (l *LRU) Counts() LRUStats {
	l.predicted.mutex.Lock()
	defer l.predicted.mutex.Unlock()
	return l.predicted.counts
}

// Expire drops what has aged out at now of ranks without a capacity; see [Predicted.Expire].
func (l *LRU) Expire(now time.Duration) { l.predicted.Expire(now) }

// RemoveWorker forgets all ranks of a worker, and their capacities. Holds on them end of themselves.
func (l *LRU) RemoveWorker(workerID uint64) { l.predicted.RemoveWorker(workerID) }

// SetCapacity tells how many blocks the rank holds; 0 means unknown. A rank whose capacity becomes known or unknown starts empty,
// for what was predicted of it followed the other rule.
func (l *LRU) SetCapacity(rank Rank, blocks int) {
	p := l.predicted
	p.mutex.Lock()
	defer p.mutex.Unlock()
	blocks = max(blocks, 0)
	_, known := p.byName[rank]
	r := p.rank(rank)
	if blocks == 0 && (!known || r.capacity != 0) {
		p.counts.Unsized++
	}
	if (r.capacity == 0) != (blocks == 0) {
		p.leave(r)
		r = p.rank(rank)
	}
	if r.capacity = blocks; blocks > 0 {
		p.evict(r)
	}
}

// Record tells that the rank is about to compute a prompt and says nothing of its end; see [LRU.Hold] for those who do.
func (l *LRU) Record(rank Rank, locals, sequence []uint64, now time.Duration) {
	l.Hold(rank, locals, sequence, now).Release()
}

// Hold tells that the rank is about to compute a prompt and keeps its blocks until the hold is released. It keeps neither slice. For
// a rank of unknown capacity it is nil.
func (l *LRU) Hold(rank Rank, locals, sequence []uint64, now time.Duration) *Hold {
	p := l.predicted
	p.mutex.Lock()
	defer p.mutex.Unlock()
	r := p.rank(rank)
	if r.capacity == 0 {
		p.refresh(r, locals, sequence, now)
		return nil
	}
	hold := &Hold{lru: l, rank: r}
	p.counts.Holds++
	hold.add(locals, sequence)
	return hold
}

// Extend adds complete blocks of output, which follow those that are held already.
func (h *Hold) Extend(locals, sequence []uint64) {
	if h == nil || len(locals) == 0 {
		return
	}
	h.lru.predicted.mutex.Lock()
	defer h.lru.predicted.mutex.Unlock()
	if h.valid() && !h.short {
		h.lru.predicted.counts.Extended++
		h.add(locals, sequence)
	}
}

// Release ends the claim. The blocks stay until room is needed, the last of the sequence the first to go.
func (h *Hold) Release() {
	if h == nil {
		return
	}
	p := h.lru.predicted
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if !h.released {
		h.released = true
		p.counts.Holds--
	}
	if !h.valid() {
		return
	}
	for i := len(h.entries) - 1; i >= 0; i-- {
		e := &p.entries[h.entries[i]]
		if e.references--; e.references == 0 {
			p.link(&h.rank.idle, h.entries[i])
		}
	}
	h.entries, h.short = nil, true
	p.evict(h.rank)
}

// valid reports whether the rank is still the one that the hold was made on.
func (h *Hold) valid() bool { return h.lru.predicted.byName[h.rank.name] == h.rank }

// add uses blocks, and stores those that are new.
func (h *Hold) add(locals, sequence []uint64) {
	p := h.lru.predicted
	locals, sequence = equalLength(locals, sequence)
	p.follow(h.rank, sequence)
	for _, at := range p.path {
		if p.entries[at].references == 0 {
			p.unlink(&h.rank.idle, at)
		}
		p.entries[at].references++
	}
	end := len(p.path)
	for ; end < len(sequence) && p.makeRoom(&h.rank.idle); end++ {
		at := p.add(h.rank, sequence[end])
		p.entries[at].references = 1
		p.path = append(p.path, at)
	}
	if end < len(sequence) {
		p.refused += uint64(len(sequence) - end)
		h.short = true
	}
	event := Event{Rank: h.rank.name, Op: Stored}
	if len(h.entries) > 0 {
		event.HasParent, event.Parent = true, h.last
	}
	if end > 0 {
		p.tell(event, locals[:end], sequence[:end])
		h.last = sequence[end-1]
	}
	h.entries = append(h.entries, p.path...)
	p.evict(h.rank)
}

// evict brings the rank down to its capacity, as far as blocks go that nobody uses.
func (p *Predicted) evict(r *predictedRank) {
	if r.entries.count > r.capacity && r.idle.front != 0 {
		p.counts.Evictions++
	}
	for r.entries.count > r.capacity && r.idle.front != 0 {
		p.counts.Evicted++
		p.forget(r.idle.front, &r.idle)
	}
}
