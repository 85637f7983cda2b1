package kv

import (
	"context"
	"errors"
	"time"

	"signalbox/inference"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/cost"
	"signalbox/router/load"
	"signalbox/router/selection"
)

// This file is for services that choose workers and do not send requests themselves: their callers hash prompts as they like, and
// report by a request's id what became of it.

// Given is a prompt whose hashes the caller has. The slices are not kept.
type Given struct {
	// Tokens is the prompt's length.
	Tokens int
	// Locals are the hashes of its complete blocks, to be looked up in the index; Sequence is their public chain, for recorders.
	Locals, Sequence []uint64
	// Tracked are the identities under which the blocks count as active.
	Tracked []uint64
}

// Selection is what was chosen for a request.
type Selection struct {
	Rank inference.Rank
	// Overlap is what the rank holds of the prompt, in blocks.
	Overlap cost.Overlap
	// CachedTokens are the prompt tokens that this is worth.
	CachedTokens int
	// PotentialDecodeBlocks are the blocks that the rank has in use with the request.
	PotentialDecodeBlocks uint64
}

// Select chooses a rank for a request with a given prompt, and books it there under request.ID unless it is a question
// (Routing.QueryOnly). A question waits its turn too: its answer is where the request may go at once.
func (r *Router) Select(ctx context.Context, request *inference.Request, attempt router.Attempt, given Given) (chosen Selection, err error) {
	if err := ctx.Err(); err != nil {
		return chosen, router.Gone(err)
	}
	if r.closed.Load() {
		return chosen, router.Closed()
	}
	how := r.terms(request, &attempt)
	p := r.prompts.Get().(*prompt)
	defer func() {
		p.report, p.tracked = nil, nil
		r.prompts.Put(p)
	}()
	p.take(given)
	p.report = &chosen
	r.find(p, how, nil)
	lease := &Lease{}
	w, err := r.choose(lease, request, &attempt, how, p, nil)
	if w != nil {
		err = r.await(ctx, w)
	}
	if err != nil {
		return chosen, err
	}
	if how.record && len(p.locals) > 0 {
		r.options.Recorder.Record(kvindex.Rank(chosen.Rank), p.locals, p.sequence, r.clock.Now())
	}
	return chosen, nil
}

// take makes p the prompt that was given.
func (p *prompt) take(given Given) {
	p.tokens, p.exclusive = given.Tokens, 0
	p.locals, p.sequence = append(p.locals[:0], given.Locals...), append(p.sequence[:0], given.Sequence...)
	p.tracked, p.shared = given.Tracked, p.shared[:0]
}

// describe fills in what was chosen.
func (s *Selection) describe(row *selection.Row, cached int, p *prompt, blockSize int) {
	s.Rank, s.Overlap, s.CachedTokens = row.Rank, row.Overlap, cached
	s.PotentialDecodeBlocks = PotentialDecodeBlocks(row.Load, cost.Blocks(p.tokens, blockSize), trackedBlocks(p))
}

// ErrNoRank refuses a booking on a rank that is not one of the pool's.
var ErrNoRank = errors.New("the rank is not one of the pool's")

// Reserve books a request on the rank that it names. [ErrNoRank] and *[load.ExistsError] refuse it.
func (r *Router) Reserve(booked Booked) error {
	now := r.clock.Now()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.alignTo(r.options.Pool.Snapshot())
	if r.fleet.find(booked.Rank) < 0 {
		return ErrNoRank
	}
	booking := load.Booking{ID: booked.RequestID, Rank: booked.Rank, Hashes: booked.Hashes, PrefillTokens: booked.PrefillTokens}
	if _, err := r.tracker.Add(booking, now); err != nil {
		return err
	}
	if r.options.Replicas != nil {
		r.options.Replicas.Booked(booked)
	}
	return nil
}

// Holds tells whether the request is booked.
func (r *Router) Holds(id string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	_, known := r.tracker.Lookup(id)
	return known
}

// Prefilled ends the prefill of a booked request; false when it is not booked.
func (r *Router) Prefilled(id string) bool {
	return r.report(id, func(handle load.Handle, step Step, now time.Duration) {
		_ = r.tracker.PrefillComplete(handle, now) // it is booked
		if r.options.Replicas != nil {
			r.options.Replicas.PrefillCompleted(step)
		}
	})
}

// OutputBlock adds a block of output to a booked request, see [load.Tracker.OutputBlock]; false when it is not booked.
func (r *Router) OutputBlock(id string, fraction float64) bool {
	return r.report(id, func(handle load.Handle, _ Step, _ time.Duration) {
		_ = r.tracker.OutputBlock(handle, fraction) // it is booked
	})
}

// Free ends a booked request; false when it is not booked.
func (r *Router) Free(id string) bool {
	return r.report(id, func(handle load.Handle, step Step, now time.Duration) {
		r.tracker.Free(handle, now)
		if r.options.Replicas != nil {
			r.options.Replicas.Freed(step)
		}
	})
}

// Drop forgets a booked request whose end was not told. Replicas have their own opinion of that.
func (r *Router) Drop(id string) bool {
	return r.report(id, func(handle load.Handle, _ Step, now time.Duration) { r.tracker.Free(handle, now) })
}

// report does something to a booked request and lets those go that this makes room for.
func (r *Router) report(id string, do func(handle load.Handle, step Step, now time.Duration)) bool {
	now := r.clock.Now()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	handle, known := r.tracker.Lookup(id)
	if !known {
		return false
	}
	rank, _ := r.tracker.RankOf(handle)
	do(handle, Step{RequestID: id, Rank: rank}, now)
	r.drainAfter(rank)
	return true
}

// Prospect is what a rank would be busy with if it took a request.
type Prospect struct {
	RankLoad
	// CachedTokens are the prompt tokens that the rank has cached.
	CachedTokens int
}

// AppendProspects appends what every rank would be busy with if it took a request with the prompt, in no particular order.
func (r *Router) AppendProspects(list []Prospect, given Given) []Prospect {
	var held kvindex.Matches
	if r.options.Index != nil && len(given.Locals) > 0 {
		r.options.Index.Find(&held, kvindex.Query{Locals: given.Locals, Sequence: given.Sequence})
	}
	cached := make(map[inference.Rank]int, len(held.Ranks))
	for i := range held.Ranks {
		match := &held.Ranks[i]
		effective := r.weights.Effective(overlapOf(&match.Blocks))
		cached[inference.Rank(match.Rank)] = min(given.Tokens, cost.CachedTokens(effective, r.options.BlockSize))
	}
	now := r.clock.Now()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.alignTo(r.options.Pool.Snapshot())
	var view load.View
	r.tracker.Project(&view, given.Tracked, now)
	r.tracker.Ranks(func(row int32, rank inference.Rank) bool {
		list = append(list, Prospect{RankLoad{Rank: rank, Projection: view.At(row)}, cached[rank]})
		return true
	})
	return list
}

// Find looks up what every rank holds of a prompt; nothing without an index.
func (r *Router) Find(matches *kvindex.Matches, query kvindex.Query) {
	matches.Ranks = matches.Ranks[:0]
	if r.options.Index != nil && len(query.Locals) > 0 {
		r.options.Index.Find(matches, query)
	}
}
