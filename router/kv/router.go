package kv

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/cost"
	"signalbox/router/load"
	"signalbox/router/queue"
	"signalbox/router/selection"
)

// Router is a [router.Router] that places requests by cached prefixes and load.
type Router struct {
	options Options
	weights cost.Weights
	clock   router.Clock
	plain   kvhash.Hasher
	prompts sync.Pool // of *prompt
	closed  atomic.Bool
	// period counts sweeps: a request that made progress says so once per period.
	period    atomic.Uint32
	anonymous atomic.Uint64

	mutex   sync.Mutex // guards everything below: choosing and booking are one step
	fleet   fleet
	tracker load.Tracker
	view    load.View
	table   selection.Table
	refs    []router.RankRef
	pin     router.Pin
	rowOf   []int32 // by rank ordinal; checked against the row before it is believed
	// loadRows are the tracker's rows of the table's.
	loadRows []int32
	// holds are the claims on predicted caches of requests in flight.
	holds map[load.Handle]*kvindex.Hold
	// plainVersion is the snapshot that refs and the table's rows are all eligible ranks of; 0 when they are something else.
	plainVersion uint64
	gone         []uint64 // workers that left and were not reported yet
	expired      uint64
	received     []uint64 // tries by policy class
	// unpredicted counts requests whose prefill the predictor could not estimate.
	unpredicted uint64
	line        *line   // who waits; nil where nobody ever does
	shadow      *shadow // nil without
}

var _ router.Router = (*Router)(nil)

// New returns a router. What cannot work together is an error that names it.
func New(options Options) (*Router, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	plain, err := kvhash.New(kvhash.Scope{BlockSize: options.BlockSize, Eagle: options.Eagle})
	if err != nil {
		return nil, err
	}
	r := &Router{options: options, weights: options.Config.Weights(), clock: options.Pool.Clock(), plain: plain}
	r.table.Random = rand.New(options.Random)
	r.prompts.New = func() any { return new(prompt) }
	r.period.Store(1)
	r.received = make([]uint64, len(options.Profile.Classes))
	if options.Shadow != nil {
		r.shadow = newShadow(options.Shadow, rand.NewPCG(r.table.Random.Uint64(), 0))
	}
	if options.Profile.Waits() {
		r.line = newLine(options.Profile, r.clock.Now())
	}
	r.align()
	options.Pool.Watch(func(*router.Snapshot) { r.align() })
	return r, nil
}

// Close refuses further requests, and those that wait.
func (r *Router) Close() {
	r.closed.Store(true)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.line != nil {
		r.line.queue.Clear(func(item *queue.Item) { item.Value.(*waiter).answered <- router.Closed() })
	}
}

// Config returns the configuration in force: a prefill pool does not track blocks, whatever it was given.
func (r *Router) Config() Config { return r.options.Config }

// Run does what is due from time to time, until ctx ends: once per expiry period it forgets requests whose end was lost, and it sees
// whether anybody who waits can go. It belongs on a goroutine of the caller.
func (r *Router) Run(ctx context.Context) {
	expiry, stopExpiry := r.clock.After(r.options.RequestExpiry)
	look, stopLook := r.nextLook()
	defer func() { stopExpiry(); stopLook() }()
	for {
		select {
		case <-expiry:
			r.sweep()
			expiry, stopExpiry = r.clock.After(r.options.RequestExpiry)
		case <-look:
			r.mutex.Lock()
			r.drain()
			r.mutex.Unlock()
			look, stopLook = r.nextLook()
		case <-ctx.Done():
			return
		}
	}
}

// nextLook returns when to look at the queue next although nothing was reported. Predicted prefills end without a report.
func (r *Router) nextLook() (<-chan struct{}, func()) {
	switch {
	case r.line == nil:
		return nil, func() {}
	case r.options.Predictor != nil:
		return r.clock.After(100 * time.Millisecond)
	}
	return r.clock.After(time.Minute)
}

func (r *Router) sweep() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.period.Add(1)
	r.expired += uint64(r.tracker.Sweep(r.clock.Now()))
	for handle, hold := range r.holds {
		if _, alive := r.tracker.RankOf(handle); !alive {
			hold.Release()
			delete(r.holds, handle)
		}
	}
	r.drain()
}

// Place implements [router.Router].
func (r *Router) Place(ctx context.Context, request *inference.Request, attempt router.Attempt) (*router.Placement, error) {
	lease := &Lease{}
	if err := r.PlaceIn(ctx, lease, request, attempt); err != nil {
		return nil, err
	}
	return &lease.Placement, nil
}

// PlaceIn is [Router.Place] into memory of the caller, for those who embed a lease in what they keep per request anyway. The
// lease must be zero, and stay where it is until its placement has ended.
func (r *Router) PlaceIn(ctx context.Context, lease *Lease, request *inference.Request, attempt router.Attempt) error {
	if err := ctx.Err(); err != nil {
		return router.Gone(err)
	}
	if r.closed.Load() {
		return router.Closed()
	}
	var steps *Steps
	var start time.Duration
	if r.options.Observer != nil {
		steps, start = &lease.steps, r.clock.Now()
	}
	how := r.terms(request, &attempt)
	p := r.prompts.Get().(*prompt)
	defer r.prompts.Put(p)
	if err := r.read(p, request, how.needs, steps); err != nil {
		return err
	}
	r.find(p, how, steps)
	r.askShared(p, request, steps)
	var chosen time.Duration
	if steps != nil {
		chosen = r.clock.Now()
	}
	w, err := r.choose(lease, request, &attempt, how, p, steps)
	if w != nil {
		err = r.await(ctx, w)
	}
	if err != nil {
		return err
	}
	if steps != nil {
		steps.Scheduling = r.clock.Now() - chosen
	}
	if how.record && len(p.locals) > 0 {
		if err := r.record(lease, request, p); err != nil {
			lease.Placement.End(nil)
			return err
		}
	}
	if steps != nil {
		steps.Total = r.clock.Now() - start
		lease.Placement.Reuse = r.options.Observer
		if steps.HitRate = lease.HitRate(); attempt.Prefill != nil {
			steps.HitRate = attempt.Prefill.HitRate()
		}
		r.options.Observer.Decided(&lease.Placement, steps)
	}
	return nil
}

// record tells the recorder of a placement.
func (r *Router) record(lease *Lease, request *inference.Request, p *prompt) error {
	rank := kvindex.Rank{WorkerID: lease.WorkerID, DPRank: lease.Rank}
	holder, holds := r.options.Recorder.(Holder)
	if !holds {
		r.options.Recorder.Record(rank, p.locals, p.sequence, r.clock.Now())
		return nil
	}
	hold := holder.Hold(rank, p.locals, p.sequence, r.clock.Now())
	if hold == nil {
		return nil
	}
	hasher, err := r.hasher(&request.Routing)
	if err != nil {
		hold.Release()
		return inference.Errorf(inference.Unroutable, "hash the prompt: %v", err)
	}
	stream := hasher.Stream()
	stream.Append(nil, nil, request.TokenIDs...)
	lease.booking.hold, lease.booking.stream, lease.FollowsOutput = hold, stream, true
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.holds == nil {
		r.holds = make(map[load.Handle]*kvindex.Hold)
	}
	r.holds[lease.booking.handle] = hold
	return nil
}

// find looks the prompt up in both indexes.
func (r *Router) find(p *prompt, how terms, steps *Steps) {
	p.held.Ranks, p.expected.Ranks = p.held.Ranks[:0], p.expected.Ranks[:0]
	if !how.lookup || len(p.locals) == 0 {
		return
	}
	var start time.Duration
	if steps != nil {
		start = r.clock.Now()
	}
	query := kvindex.Query{Locals: p.locals, Sequence: p.sequence}
	r.options.Index.Find(&p.held, query)
	if r.options.Predicted != nil {
		query.DeviceOnly = true
		r.options.Predicted.Find(&p.expected, query)
	}
	if steps != nil {
		steps.FindMatches = r.clock.Now() - start
	}
}

// terms are the conditions under which one request is placed.
type terms struct {
	needs
	trackPrefill bool
	pinned       bool
	pin          router.Pin
}

// terms joins the configuration with what the request and its attempt say.
func (r *Router) terms(request *inference.Request, attempt *router.Attempt) terms {
	config := &r.options.Config
	how := terms{trackPrefill: config.TrackPrefillTokens && !attempt.Untracked}
	how.track, how.reuse = config.TrackActiveBlocks, config.AssumeKVReuse
	credit := config.OverlapScoreCredit
	if override := request.RouterOverride; override != nil {
		if override.TrackPrefillTokens != nil {
			how.trackPrefill = *override.TrackPrefillTokens
		}
		if override.AssumeKVReuse != nil {
			how.reuse = *override.AssumeKVReuse
		}
		if override.OverlapScoreCredit != nil {
			credit = *override.OverlapScoreCredit
		}
	}
	// Without credit, and without prompt work that lower tiers could save, a look-up cannot change anything: the decode leg of
	// a disaggregated request goes by load alone.
	how.lookup = r.options.Index != nil && (credit > 0 || how.trackPrefill)
	how.record = r.options.Recorder != nil && !request.Routing.QueryOnly
	if attempt.Pin != nil {
		how.pin, how.pinned = *attempt.Pin, true
	} else if pin, named := router.Pinned(&request.Routing, attempt.Phase); named {
		// A rank without a worker means nothing here: ranks of different workers have nothing in common.
		how.pin, how.pinned = pin, true
	}
	return how
}
