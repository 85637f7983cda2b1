package kv

import (
	"context"
	"math"
	"time"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/cost"
	"signalbox/router/policy"
	"signalbox/router/queue"
)

// DefaultOverlapRefresh is how long a request waits by default before what is cached for it is looked up again.
const DefaultOverlapRefresh = 10 * time.Second

// line is who waits for room. The router's mutex guards it.
//
// What holds whenever the mutex is free: nobody who waits could go. So a change at one rank can only let somebody go who may go to
// that rank, and most reports need no more than a look at it.
type line struct {
	profile *policy.Profile
	queue   *queue.Queue
	born    time.Duration
	// refused counts by class, and there by kind of limit.
	refused []Refusals

	// version is the snapshot that nobody could go under.
	version uint64
	// The rest is memory of one look at the queue: the ranks that plain requests may go to, and every rank's active tokens.
	plain        []router.RankRef
	plainVersion uint64
	special      []router.RankRef
	active       []uint64 // by rank ordinal
	// least is the smallest of those that plain requests may go to. Where all these compute as much per step, it alone tells whether
	// all are busy.
	least   uint64
	batch   uint64
	uniform bool
}

func newLine(profile *policy.Profile, now time.Duration) *line {
	return &line{profile: profile, queue: profile.Queue(), born: now, refused: make([]Refusals, len(profile.Classes))}
}

// waiter is a request in line. Its goroutine sleeps in [Router.PlaceIn] meanwhile, so that what belongs to the call stays valid.
type waiter struct {
	queue.Item
	lease    *Lease
	request  *inference.Request
	attempt  *router.Attempt
	how      terms
	pin      router.Pin // with its rank, when how.pinned
	prompt   *prompt
	steps    *Steps
	since    time.Duration
	answered chan error // room for one
}

// plain tells whether every rank would do.
func (w *waiter) plain() bool {
	routing := &w.request.Routing
	return routing.AllowedWorkerIDs == nil && len(routing.RequiredTaints) == 0 && len(w.attempt.Tried) == 0 && !w.how.pinned
}

// enqueue puts the request in line if it has to wait, and returns its waiter then. A class that is full is an error.
func (r *Router) enqueue(snapshot *router.Snapshot, lease *Lease, request *inference.Request, attempt *router.Attempt, how terms, p *prompt, steps *Steps, now time.Duration) (*waiter, error) {
	if r.closed.Load() {
		return nil, router.Closed()
	}
	choice := r.line.profile.Select(request.Routing.PolicyClass)
	if !choice.NeedsCache() && !r.line.profile.Classes[choice.Class(0)].Waits() {
		r.count(choice.Class(0), request)
		return nil, nil
	}
	// Who is overloaded counts here: it is what the request would wait for.
	overloaded := len(snapshot.Free()) != len(snapshot.Routable())
	if err := r.tabulate(snapshot, request, attempt, how, p, now, overloaded); err != nil {
		return nil, nil // nobody to wait for: the choice says why
	}
	best := 0
	if choice.NeedsCache() {
		best = r.bestCached()
	}
	class := choice.Class(uint64(p.tokens - min(best, p.tokens)))
	r.count(class, request)
	if !r.mustWait(class) {
		return nil, nil
	}
	if !choice.NeedsCache() {
		best = r.bestCached()
	}
	// The parameters do not outlive the call, so that requests that need not wait cost no allocation.
	heldAttempt := *attempt
	w := &waiter{lease: lease, request: request, attempt: &heldAttempt, how: how, prompt: p, steps: steps, since: now, answered: make(chan error, 1)}
	w.Item = queue.Item{Class: class, RawTokens: uint64(p.tokens), CachedTokens: uint64(best), Arrival: now - r.line.born}
	w.Value = w
	if how.pinned {
		w.pin = r.pin
		w.Lane = queue.Exact(r.table.Rows[0].Rank)
	}
	if jump := request.Routing.PriorityJump; jump != nil {
		w.Jump = *jump
	}
	if strict := request.Routing.StrictPriority; strict != nil {
		w.Strict = *strict
	}
	backlog := r.line.queue.Waiting(class) > 0
	if err := r.line.queue.Add(&w.Item); err != nil {
		limit := err.(*router.QueueLimitError)
		r.line.refused[class].count(limit.LimitKind)
		return nil, router.Refused(limit)
	}
	if r.line.queue.Len() == 1 {
		r.line.version = snapshot.Version
	}
	if backlog {
		r.drain() // it may be the first in line for a rank that is idle
	}
	return w, nil
}

// count counts a try that came; a question is none.
func (r *Router) count(class int, request *inference.Request) {
	if !request.Routing.QueryOnly {
		r.received[class]++
	}
}

// bestCached returns the most prompt tokens that a rank of the table has cached.
func (r *Router) bestCached() int {
	best := 0.0
	for i := range r.table.Rows {
		if overlap := r.table.Rows[i].Overlap; !overlap.IsZero() {
			best = max(best, r.weights.Effective(overlap))
		}
	}
	return cost.CachedTokens(best, r.options.BlockSize)
}

// mustWait tells whether a request of the class that may go to the table's ranks has to wait: others of its class do already, or
// all ranks are busy.
func (r *Router) mustWait(class int) bool {
	c := &r.line.profile.Classes[class]
	if !c.Waits() {
		return false
	}
	if r.line.queue.Waiting(class) > 0 {
		return true
	}
	for i := range r.table.Rows {
		row := &r.table.Rows[i]
		if !c.Busy(row.Load.ActivePrefillTokens, row.Worker.MaxNumBatchedTokens) {
			return false
		}
	}
	return true
}

// await waits until the request was placed or refused, or until the caller gives up.
func (r *Router) await(ctx context.Context, w *waiter) error {
	select {
	case err := <-w.answered:
		return err
	case <-ctx.Done():
	}
	r.mutex.Lock()
	inLine := w.Queued()
	if r.line.queue.Remove(&w.Item) {
		r.drain()
	}
	r.mutex.Unlock()
	if !inLine {
		// It was answered at the same moment.
		if err := <-w.answered; err == nil {
			w.lease.End(router.Gone(ctx.Err()))
		}
	}
	return router.Gone(ctx.Err())
}

// drainAfter lets requests go that a report about one rank made room for. The caller holds the mutex.
func (r *Router) drainAfter(rank inference.Rank) {
	if r.line == nil || r.line.queue.Len() == 0 {
		return
	}
	snapshot := r.options.Pool.Snapshot()
	index := snapshot.Find(rank.WorkerID)
	if snapshot.Version == r.line.version && index >= 0 && r.options.Predictor == nil {
		row, _ := r.tracker.Row(rank)
		active := r.tracker.PrefillTokens(row, r.clock.Now())
		busy := true
		for i := range r.line.profile.Classes {
			busy = busy && (r.line.queue.Waiting(i) == 0 || r.line.profile.Classes[i].Busy(active, snapshot.Workers[index].MaxNumBatchedTokens))
		}
		if busy {
			return
		}
	}
	r.drain()
}

// drain lets requests go until nobody can. The caller holds the mutex.
func (r *Router) drain() {
	for r.line != nil && r.line.queue.Len() > 0 {
		snapshot := r.options.Pool.Snapshot()
		r.alignTo(snapshot)
		now := r.clock.Now()
		r.line.look(r, snapshot, now)
		item := r.line.queue.Pop(func(item *queue.Item) bool { return r.blocked(snapshot, item.Value.(*waiter)) })
		if item == nil {
			r.line.version = snapshot.Version
			return
		}
		r.release(snapshot, item.Value.(*waiter), now)
	}
}

// look notes every rank's active tokens, and the ranks that plain requests may go to.
func (l *line) look(r *Router, snapshot *router.Snapshot, now time.Duration) {
	l.active = l.active[:0]
	for _, row := range r.fleet.rows {
		l.active = append(l.active, r.tracker.PrefillTokens(row, now))
	}
	if l.plainVersion != snapshot.Version || snapshot.Version == 0 {
		// Without anybody the list is empty, and the choice will say why.
		l.plain, _ = snapshot.AppendEligible(l.plain[:0], &router.Conditions{IgnoreOverload: true})
		l.plainVersion = snapshot.Version
		l.uniform = len(l.plain) > 0
		for _, ref := range l.plain {
			l.batch = snapshot.Workers[l.plain[0].Worker].MaxNumBatchedTokens
			l.uniform = l.uniform && snapshot.Workers[ref.Worker].MaxNumBatchedTokens == l.batch
		}
	}
	l.least = math.MaxUint64
	for _, ref := range l.plain {
		l.least = min(l.least, l.active[r.fleet.ordinal(ref)])
	}
}

// blocked tells whether all ranks that a waiter may go to are busy for its class. One that may go to none is not held up: the choice
// will tell it so.
func (r *Router) blocked(snapshot *router.Snapshot, w *waiter) bool {
	l := r.line
	refs := l.plain
	if !w.plain() {
		conditions := router.Conditions{Allowed: w.request.Routing.AllowedWorkerIDs, Required: w.request.Routing.RequiredTaints, Tried: w.attempt.Tried, IgnoreOverload: true}
		if w.how.pinned {
			conditions.Pin = &w.pin
		}
		var err error
		if l.special, err = snapshot.AppendEligible(l.special[:0], &conditions); err != nil {
			return false
		}
		refs = l.special
	}
	class := &l.profile.Classes[w.Class]
	if l.uniform && w.plain() {
		return class.Busy(l.least, l.batch)
	}
	for _, ref := range refs {
		if !class.Busy(l.active[r.fleet.ordinal(ref)], snapshot.Workers[ref.Worker].MaxNumBatchedTokens) {
			return false
		}
	}
	return len(refs) > 0
}

// release places a waiter that was taken out of line and tells it how that went.
func (r *Router) release(snapshot *router.Snapshot, w *waiter, now time.Duration) {
	waited := now - w.since
	if after := r.options.OverlapRefreshAfter; after > 0 && waited > after {
		r.find(w.prompt, w.how, nil)
	}
	err := r.place(snapshot, w.lease, w.request, w.attempt, w.how, w.prompt, w.steps, now)
	if err == nil {
		w.lease.Queued = true
		if d := w.lease.Decision; d != nil {
			d.PolicyClass, d.QueuedSeconds = r.line.profile.Classes[w.Class].Name, waited.Seconds()
		}
	}
	w.answered <- err
}

// Refusals counts requests that a full class refused, by the limit that was reached.
type Refusals struct{ Requests, RawTokens, CachedTokens uint64 }

func (r *Refusals) count(kind router.LimitKind) {
	switch kind {
	case router.LimitRequests:
		r.Requests++
	case router.LimitRawISLTokens:
		r.RawTokens++
	case router.LimitCachedTokens:
		r.CachedTokens++
	}
}

// ClassStats are the numbers of one policy class.
type ClassStats struct {
	Class string
	queue.Stats
	Refused Refusals
	// Received counts the tries that came, those that were refused included; questions do not count.
	Received uint64
}

// AppendClasses appends the numbers of every policy class, in order of configuration.
func (r *Router) AppendClasses(list []ClassStats) []ClassStats {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for i := range r.options.Profile.Classes {
		stats := ClassStats{Class: r.options.Profile.Classes[i].Name, Received: r.received[i]}
		if r.line != nil {
			stats.Stats, stats.Refused = r.line.queue.Stats(i), r.line.refused[i]
		}
		list = append(list, stats)
	}
	return list
}
