package kvindex

import (
	"fmt"
	"sync"
	"time"
)

// Predicted is an index that learns from routing decisions instead of events: the rank that computes a prompt will hold its blocks,
// until some time after the last prompt with them. It serves where engines send no events, and, with a short time to live, beside
// an index that is fed by events, for prompts whose events are still to come ([Matches.MaxDevice]). [LRU] does better where the size
// of the engines' caches is known.
//
// It is safe for concurrent use. Look-ups take no lock.
type Predicted struct {
	index *Index

	mutex   sync.Mutex
	ttl     time.Duration
	limit   int
	refused uint64
	counts  LRUStats

	predictions
	aging  queue // of all ranks without a capacity
	byName map[Rank]*predictedRank
	path   []uint32
	blocks []Block
}

// predictedRank is what one rank is thought to hold.
type predictedRank struct {
	name    Rank
	id      int32
	entries names // by sequence hash
	// For LRU: how many blocks the rank holds, 0 if that is not known, and which of them no request in flight uses.
	capacity int
	idle     queue
}

// tick is the grain of a prediction's end, which is rounded up to it.
const tick = 100 * time.Millisecond

// NewTTL returns an index whose predictions live for ttl; with 0 there are none. At the limit options.MaxBlocks, the predictions that
// would age out next are forgotten early.
func NewTTL(options Options, ttl time.Duration) (*Predicted, error) {
	if ttl < 0 {
		return nil, fmt.Errorf("kvindex: time to live %v: give 0 or more", ttl)
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	limit := options.MaxBlocks
	options.MaxBlocks = 0
	index, err := New(options)
	if err != nil {
		return nil, err
	}
	return &Predicted{index: index, ttl: ttl, limit: limit, byName: make(map[Rank]*predictedRank)}, nil
}

// Index returns the index to look up in. Only Find is meant for others. It counts what has not been forgotten yet: see
// [Predicted.Expire].
func (p *Predicted) Index() *Index { return p.index }

// Record tells that the rank is about to compute the prompt with these local block hashes and public sequence hashes, of equal
// number. It keeps neither. now is a reading of a monotonic clock, the same for all calls.
func (p *Predicted) Record(rank Rank, locals, sequence []uint64, now time.Duration) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.refresh(p.rank(rank), locals, sequence, now)
}

// Expire forgets what has come to its end. Call it every 100 ms.
func (p *Predicted) Expire(now time.Duration) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	at := int64(now / tick)
	for p.aging.front != 0 && p.entries[p.aging.front].due <= at {
		p.forget(p.aging.front, &p.aging)
	}
}

// RemoveRank forgets the rank.
func (p *Predicted) RemoveRank(rank Rank) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if r := p.byName[rank]; r != nil {
		p.leave(r)
	}
}

// RemoveWorker forgets all ranks of the worker.
func (p *Predicted) RemoveWorker(workerID uint64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for name, r := range p.byName {
		if name.WorkerID == workerID {
			p.leave(r)
		}
	}
}

// Stats returns the size of the index.
func (p *Predicted) Stats() Stats {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	stats := p.index.Stats()
	stats.Refused += p.refused
	stats.Bytes += p.bytes()
	for _, r := range p.byName {
		stats.Bytes += r.entries.bytes()
	}
	return stats
}

// rank returns what is known of a rank.
func (p *Predicted) rank(name Rank) *predictedRank {
	r := p.byName[name]
	if r == nil {
		r = &predictedRank{name: name}
		p.join(r)
		p.byName[name] = r
	}
	return r
}

// leave forgets a rank.
func (p *Predicted) leave(r *predictedRank) {
	for _, at := range r.entries.all {
		switch {
		case r.capacity == 0:
			p.unlink(&p.aging, at)
		case p.entries[at].references == 0:
			p.unlink(&r.idle, at)
		}
		p.free(at)
	}
	p.index.RemoveRank(r.name)
	p.part(r)
	delete(p.byName, r.name)
}

// refresh lets the prompt's blocks live from now on for the full time.
func (p *Predicted) refresh(r *predictedRank, locals, sequence []uint64, now time.Duration) {
	if p.ttl == 0 {
		return
	}
	locals, sequence = equalLength(locals, sequence)
	p.follow(r, sequence)
	for _, at := range p.path {
		p.unlink(&p.aging, at)
	}
	end := len(p.path)
	for ; end < len(sequence) && p.makeRoom(&p.aging); end++ {
		p.path = append(p.path, p.add(r, sequence[end]))
	}
	p.refused += uint64(len(sequence) - end)
	p.tell(Event{Rank: r.name, Op: Stored}, locals[:end], sequence[:end])
	due := int64((now + p.ttl + tick - 1) / tick)
	for i := len(p.path) - 1; i >= 0; i-- { // the end of a prompt goes before its beginning
		p.entries[p.path[i]].due = due
		p.link(&p.aging, p.path[i])
	}
}

// equalLength cuts what has no counterpart, which a caller should not send.
func equalLength(locals, sequence []uint64) (sameLocals, sameSequence []uint64) {
	n := min(len(locals), len(sequence))
	return locals[:n], sequence[:n]
}

// follow puts the leading blocks that the rank is thought to hold into the path. Those behind them are not: ends go first.
func (p *Predicted) follow(r *predictedRank, sequence []uint64) {
	p.path = p.path[:0]
	for i := range sequence {
		at, ok := r.entries.find(sequence[i])
		if !ok {
			return
		}
		p.path = append(p.path, at)
	}
}

// makeRoom makes room for one more prediction, if there is a limit to all, at the cost of the first of a queue.
func (p *Predicted) makeRoom(q *queue) bool {
	if p.limit == 0 || p.live < p.limit {
		return true
	}
	if q.front == 0 {
		return false
	}
	p.forget(q.front, q)
	return true
}

// forget drops an entry of a queue.
func (p *Predicted) forget(at uint32, q *queue) {
	e := p.entries[at]
	p.unlink(q, at)
	p.free(at)
	r := p.ranks[e.rank]
	r.entries.remove(e.sequence)
	hash := [1]uint64{e.sequence}
	_ = p.index.Apply(Event{Rank: r.name, Op: Removed, Hashes: hash[:]}) // if it is not there, all the better
}

// tell lets the index know of blocks. Those that it knows make no difference to it.
func (p *Predicted) tell(event Event, locals, sequence []uint64) {
	p.blocks = p.blocks[:0]
	for i := range sequence {
		p.blocks = append(p.blocks, Block{Hash: sequence[i], Local: locals[i]})
	}
	event.Blocks = p.blocks
	_ = p.index.Apply(event) // it fits: the limit is kept here
}
