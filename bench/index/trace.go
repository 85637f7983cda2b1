package main

import (
	"signalbox/bench/internal/trace"
	"signalbox/kvhash"
	"signalbox/kvindex"
)

// mix makes a hash of a number (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// expand turns a request into local block hashes. Each block of the trace becomes split blocks; in another round of the trace all
// but the first block, the system prompt that everyone shares, is another text.
func expand(locals []uint64, r trace.Request, round, split int) []uint64 {
	for _, id := range r.Blocks {
		if id != 0 {
			id += uint64(round) << 32
		}
		for part := range split {
			locals = append(locals, mix(id*uint64(split)+uint64(part)))
		}
	}
	return locals
}

// step is what one request makes of the worker that it is sent to: a look-up before, then the engine's events.
type step struct {
	query  kvindex.Query
	events []kvindex.Event
	blocks int // operations in the events
}

// engine is the cache of one worker: it evicts what was not used for longest, the ends of prompts before their beginnings.
type engine struct {
	rank     kvindex.Rank
	capacity int
	where    map[uint64]int32 // by sequence hash
	slots    []slot
	// Slot 0 is the ring's start: next is the oldest, previous the newest.
}

type slot struct {
	sequence       uint64
	next, previous int32
}

func newEngine(worker, capacity int) *engine {
	return &engine{rank: kvindex.Rank{WorkerID: mix(uint64(worker))}, capacity: capacity, where: make(map[uint64]int32), slots: make([]slot, 1)}
}

// name is the engine's own hash of a block: no two engines have the same.
func (e *engine) name(sequence uint64) uint64 { return mix(sequence ^ e.rank.WorkerID) }

func (e *engine) detach(at int32) {
	s := e.slots[at]
	e.slots[s.previous].next, e.slots[s.next].previous = s.next, s.previous
}

func (e *engine) attach(at int32) {
	newest := e.slots[0].previous
	e.slots[at].previous, e.slots[at].next = newest, 0
	e.slots[newest].next, e.slots[0].previous = at, at
}

// serve computes a prompt and returns the events, at most one removal and one store.
func (e *engine) serve(locals, sequence []uint64) step {
	result := step{query: kvindex.Query{Locals: locals, Sequence: sequence}}
	held := 0
	for held < len(sequence) && held < e.capacity {
		at, ok := e.where[sequence[held]]
		if !ok {
			break
		}
		e.detach(at) // in use, and so not to be evicted
		held++
	}
	end := min(len(sequence), e.capacity)
	removed := kvindex.Event{Rank: e.rank, Op: kvindex.Removed}
	stored := kvindex.Event{Rank: e.rank, Op: kvindex.Stored}
	if held > 0 {
		stored.HasParent, stored.Parent = true, e.name(sequence[held-1])
	}
	for i := held; i < end; i++ {
		at := int32(len(e.slots))
		if len(e.where) < e.capacity {
			e.slots = append(e.slots, slot{})
		} else {
			at = e.slots[0].next
			e.detach(at)
			removed.Hashes = append(removed.Hashes, e.name(e.slots[at].sequence))
			delete(e.where, e.slots[at].sequence)
		}
		e.slots[at].sequence = sequence[i]
		e.where[sequence[i]] = at
		stored.Blocks = append(stored.Blocks, kvindex.Block{Hash: e.name(sequence[i]), Local: locals[i]})
	}
	for i := end - 1; i >= 0; i-- {
		e.attach(e.where[sequence[i]])
	}
	if len(removed.Hashes) > 0 {
		result.events = append(result.events, removed)
	}
	if len(stored.Blocks) > 0 {
		result.events = append(result.events, stored)
	}
	result.blocks = len(removed.Hashes) + len(stored.Blocks)
	return result
}

// workload is what the workers send: first until their caches are full, then more. Threads share the workers; a thread's steps are
// in the order in which it takes them.
type workload struct {
	filling, full [][]step // by thread
}

// arrange puts steps into the order in which they are taken, requests of different workers in turn, and their contents side by side
// in memory in that order: in a router they come from buffers that have just been written, and are no cache miss.
func arrange(work [][]step, threads int) [][]step {
	taken := make([][]step, threads)
	for thread := range taken {
		var locals, sequence, hashes []uint64
		var blocks []kvindex.Block
		var events []kvindex.Event
		for at, some := 0, true; some; at++ {
			some = false
			for worker := thread; worker < len(work); worker += threads {
				if at < len(work[worker]) {
					some = true
					taken[thread] = append(taken[thread], work[worker][at])
				}
			}
		}
		for _, s := range taken[thread] {
			locals, sequence = append(locals, s.query.Locals...), append(sequence, s.query.Sequence...)
			events = append(events, s.events...)
			for _, e := range s.events {
				hashes, blocks = append(hashes, e.Hashes...), append(blocks, e.Blocks...)
			}
		}
		for i := range taken[thread] {
			s := &taken[thread][i]
			s.query.Locals, locals = cut(locals, len(s.query.Locals))
			s.query.Sequence, sequence = cut(sequence, len(s.query.Sequence))
			s.events, events = cut(events, len(s.events))
			for j := range s.events {
				e := &s.events[j]
				e.Hashes, hashes = cut(hashes, len(e.Hashes))
				e.Blocks, blocks = cut(blocks, len(e.Blocks))
			}
		}
	}
	return taken
}

func cut[T any](list []T, n int) (front, rest []T) { return list[:n:n], list[n:] }

func simulate(requests []trace.Request, o options) workload {
	hasher, _ := kvhash.New(kvhash.Scope{BlockSize: 1}) // only chains hashes that are already there
	engines := make([]*engine, o.workers)
	for i := range engines {
		engines[i] = newEngine(i, o.capacity)
	}
	filling, full := make([][]step, o.workers), make([][]step, o.workers)
	operations, next := 0, 0
	for round := 0; operations < o.operations; round++ {
		for _, r := range requests {
			worker := next % o.workers
			next++
			locals := expand(nil, r, round, o.split)
			s := engines[worker].serve(locals, hasher.AppendSequence(nil, locals))
			if len(engines[worker].where) < o.capacity {
				filling[worker] = append(filling[worker], s)
			} else {
				full[worker] = append(full[worker], s)
				operations += s.blocks
			}
		}
	}
	return workload{filling: arrange(filling, o.threads), full: arrange(full, o.threads)}
}
