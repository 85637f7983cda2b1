package load

import (
	"errors"
	"fmt"
	"time"

	"signalbox/inference"
)

// Tracker is the load of all ranks of a pool. The zero Tracker is empty and ready. It is not safe for concurrent use.
type Tracker struct {
	blocks   blocks
	ranks    []rankState
	byRank   map[inference.Rank]int32
	vacant   []int32 // ranks
	requests []request
	byID     map[string]int32
	idle     []int32 // requests
	live     int
}

// rankState is what one rank is busy with.
type rankState struct {
	name inference.Rank
	used bool

	weight weight

	firstRequest int32 // all requests of the rank, linked
	count        int32
	prefill      prefills
}

// request is one request in flight.
type request struct {
	id         string
	generation uint32
	rank       int32
	next, prev int32 // among the rank's requests
	tail       int32 // record of the last prompt block

	exclusive     int32   // blocks of the prompt that are counted and have no record
	exclusiveEach float64 // weight of each
	outputs       int32
	decayed       bool    // the outputs weigh less than a block each
	outputWeight  float64 // sum over outputs
	prefill       prefill
	referenced    bool // made progress since the last sweep
	live          bool
}

// Handle names a booked request. The zero Handle names none. A handle stays harmless after its request has gone.
type Handle struct {
	slot       int32
	generation uint32
}

// Booking is a request that is about to occupy a rank.
type Booking struct {
	// ID is unique among the requests in flight on all ranks.
	ID   string
	Rank inference.Rank
	// Hashes are the sequence hashes of the prompt's complete blocks; empty when blocks are not tracked.
	Hashes []uint64
	// Exclusive is a number of blocks that no other request will share, whatever it holds: they are counted only. Give either
	// these or Hashes.
	Exclusive int
	// PrefillTokens are the prompt tokens that the rank has to compute; 0 books no prefill.
	PrefillTokens uint64
	// Expected is how long the rank will compute them, when Modelled.
	Expected time.Duration
	Modelled bool
}

// ExistsError refuses a request whose id is in flight already.
type ExistsError struct {
	ID   string
	Rank inference.Rank
}

// Error implements error.
func (e *ExistsError) Error() string {
	return fmt.Sprintf("Request %s already exists (assigned to worker %d dp_rank %d)", e.ID, e.Rank.WorkerID, e.Rank.DPRank)
}

// ErrNotFound reports a step of a request that is not in flight.
var ErrNotFound = errors.New("request not found: it was never booked, has ended or has expired")

// Ensure gives a rank its row and returns the row's number, which stays valid until [Tracker.Remove].
func (t *Tracker) Ensure(name inference.Rank) int32 {
	if slot, known := t.byRank[name]; known {
		return slot
	}
	if t.byRank == nil {
		t.byRank = make(map[inference.Rank]int32)
	}
	slot := take(&t.ranks, &t.vacant)
	t.ranks[slot] = rankState{name: name, used: true, firstRequest: none, prefill: prefills{oldest: none, newest: none}}
	t.byRank[name] = slot
	return slot
}

// Row returns the number of a rank's row; known is false for a rank never seen.
func (t *Tracker) Row(name inference.Rank) (row int32, known bool) {
	row, known = t.byRank[name]
	return row, known
}

// Rows returns an upper bound of row numbers.
func (t *Tracker) Rows() int { return len(t.ranks) }

// Ranks calls yield with every rank that has a row.
func (t *Tracker) Ranks(yield func(row int32, name inference.Rank) bool) {
	for i := range t.ranks {
		if t.ranks[i].used && !yield(int32(i), t.ranks[i].name) {
			return
		}
	}
}

// Remove forgets a rank and every request on it.
func (t *Tracker) Remove(name inference.Rank, now time.Duration) {
	slot, known := t.byRank[name]
	if !known {
		return
	}
	for t.ranks[slot].firstRequest != none {
		t.remove(t.ranks[slot].firstRequest, now)
	}
	delete(t.byRank, name)
	t.ranks[slot] = rankState{}
	t.vacant = append(t.vacant, slot)
}

// Live returns the number of requests in flight.
func (t *Tracker) Live() int { return t.live }

// Blocks returns the number of block records and of distinct block identities held, for gauges.
func (t *Tracker) Blocks() (records, identities int) {
	return len(t.blocks.records) - len(t.blocks.vacantRecords), t.blocks.used
}

// Add books a request. An id that is in flight anywhere is refused with *[ExistsError] and changes nothing.
func (t *Tracker) Add(booking Booking, now time.Duration) (Handle, error) {
	slot := t.Ensure(booking.Rank)
	deepest, depth := none, 0
	if len(booking.Hashes) > 0 {
		deepest, depth = t.blocks.deepest(booking.Hashes, slot)
	}
	return t.add(booking, slot, deepest, depth, now)
}

// AddProjected is [Tracker.Add] for a rank and hashes that view was just projected for: the shared prefix is known already.
// Nothing may have changed since the projection.
func (t *Tracker) AddProjected(booking Booking, view *View, now time.Duration) (Handle, error) {
	slot := t.Ensure(booking.Rank)
	deepest, depth := view.shared(slot)
	return t.add(booking, slot, deepest, depth, now)
}

func (t *Tracker) add(booking Booking, slot, deepest int32, depth int, now time.Duration) (Handle, error) {
	if at, exists := t.byID[booking.ID]; exists {
		return Handle{}, &ExistsError{ID: booking.ID, Rank: t.ranks[t.requests[at].rank].name}
	}
	if t.byID == nil {
		t.byID = make(map[string]int32)
	}
	at := take(&t.requests, &t.idle)
	r := &t.requests[at]
	rank := &t.ranks[slot]
	*r = request{id: booking.ID, generation: r.generation + 1, rank: slot, prev: none, next: rank.firstRequest, referenced: true, live: true}
	if rank.firstRequest != none {
		t.requests[rank.firstRequest].prev = at
	}
	rank.firstRequest = at
	rank.count++
	t.live++
	t.byID[booking.ID] = at

	for shared := deepest; shared != none; shared = t.blocks.records[shared].parent {
		t.blocks.records[shared].refs++
	}
	tail := deepest
	for _, hash := range booking.Hashes[min(depth, len(booking.Hashes)):] {
		tail = t.blocks.hold(hash, slot, tail)
		t.blocks.records[tail].refs = 1
		rank.weight.addBlock(1)
	}
	r.tail = tail
	r.exclusive, r.exclusiveEach = int32(booking.Exclusive), 1
	rank.weight.whole += int64(booking.Exclusive)
	if booking.PrefillTokens > 0 {
		t.startPrefill(at, booking, now)
	}
	return Handle{slot: at, generation: r.generation}, nil
}

// Lookup returns the handle of the request with the id.
func (t *Tracker) Lookup(id string) (Handle, bool) {
	at, known := t.byID[id]
	if !known {
		return Handle{}, false
	}
	return Handle{slot: at, generation: t.requests[at].generation}, true
}

// RankOf returns where a request is booked.
func (t *Tracker) RankOf(handle Handle) (inference.Rank, bool) {
	r := t.get(handle)
	if r == nil {
		return inference.Rank{}, false
	}
	return t.ranks[r.rank].name, true
}

func (t *Tracker) get(handle Handle) *request {
	if handle.generation == 0 || int(handle.slot) >= len(t.requests) {
		return nil
	}
	r := &t.requests[handle.slot]
	if r.generation != handle.generation || !r.live {
		return nil
	}
	return r
}

// PrefillComplete ends a request's prefill: its first token has arrived.
func (t *Tracker) PrefillComplete(handle Handle, now time.Duration) error {
	r := t.get(handle)
	if r == nil {
		return ErrNotFound
	}
	r.referenced = true
	t.endPrefill(handle.slot, now)
	return nil
}

// Touch reports that a request makes progress, so that it does not expire.
func (t *Tracker) Touch(handle Handle) {
	if r := t.get(handle); r != nil {
		r.referenced = true
	}
}

// OutputBlock adds one block of generated tokens. Without decay (fraction < 0) it weighs one block. With a fraction, all
// generated blocks of the request weigh that much from now on, and so does the part of its prompt that no other request on the
// rank shares.
func (t *Tracker) OutputBlock(handle Handle, fraction float64) error {
	r := t.get(handle)
	if r == nil {
		return ErrNotFound
	}
	r.referenced = true
	weight := &t.ranks[r.rank].weight
	weight.removeOutputs(r)
	r.outputs++
	if fraction < 0 {
		r.outputWeight++
		weight.addOutputs(r)
		return nil
	}
	r.decayed, r.outputWeight = true, fraction*float64(r.outputs)
	weight.addOutputs(r)
	if r.exclusive > 0 {
		weight.removeExclusive(r)
		r.exclusiveEach = fraction
		weight.addExclusive(r)
	}
	for at := r.tail; at != none; at = t.blocks.records[at].parent {
		block := &t.blocks.records[at]
		if block.refs != 1 {
			break
		}
		weight.removeBlock(block.weight)
		weight.addBlock(fraction)
		block.weight = fraction
	}
	return nil
}

// Free ends a request. Freeing one that has gone is harmless; freed tells whether it was there.
func (t *Tracker) Free(handle Handle, now time.Duration) (freed bool) {
	if t.get(handle) == nil {
		return false
	}
	t.remove(handle.slot, now)
	return true
}

// Sweep drops every request that made no progress since the last sweep and returns how many. Called once per period, it drops
// a request one to two periods after its last progress, and never one that makes any.
func (t *Tracker) Sweep(now time.Duration) (dropped int) {
	for at := range t.requests {
		r := &t.requests[at]
		switch {
		case !r.live:
		case r.referenced:
			r.referenced = false
		default:
			t.remove(int32(at), now)
			dropped++
		}
	}
	return dropped
}

// remove takes a request off its rank.
func (t *Tracker) remove(at int32, now time.Duration) {
	t.endPrefill(at, now)
	r := &t.requests[at]
	rank := &t.ranks[r.rank]
	rank.weight.removeOutputs(r)
	rank.weight.removeExclusive(r)
	for tail := r.tail; tail != none; {
		block := &t.blocks.records[tail]
		parent := block.parent
		if block.refs--; block.refs == 0 {
			rank.weight.removeBlock(block.weight)
			t.blocks.release(tail)
		}
		tail = parent
	}
	if r.prev != none {
		t.requests[r.prev].next = r.next
	} else {
		rank.firstRequest = r.next
	}
	if r.next != none {
		t.requests[r.next].prev = r.prev
	}
	rank.count--
	t.live--
	delete(t.byID, r.id)
	*r = request{generation: r.generation}
	t.idle = append(t.idle, at)
}
