package affinity

import (
	"context"
	"time"

	"signalbox/inference"
	"signalbox/router"
)

// session is one session of the table. The router's mutex guards it.
type session struct {
	// ready is closed when the first request's way has come to an end, well or not; nil for a bound session.
	ready    chan struct{}
	target   router.Pin
	leases   int
	deadline time.Duration
	// version and writer say which binding this is, for peers.
	version, writer uint64
}

func (s *session) bound() bool { return s.ready == nil }

// idle tells whether the session's time is over.
func (s *session) idle(now time.Duration) bool {
	return s.bound() && s.leases == 0 && now >= s.deadline
}

// same tells whether a binding is to the same place. One without rank is only about the worker.
func same(a, b router.Pin) bool {
	return a.WorkerID == b.WorkerID && a.HasRank == b.HasRank && (!a.HasRank || a.Rank == b.Rank)
}

// hold is a request's claim on a session.
type hold struct {
	id      string
	session *session
	// first tells that this request binds the session.
	first bool
	// target is where the session is bound, unless first.
	target router.Pin
}

// acquire claims the session for a request: as the one that binds it, or as one that follows. It waits while another one is
// binding it.
func (r *Router) acquire(ctx context.Context, id string, wanted wanted, tried []uint64) (hold, error) {
	for {
		r.mutex.Lock()
		held, wait, err := r.claim(id, wanted, tried)
		r.mutex.Unlock()
		if wait == nil {
			return held, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return hold{}, router.Gone(ctx.Err())
		}
	}
}

// claim is acquire without the wait: it returns what to wait for instead. The caller holds the mutex.
func (r *Router) claim(id string, wanted wanted, tried []uint64) (held hold, wait <-chan struct{}, err error) {
	if r.closed {
		return hold{}, nil, router.Closed()
	}
	now := r.clock.Now()
	s := r.sessions[id]
	switch {
	case s == nil && len(r.sessions) >= r.options.MaxSessions:
		r.sweep(now)
		if len(r.sessions) >= r.options.MaxSessions {
			return hold{}, nil, inference.Errorf(inference.ResourceExhausted, "session affinity entry limit reached")
		}
	case s == nil:
	case !s.bound():
		return hold{}, s.ready, nil
	case s.idle(now), !r.usable(s.target, tried):
		// Whoever still holds the old binding keeps it to the end of its request; the session itself begins anew.
	default:
		if err := wanted.fits(id, s.target); err != nil {
			return hold{}, nil, err
		}
		s.leases++
		return hold{id: id, session: s, target: s.target}, nil, nil
	}
	s = &session{ready: make(chan struct{})}
	r.sessions[id] = s
	return hold{id: id, session: s, first: true}, nil, nil
}

// usable tells whether a worker can still be sent to, as far as this request knows.
func (r *Router) usable(target router.Pin, tried []uint64) bool {
	for _, id := range tried {
		if id == target.WorkerID {
			return false
		}
	}
	snapshot := r.options.Pool.Snapshot()
	index := snapshot.Find(target.WorkerID)
	return index >= 0 && !snapshot.State(index).Down()
}

// commit binds the session to where its request was taken. A request that followed a soft binding elsewhere moves it.
func (r *Router) commit(h *hold, taken router.Pin) {
	if r.options.WorkersOnly {
		taken = router.Pin{WorkerID: taken.WorkerID}
	}
	r.mutex.Lock()
	s, now := h.session, r.clock.Now()
	current := r.sessions[h.id] == s
	switch {
	case h.first:
		h.first = false
		close(s.ready)
		s.ready, s.target, s.leases = nil, taken, 1
		s.version, s.writer = r.nextVersion(), r.options.RouterID
	case !same(s.target, taken):
		s.target = taken
		s.version, s.writer = r.nextVersion(), r.options.RouterID
	}
	s.deadline = now + r.options.TTL
	binding := s.binding(h.id)
	r.mutex.Unlock()
	if current {
		r.publish(binding)
	}
}

// nextVersion returns a number that grows, also beyond a restart. The caller holds the mutex.
func (r *Router) nextVersion() uint64 {
	r.version++
	return r.version
}

func (s *session) binding(id string) Binding {
	return Binding{SessionID: id, Target: s.target, Version: s.version, Writer: s.writer}
}

// release ends a claim whose request was taken.
func (r *Router) release(h *hold) {
	r.mutex.Lock()
	s := h.session
	s.leases--
	s.deadline = r.clock.Now() + r.options.TTL
	current := r.sessions[h.id] == s
	binding := s.binding(h.id)
	r.mutex.Unlock()
	if current {
		r.publish(binding)
	}
}

// abandon ends a claim whose request was not taken. forget takes the binding away, so that the next request chooses anew.
func (r *Router) abandon(h *hold, forget bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	s := h.session
	if h.first {
		h.first, forget = false, true
		close(s.ready)
	} else {
		s.leases--
		s.deadline = r.clock.Now() + r.options.TTL
	}
	if forget && r.sessions[h.id] == s {
		delete(r.sessions, h.id)
	}
}

// sweep drops what has been idle for too long. The caller holds the mutex.
func (r *Router) sweep(now time.Duration) {
	for id, s := range r.sessions {
		if s.idle(now) {
			delete(r.sessions, id)
		}
	}
}
