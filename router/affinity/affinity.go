package affinity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"signalbox/inference"
	"signalbox/router"
)

// DefaultMaxSessions is how many sessions a router knows at most; a new one beyond that is refused with status 529.
const DefaultMaxSessions = 65536

// sweepInterval is the longest time between two looks for idle sessions.
const sweepInterval = 30 * time.Second

// Options describe a router with sessions.
type Options struct {
	// Inner places requests; Pool is its pool. The router owns Inner and closes it.
	Inner router.Router
	Pool  *router.Pool
	// TTL is how long an idle session stays bound; at least a second.
	TTL time.Duration
	// Soft moves a session when its worker is overloaded; otherwise its requests are refused for as long as that lasts.
	Soft bool
	// WorkersOnly binds workers and not ranks, for routers that choose no ranks.
	WorkersOnly bool
	// Explicit tells that every request names its worker itself: bindings check what it names and never stand in for it.
	Explicit bool
	// RouterID names this process in what it publishes.
	RouterID uint64
	// Publish tells other routers of a binding; nil for nobody. It must not block.
	Publish func(Binding)
	// MaxSessions bounds the table; 0 means [DefaultMaxSessions].
	MaxSessions int
}

// Binding says where a session is bound.
type Binding struct {
	SessionID string
	Target    router.Pin
	// Version grows with every new binding of the router called Writer. Both are passed on as they are when a binding is used again.
	Version, Writer uint64
}

// Router is a [router.Router] that keeps sessions on their workers.
type Router struct {
	options Options
	clock   router.Clock

	mutex    sync.Mutex
	sessions map[string]*session
	version  uint64
	closed   bool
}

var _ router.Router = (*Router)(nil)

// New returns a router around another one.
func New(options Options) (*Router, error) {
	switch {
	case options.Inner == nil || options.Pool == nil:
		return nil, errors.New("session affinity needs a router and its pool")
	case options.TTL < time.Second:
		return nil, fmt.Errorf("session affinity: time to live %s: at least a second is needed", options.TTL)
	case options.MaxSessions < 0:
		return nil, fmt.Errorf("session affinity: %d sessions: the number must be positive", options.MaxSessions)
	}
	if options.MaxSessions == 0 {
		options.MaxSessions = DefaultMaxSessions
	}
	return &Router{options: options, clock: options.Pool.Clock(), sessions: make(map[string]*session), version: uint64(time.Now().UnixNano())}, nil
}

// Inner returns the router that places requests.
func (r *Router) Inner() router.Router { return r.options.Inner }

// Close implements [router.Router].
func (r *Router) Close() {
	r.mutex.Lock()
	r.closed = true
	clear(r.sessions)
	r.mutex.Unlock()
	r.options.Inner.Close()
}

// Run drops idle sessions until ctx ends. It belongs on a goroutine of the caller.
func (r *Router) Run(ctx context.Context) {
	for {
		passed, stop := r.clock.After(min(r.options.TTL, sweepInterval))
		select {
		case <-passed:
			r.mutex.Lock()
			r.sweep(r.clock.Now())
			r.mutex.Unlock()
		case <-ctx.Done():
			stop()
			return
		}
	}
}

// Sessions returns how many sessions are known.
func (r *Router) Sessions() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.sessions)
}

func (r *Router) publish(binding Binding) {
	if r.options.Publish != nil {
		r.options.Publish(binding)
	}
}

// Learn takes note of a binding that another router told. Its worker must be one of the pool's. A session that is not bound here, or
// whose time is over, is bound; one that is bound to the same place lives on; everything else stays as it is.
func (r *Router) Learn(binding Binding) {
	target := binding.Target
	if r.options.WorkersOnly {
		target = router.Pin{WorkerID: target.WorkerID}
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.closed || binding.SessionID == "" || r.options.Pool.Snapshot().Find(target.WorkerID) < 0 {
		return
	}
	now := r.clock.Now()
	s := r.sessions[binding.SessionID]
	switch {
	case s == nil && len(r.sessions) >= r.options.MaxSessions:
		return
	case s == nil, s.idle(now):
		r.sessions[binding.SessionID] = &session{target: target, deadline: now + r.options.TTL, version: binding.Version, writer: binding.Writer}
	case s.bound() && same(s.target, target):
		s.deadline = now + r.options.TTL
	}
}

// wanted is the place that a request names itself.
type wanted struct {
	pin   router.Pin
	named bool
}

// fits tells whether a session that is bound to target may do what the request wants.
func (w wanted) fits(id string, target router.Pin) error {
	switch {
	case !w.named:
		return nil
	case w.pin.WorkerID != target.WorkerID:
		return inference.Errorf(inference.InvalidArgument, "session %s is bound to worker %d, not %d", id, target.WorkerID, w.pin.WorkerID)
	case w.pin.HasRank && !target.HasRank:
		return inference.Errorf(inference.InvalidArgument, "session %s has worker-only affinity and cannot add DP rank %d", id, w.pin.Rank)
	case w.pin.HasRank && w.pin.Rank != target.Rank:
		return inference.Errorf(inference.InvalidArgument, "session %s is bound to DP rank %d of worker %d, not %d", id, target.Rank, target.WorkerID, w.pin.Rank)
	}
	return nil
}

// Place implements [router.Router].
func (r *Router) Place(ctx context.Context, request *inference.Request, attempt router.Attempt) (*router.Placement, error) {
	id := request.Routing.SessionID
	if id == "" {
		return r.options.Inner.Place(ctx, request, attempt)
	}
	want := wanted{}
	if attempt.Pin != nil {
		want = wanted{*attempt.Pin, true}
	} else {
		want.pin, want.named = router.Pinned(&request.Routing, attempt.Phase)
		if !want.named && want.pin.HasRank {
			return nil, inference.Errorf(inference.InvalidArgument, "dp_rank %d needs a worker id in a session", want.pin.Rank)
		}
	}
	if r.options.Explicit && !want.named {
		return r.options.Inner.Place(ctx, request, attempt) // which says what is missing
	}
	if request.Routing.QueryOnly {
		return r.answer(ctx, request, attempt, want)
	}
	for again := false; ; again = true {
		placement, err := r.placeOnce(ctx, request, attempt, want)
		var stale *staleError
		if !errors.As(err, &stale) {
			return placement, err
		}
		if want.named || again {
			return nil, stale.cause
		}
		// The binding is gone: the request chooses anew, once.
	}
}

// staleError is a failure to follow a binding, which was taken away because of it.
type staleError struct{ cause error }

func (e *staleError) Error() string { return e.cause.Error() }

func (r *Router) placeOnce(ctx context.Context, request *inference.Request, attempt router.Attempt, want wanted) (*router.Placement, error) {
	h, err := r.acquire(ctx, request.Routing.SessionID, want, attempt.Tried)
	if err != nil {
		return nil, err
	}
	follows := !h.first
	if follows {
		r.follow(&attempt, want, &h.target)
	}
	placement, err := r.options.Inner.Place(ctx, request, attempt)
	if err != nil {
		stale := follows && speaksAgainst(err)
		r.abandon(&h, stale)
		if stale {
			return nil, &staleError{err}
		}
		return nil, err
	}
	placement.Wrap(func(inner router.Lease) router.Lease {
		return &lease{router: r, hold: h, inner: inner, target: placement.Pin()}
	})
	return placement, nil
}

// follow makes the attempt go where the session is bound.
func (r *Router) follow(attempt *router.Attempt, want wanted, target *router.Pin) {
	switch {
	case r.options.Explicit:
	case r.options.Soft && !want.named:
		attempt.Prefer = target
	default:
		attempt.Pin = target
	}
}

// answer places a question: it goes by the binding, and makes none.
func (r *Router) answer(ctx context.Context, request *inference.Request, attempt router.Attempt, want wanted) (*router.Placement, error) {
	r.mutex.Lock()
	s := r.sessions[request.Routing.SessionID]
	var target router.Pin
	bound := s != nil && s.bound() && !s.idle(r.clock.Now()) && r.usable(s.target, attempt.Tried)
	if bound {
		target = s.target
	}
	r.mutex.Unlock()
	if bound {
		if err := want.fits(request.Routing.SessionID, target); err != nil {
			return nil, err
		}
		r.follow(&attempt, want, &target)
	}
	return r.options.Inner.Place(ctx, request, attempt)
}

// speaksAgainst tells whether a failure means that the session had better go elsewhere. A client that gave up says nothing, and a worker
// that is only busy will have room again.
func speaksAgainst(err error) bool {
	switch inference.KindOf(err) {
	case inference.Cancelled, inference.ResourceExhausted, inference.WorkerOverloaded:
		return false
	}
	return true
}

// lease is a session's claim around the placement's own lease.
type lease struct {
	router *Router
	hold   hold
	inner  router.Lease // may be nil
	target router.Pin
	taken  bool
}

var _ router.OutputLease = (*lease)(nil)

// Dispatched binds the session.
func (l *lease) Dispatched() {
	l.taken = true
	l.router.commit(&l.hold, l.target)
	if l.inner != nil {
		l.inner.Dispatched()
	}
}

// FirstToken implements router.Lease.
func (l *lease) FirstToken() {
	if l.inner != nil {
		l.inner.FirstToken()
	}
}

// Progress implements router.Lease.
func (l *lease) Progress(newTokens int) {
	if l.inner != nil {
		l.inner.Progress(newTokens)
	}
}

// Output implements router.OutputLease.
func (l *lease) Output(tokens []uint32) {
	if follower, follows := l.inner.(router.OutputLease); follows {
		follower.Output(tokens)
	}
}

// End gives the claim up.
func (l *lease) End(outcome error) {
	if l.inner != nil {
		l.inner.End(outcome)
	}
	if l.taken {
		l.router.release(&l.hold)
		return
	}
	l.router.abandon(&l.hold, inference.KindOf(outcome) != inference.Cancelled)
}
