package kvservice

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/kv"
)

// shiftedClock is the machine's clock, put forward.
type shiftedClock struct {
	router.Clock
	ahead atomic.Int64
}

func newShiftedClock() *shiftedClock { return &shiftedClock{Clock: router.SystemClock()} }

func (c *shiftedClock) Now() time.Duration { return c.Clock.Now() + time.Duration(c.ahead.Load()) }

func (c *shiftedClock) pass(d time.Duration) { c.ahead.Add(int64(d)) }

// workerOf is the worker that an answer names.
func workerOf(t tester, answer string) uint64 {
	t.Helper()
	var said struct {
		Worker uint64 `json:"worker_id"`
	}
	if err := json.Unmarshal([]byte(answer), &said); err != nil || said.Worker == 0 {
		t.Fatalf("%s names no worker: %v", answer, err)
	}
	return said.Worker
}

func TestSessionTable(t *testing.T) {
	clock := newShiftedClock()
	table := newSessionTable(time.Minute, clock)
	name, first, second := pool{"m", "g"}, inference.Rank{WorkerID: 1}, inference.Rank{WorkerID: 2}
	everywhere := func(inference.Rank) bool { return true }
	claim := func(id string, usable func(inference.Rank) bool) *sessionHold {
		t.Helper()
		hold, err := table.acquire(t.Context(), name, id, usable)
		if err != nil || hold == nil {
			t.Fatalf("session %s: %v, %v", id, hold, err)
		}
		return hold
	}
	bound := func(want inference.Rank, is bool) {
		t.Helper()
		if at, bound := table.look(name, "x"); bound != is || at != want {
			t.Errorf("the session is at %v, %v, want %v, %v", at, bound, want, is)
		}
	}
	binds := claim("x", everywhere)
	bound(inference.Rank{}, false)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := table.acquire(gone, name, "x", everywhere); inference.KindOf(err) != inference.Cancelled {
		t.Errorf("whoever gives up waiting gets %v", err)
	}
	binds.end()
	binds = claim("x", everywhere)
	if !binds.first {
		t.Error("a session whose first reservation failed is bound")
	}
	binds.bind(first)
	follows := claim("x", everywhere)
	if follows.first || follows.rank != first {
		t.Errorf("another reservation of the session: %+v", follows)
	}
	follows.bind(second) // it binds nothing
	clock.pass(2 * time.Minute)
	binds.end()
	table.sweep(clock.Now())
	bound(first, true)
	if _, elsewhere := table.look(pool{"other", "g"}, "x"); elsewhere {
		t.Error("another model has the same session")
	}
	clock.pass(2 * time.Minute)
	bound(first, true) // it has a reservation yet
	follows.end()
	clock.pass(59 * time.Second)
	bound(first, true)
	clock.pass(time.Second)
	bound(inference.Rank{}, false)
	table.sweep(clock.Now())
	if len(table.sessions) != 0 {
		t.Error("an idle session is kept")
	}
	old := claim("x", everywhere)
	old.bind(first)
	anew := claim("x", func(rank inference.Rank) bool { return rank != first })
	anew.bind(second)
	old.leave()
	old.end()
	bound(second, true) // what was said of the old binding does not touch the new one
	anew.leave()
	anew.end()
	bound(inference.Rank{}, false)
	for i := range maxSessions {
		claim(fmt.Sprint(i), everywhere).bind(first)
	}
	if hold, err := table.acquire(t.Context(), name, "x", everywhere); hold != nil || err != nil {
		t.Errorf("one session too many: %v, %v", hold, err)
	}
	for _, of := range []struct {
		table *sessionTable
		id    string
	}{{table, ""}, {nil, "x"}} {
		hold, err := of.table.acquire(t.Context(), name, of.id, everywhere)
		hold.bind(first)
		hold.end()
		if hold != nil || err != nil {
			t.Errorf("no session is a session: %v, %v", hold, err)
		}
	}
}

// crowded is a service with sessions, both workers of which are busy with reservations 1 and 2.
func crowded(t *testing.T) *Selector {
	t.Helper()
	threshold := 0.0
	s := newSelector(t, func(o *SelectOptions) {
		o.Config.QueueThreshold = &threshold
		o.SessionTTL = time.Minute
	})
	for id := 1; id <= 2; id++ {
		want(t, s, 201, "POST", "/reservations", fmt.Sprintf(`{"model_name":"m","token_ids":[1,2,3],"selection_id":"%d","worker_id":%d,"effective_prefill_tokens":3}`, id, id))
	}
	return s
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

// made returns how many reservations are being made.
func made(s *Selector) (count int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, r := range s.booked {
		if r.making {
			count++
		}
	}
	return count
}

// Reservations of one session that come together wait for the first one, and follow it. Questions wait for nobody.
func TestFirstReservationsOfASessionFollowEachOther(t *testing.T) {
	const more = 6
	s := crowded(t)
	type reply struct {
		status int
		text   string
	}
	answers := make(chan reply, more+1)
	ask := func(n int) {
		go func() { // ends with the answer
			status, text := call(s, "POST", "/select_and_reserve", fmt.Sprintf(`{"model_name":"m","token_ids":[%d,2,3],"selection_id":"s%d","session_id":"x"}`, 100+n, n))
			answers <- reply{status, text}
		}()
	}
	waiting := func(want int) bool {
		_, _, _, waiting := busy(t, s)
		return waiting == want
	}
	ask(0)
	until(t, "the first reservation waits in the queue", func() bool { return waiting(1) })
	for n := range more {
		ask(n + 1)
	}
	until(t, "all reservations are being made", func() bool { return made(s) == more+1 })
	question, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() { // ends with cancel
		defer close(asked)
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(question, "POST", "/select", strings.NewReader(`{"model_name":"m","token_ids":[1,2,3],"session_id":"x"}`)))
	}()
	until(t, "the question and one reservation wait in the queue", func() bool { return waiting(2) })
	cancel()
	<-asked
	until(t, "only one reservation waits in the queue", func() bool { return waiting(1) })
	want(t, s, 409, "POST", "/select_and_reserve", `{"model_name":"m","token_ids":[1],"selection_id":"s3","session_id":"x"}`)
	for id := 1; id <= 2; id++ {
		want(t, s, 200, "DELETE", fmt.Sprintf("/reservations/%d", id), "")
	}
	workers := map[uint64]bool{}
	for left := more + 1; left > 0; {
		select {
		case got := <-answers:
			left--
			if got.status != 200 {
				t.Fatalf("%d %s", got.status, got.text)
			}
			workers[workerOf(t, got.text)] = true
		case <-time.After(time.Millisecond):
			for n := range more + 1 { // what has a place is not busy with its prompt any more, and the next one may come
				call(s, "POST", fmt.Sprintf("/reservations/s%d/prefill_complete", n), "")
			}
		}
	}
	if len(workers) != 1 {
		t.Errorf("the session is on %v", workers)
	}
}

// When the first reservation of a session is given up, the next one takes its place; all are answered when the service ends.
func TestASessionWhoseFirstReservationIsGivenUp(t *testing.T) {
	s := crowded(t)
	answered := make(chan int, 2)
	ask := func(ctx context.Context, id string) {
		go func() { // ends with the answer
			recorder := httptest.NewRecorder()
			s.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, "POST", "/select_and_reserve",
				strings.NewReader(fmt.Sprintf(`{"model_name":"m","token_ids":[1,2,3],"selection_id":%q,"session_id":"x"}`, id))))
			answered <- recorder.Code
		}()
	}
	waiting := func() bool {
		_, _, _, waiting := busy(t, s)
		return waiting == 1
	}
	first, cancel := context.WithCancel(t.Context())
	ask(first, "first")
	until(t, "the first reservation waits in the queue", waiting)
	ask(t.Context(), "second")
	until(t, "the second reservation is being made", func() bool { return made(s) == 2 })
	cancel()
	<-answered
	until(t, "the second reservation waits in the queue", func() bool { return made(s) == 1 && waiting() })
	ask(t.Context(), "third")
	until(t, "the third reservation is being made", func() bool { return made(s) == 2 })
	s.Close()
	for range 2 {
		if status := <-answered; status != 503 {
			t.Errorf("the end of the service is told by status %d", status)
		}
	}
	if len(s.sessions.sessions) != 0 {
		t.Errorf("%d sessions are left", len(s.sessions.sessions))
	}
}

// A session lives as long as it has reservations, and its time after that; questions do not keep it alive.
func TestSessionsLiveWithTheirReservations(t *testing.T) {
	clock := newShiftedClock()
	s := newSelector(t, func(o *SelectOptions) { o.SessionTTL, o.Clock = time.Minute, clock })
	reserve := func(id string) uint64 {
		t.Helper()
		return workerOf(t, want(t, s, 200, "POST", "/select_and_reserve", fmt.Sprintf(`{"model_name":"m","token_ids":[1,2,3,4],"selection_id":%q,"session_id":"x"}`, id)))
	}
	question := func() uint64 {
		t.Helper()
		return workerOf(t, want(t, s, 200, "POST", "/select", `{"model_name":"m","token_ids":[9,2,3,4],"session_id":"x"}`))
	}
	home := reserve("a")
	other := 3 - home
	for n := range 6 { // whoever is not bound goes to the other one
		want(t, s, 201, "POST", "/reservations", fmt.Sprintf(`{"model_name":"m","token_ids":[%d,2,3,4,5,6,7,8],"selection_id":"crowd%d","worker_id":%d}`, 10+n, n, home))
	}
	clock.pass(2 * time.Minute)
	if got := question(); got != home {
		t.Error("a session with a reservation has ended")
	}
	want(t, s, 200, "DELETE", "/reservations/a", "")
	clock.pass(40 * time.Second)
	if got := question(); got != home {
		t.Error("a session has ended before its time")
	}
	clock.pass(40 * time.Second)
	if got := question(); got != other {
		t.Error("a question has kept a session alive")
	}
	if got := reserve("b"); got != other {
		t.Error("the session did not begin anew")
	}
	s.expire(clock.Now() + 6*time.Minute) // the reservation is forgotten by then
	clock.pass(2 * time.Minute)
	s.expire(clock.Now())
	if len(s.sessions.sessions) != 0 {
		t.Errorf("%d sessions are left", len(s.sessions.sessions))
	}
}

// A reservation that may not or will not go where its session is bound is refused, and the session may begin elsewhere.
func TestReservationsAgainstTheirSession(t *testing.T) {
	s := newSelector(t, func(o *SelectOptions) { o.SessionTTL = time.Minute })
	question := `{"model_name":"m","token_ids":[1,2,3,4],"session_id":"x","selection_id":%q,"allowed_worker_ids":[%d]}`
	want(t, s, 200, "POST", "/select", fmt.Sprintf(question, "first", 1))
	want(t, s, 200, "POST", "/select_and_reserve", fmt.Sprintf(question, "second", 2))
	if text := want(t, s, 400, "POST", "/reservations", `{"model_name":"m","selection_id":"first"}`); !strings.Contains(text, "session x is bound to worker 2, not 1") {
		t.Error(text)
	}
	want(t, s, 404, "POST", "/reservations", `{"model_name":"m","selection_id":"first"}`)
	if got := workerOf(t, want(t, s, 200, "POST", "/select_and_reserve", fmt.Sprintf(question, "third", 1))); got != 1 {
		t.Errorf("the session began anew on %d", got)
	}
	want(t, s, 503, "POST", "/select_and_reserve", fmt.Sprintf(question, "nowhere", 77))
	if text := want(t, s, 400, "POST", "/select_and_reserve", fmt.Sprintf(question, "fourth", 2)); !strings.Contains(text, "session x is bound to worker 1, not 2") {
		t.Error(text)
	}
	want(t, s, 200, "POST", "/select_and_reserve", fmt.Sprintf(question, "fifth", 2))
	want(t, s, 200, "DELETE", "/workers/2", "")
	if got := workerOf(t, want(t, s, 200, "POST", "/select_and_reserve", `{"model_name":"m","token_ids":[1,2,3,4],"session_id":"x"}`)); got != 1 {
		t.Errorf("a session whose worker left is on %d", got)
	}
}

// A replica that tells of a reservation on a rank that is not known here does not end one of that id that is being made.
func TestReplicasDoNotEndWhatIsBeingMade(t *testing.T) {
	s := crowded(t)
	answered := make(chan string, 1)
	go func() { // ends with the answer
		status, text := call(s, "POST", "/select_and_reserve", `{"model_name":"m","token_ids":[1,2,3],"selection_id":"r","session_id":"x"}`)
		answered <- fmt.Sprint(status, " ", text)
	}()
	until(t, "the reservation is being made", func() bool { return made(s) == 1 })
	for _, kind := range []kv.RemoteKind{kv.RemoteBooked, kv.RemoteFreed} {
		s.apply(pool{"m", "default"}, 4, kv.Remote{Kind: kind, Booked: kv.Booked{Step: kv.Step{RequestID: "r", Rank: inference.Rank{WorkerID: 77}}}})
	}
	want(t, s, 409, "POST", "/select_and_reserve", `{"model_name":"m","token_ids":[1],"selection_id":"r"}`)
	want(t, s, 200, "DELETE", "/reservations/1", "")
	if got := <-answered; !strings.HasPrefix(got, "200 ") {
		t.Error(got)
	}
	want(t, s, 200, "DELETE", "/reservations/r", "")
}
