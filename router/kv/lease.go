package kv

import (
	"time"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/load"
)

// Lease is a placement together with what the router keeps for it: one allocation per request, or none, see [Router.PlaceIn].
type Lease struct {
	router.Placement
	booking booked
	steps   Steps
}

// booked is a request in the load tracker.
type booked struct {
	router *Router
	handle load.Handle
	rank   inference.Rank
	step   Step // for replicas; zero without
	input  int  // tokens of the prompt
	blocks int  // of prompt and output
	output int  // tokens
	// expected is the client's guess of the output length.
	expected    int
	hasExpected bool
	dispatched  bool
	received    time.Time
	prefill     *router.Placement // of a decode leg
	period      uint32            // in which progress was reported last
	first       time.Duration
	// hold is the claim on the rank's predicted cache, stream makes identities of what is generated; nil without such a cache.
	hold   *kvindex.Hold
	stream *kvhash.Stream
}

var _ router.OutputLease = (*booked)(nil)

// Output adds the blocks that the tokens complete to the rank's predicted cache.
func (b *booked) Output(tokens []uint32) {
	if b.hold != nil {
		b.hold.Extend(b.stream.Append(nil, nil, tokens...))
	}
}

// Dispatched implements router.Lease.
func (b *booked) Dispatched() { b.dispatched = true }

// FirstToken ends the prefill.
func (b *booked) FirstToken() {
	r := b.router
	now := r.clock.Now()
	b.first = now
	b.tellFirstToken()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	// A request that expired meanwhile has nothing left to end.
	_ = r.tracker.PrefillComplete(b.handle, now)
	if r.options.Replicas != nil {
		r.options.Replicas.PrefillCompleted(b.step)
	}
	r.drainAfter(b.rank)
}

// tellFirstToken reports the times that end with the first token. A hand-over may be faster than the news that the prefill ended.
func (b *booked) tellFirstToken() {
	observer := b.router.options.Observer
	if observer == nil {
		return
	}
	at := time.Now()
	if !b.received.IsZero() {
		observer.FirstToken(at.Sub(b.received))
	}
	if b.prefill == nil {
		return
	}
	if computed, known := b.prefill.Computed(); known {
		observer.Transferred(max(0, at.Sub(computed)))
	} else {
		observer.Transferred(0)
	}
}

// Progress adds output blocks where they are tracked, and keeps the request from expiring. Most calls take no lock.
func (b *booked) Progress(newTokens int) {
	r := b.router
	b.output += newTokens
	if r.options.Config.TrackOutputBlocks {
		if total := (b.input + b.output + r.options.BlockSize - 1) / r.options.BlockSize; total > b.blocks {
			b.blocks = total
			b.addBlock()
		}
	}
	if period := r.period.Load(); period != b.period {
		b.period = period
		r.mutex.Lock()
		r.tracker.Touch(b.handle)
		r.mutex.Unlock()
	}
}

// addBlock counts one more block of output. With a guess of the length, the request's blocks weigh less the nearer its end is.
func (b *booked) addBlock() {
	r := b.router
	fraction := -1.0
	if b.hasExpected {
		fraction = max(0, 1-float64(b.output)/float64(max(b.expected, 1)))
	}
	r.mutex.Lock()
	_ = r.tracker.OutputBlock(b.handle, fraction) // as above
	r.mutex.Unlock()
	if r.options.Observer != nil && b.output > 1 {
		r.options.Observer.OutputBlock((r.clock.Now() - b.first) / time.Duration(b.output-1))
	}
}

// End frees the rank and judges the worker.
func (b *booked) End(outcome error) {
	r := b.router
	now := r.clock.Now()
	r.mutex.Lock()
	r.tracker.Free(b.handle, now)
	delete(r.holds, b.handle)
	if r.options.Replicas != nil {
		r.options.Replicas.Freed(b.step)
	}
	r.mutex.Unlock()
	b.hold.Release()
	r.options.Pool.Judge(b.rank.WorkerID, outcome)
	if r.line != nil {
		r.mutex.Lock()
		r.drainAfter(b.rank)
		r.mutex.Unlock()
	}
	if r.options.Observer != nil && b.dispatched {
		r.options.Observer.Ended(b.output)
	}
}
