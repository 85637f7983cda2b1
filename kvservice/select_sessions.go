package kvservice

import (
	"context"
	"sync"
	"time"

	"signalbox/inference"
	"signalbox/router"
)

// maxSessions bounds how many sessions are known; more of them are served without being kept on a rank.
const maxSessions = 65536

type sessionKey struct {
	pool pool
	id   string
}

// session is one session of the table, whose mutex guards it. While its first reservation is being made it has no rank yet, and
// further ones wait; then it is bound. It ends when it has had no reservation for the table's time.
type session struct {
	// ready is closed when the first reservation has been made, or has failed; nil for a bound session.
	ready    chan struct{}
	rank     inference.Rank
	leases   int
	deadline time.Duration
}

func (e *session) bound() bool { return e.ready == nil }

func (e *session) idle(now time.Duration) bool {
	return e.bound() && e.leases == 0 && e.deadline <= now
}

// sessionTable says which rank a session is kept on. A nil table keeps none.
type sessionTable struct {
	ttl   time.Duration
	clock router.Clock

	mutex    sync.Mutex
	sessions map[sessionKey]*session
}

func newSessionTable(ttl time.Duration, clock router.Clock) *sessionTable {
	return &sessionTable{ttl: ttl, clock: clock, sessions: make(map[sessionKey]*session)}
}

// sessionHold is a reservation's claim on a session, from before its rank is chosen to its end. A nil hold is of no session.
type sessionHold struct {
	table   *sessionTable
	key     sessionKey
	session *session
	// first tells that this reservation binds the session; otherwise rank is where it is bound.
	first bool
	rank  inference.Rank
}

// acquire claims a session for a reservation. It waits while another one is being made that binds the session. usable tells whether a
// rank can still be sent to; a session whose rank cannot is bound anew. The hold is nil when the session is not kept at all.
func (t *sessionTable) acquire(ctx context.Context, name pool, id string, usable func(inference.Rank) bool) (*sessionHold, error) {
	if t == nil || id == "" {
		return nil, nil
	}
	for {
		hold, wait := t.claim(sessionKey{name, id}, usable)
		if wait == nil {
			return hold, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, router.Gone(ctx.Err())
		}
	}
}

// claim is acquire without the wait: it returns what to wait for instead.
func (t *sessionTable) claim(key sessionKey, usable func(inference.Rank) bool) (hold *sessionHold, wait <-chan struct{}) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	now := t.clock.Now()
	e := t.sessions[key]
	switch {
	case e == nil && len(t.sessions) >= maxSessions:
		if t.sweepLocked(now); len(t.sessions) >= maxSessions {
			return nil, nil
		}
	case e == nil, e.idle(now):
	case !e.bound():
		return nil, e.ready
	case usable(e.rank):
		e.leases++
		return &sessionHold{table: t, key: key, session: e, rank: e.rank}, nil
	}
	// Reservations that still hold a session whose rank is gone keep it to their end; the session itself begins anew.
	e = &session{ready: make(chan struct{})}
	t.sessions[key] = e
	return &sessionHold{table: t, key: key, session: e, first: true}, nil
}

// look returns where a session is kept, and changes nothing: questions neither bind sessions nor keep them alive.
func (t *sessionTable) look(name pool, id string) (rank inference.Rank, bound bool) {
	if t == nil || id == "" {
		return rank, false
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	e := t.sessions[sessionKey{name, id}]
	if e == nil || !e.bound() || e.idle(t.clock.Now()) {
		return rank, false
	}
	return e.rank, true
}

// bind keeps the session on the rank that was chosen, and lets those go on that wait for it.
func (h *sessionHold) bind(rank inference.Rank) {
	if h == nil || !h.first {
		return
	}
	h.table.mutex.Lock()
	defer h.table.mutex.Unlock()
	h.first, h.rank = false, rank
	close(h.session.ready)
	h.session.ready, h.session.rank, h.session.leases = nil, rank, 1
}

// end gives the claim up. A session that was not bound is no more; whoever waits for it tries to bind it.
func (h *sessionHold) end() {
	if h == nil {
		return
	}
	h.table.mutex.Lock()
	defer h.table.mutex.Unlock()
	if h.first {
		h.first = false
		close(h.session.ready)
		h.removeLocked()
		return
	}
	h.session.leases--
	h.session.deadline = h.table.clock.Now() + h.table.ttl
}

// leave takes the session's binding away. The claim has still to be ended.
func (h *sessionHold) leave() {
	h.table.mutex.Lock()
	defer h.table.mutex.Unlock()
	h.removeLocked()
}

// removeLocked takes the session out of the table, unless it has begun anew.
func (h *sessionHold) removeLocked() {
	if h.table.sessions[h.key] == h.session {
		delete(h.table.sessions, h.key)
	}
}

// sweep forgets sessions that are idle.
func (t *sessionTable) sweep(now time.Duration) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.sweepLocked(now)
}

func (t *sessionTable) sweepLocked(now time.Duration) {
	for key, e := range t.sessions {
		if e.idle(now) {
			delete(t.sessions, key)
		}
	}
}
