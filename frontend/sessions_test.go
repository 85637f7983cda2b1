package frontend

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/model/card"
	"signalbox/router/mode"
)

// workerOf returns who served an answer that was asked with extra_fields worker_id.
func (k *kvFixture) askIn(session, prompt string, headers ...string) (worker uint64, status int) {
	k.t.Helper()
	got := <-k.send(prompt, append([]string{"x-dynamo-session-id", session}, headers...)...)
	var answer kvAnswer
	if err := json.Unmarshal([]byte(got.text), &answer); err != nil {
		k.t.Fatal(err, got.text)
	}
	return answer.NVExt.WorkerID.Decode, got.status
}

func sessionsFor(ttl time.Duration, change func(*Routing)) func(*Routing) {
	return func(r *Routing) {
		r.SessionTTL = ttl
		if change != nil {
			change(r)
		}
	}
}

// A session stays on its worker in every mode that can; when the worker dies it goes on elsewhere, and stays there.
func TestSessionsStayOnTheirWorker(t *testing.T) {
	for _, how := range []string{KVMode, string(mode.RoundRobin), string(mode.Random), string(mode.LeastLoaded)} {
		t.Run(how, func(t *testing.T) {
			k := startKV(t, sessionsFor(time.Hour, func(r *Routing) { r.Mode = how }))
			for range 3 {
				k.kvEngine(nil)
			}
			k.waitReady(3)
			homes := map[string]uint64{}
			for turn := range 4 {
				for _, session := range []string{"a", "b", "c", "d"} {
					worker, status := k.askIn(session, session+" asks "+strings.Repeat("again ", turn))
					if status != 200 || worker == 0 {
						t.Fatalf("status %d", status)
					}
					if home, known := homes[session]; known && home != worker {
						t.Errorf("session %s went to %d after %d", session, worker, home)
					}
					homes[session] = worker
				}
			}
			k.engines.refuse[homes["a"]] = true
			moved, status := k.askIn("a", "who is there?")
			if status != 200 || moved == homes["a"] {
				t.Errorf("status %d, served by %d after %d had died", status, moved, homes["a"])
			}
			if again, _ := k.askIn("a", "and now?"); again != moved {
				t.Errorf("then by %d, not %d", again, moved)
			}
			if _, status := k.askIn("a", "hello", "x-dynamo-worker-instance-id", "1"); status != 400 {
				t.Errorf("a worker other than the session's answered %d", status)
			}
			if _, status := k.askIn("a", "hello", "x-dynamo-dp-rank", "0"); status != 400 {
				t.Errorf("a rank without a worker answered %d", status)
			}
			if _, status := k.askIn(strings.Repeat("x", 257), "hello"); status != 400 {
				t.Errorf("a session id of 257 bytes answered %d", status)
			}
		})
	}
}

// Without the option a session id is carried along and binds nothing.
func TestSessionsAreOffByDefault(t *testing.T) {
	k := startKV(t, func(r *Routing) { r.Mode = string(mode.RoundRobin) })
	k.kvEngine(nil)
	k.kvEngine(nil)
	k.waitReady(2)
	first, _ := k.askIn("s", "one")
	if second, _ := k.askIn("s", "two"); second == first {
		t.Error("the second request did not go in turn")
	}
}

// Agents name their sessions in their own way; both legs of a disaggregated model are bound, each for itself.
func TestAgentsAndLegs(t *testing.T) {
	k := startKV(t, sessionsFor(time.Hour, func(r *Routing) { r.Mode = string(mode.RoundRobin) }))
	for range 2 {
		k.leg(card.PrefillWorker)
		k.leg(card.DecodeWorker)
	}
	waitFor(t, func() bool { return k.frontend.Ready("m") })
	waitFor(t, func() bool {
		members := 0
		for _, entry := range k.frontend.manager.Served() {
			members += len(entry.Set.Members)
		}
		return members == 4
	})
	type legs struct{ prefill, decode uint64 }
	ask := func(headers ...string) legs {
		var answer kvAnswer
		got := <-k.send("hello", headers...)
		if err := json.Unmarshal([]byte(got.text), &answer); err != nil || got.status != 200 {
			t.Fatal(err, got)
		}
		return legs{answer.NVExt.WorkerID.Prefill, answer.NVExt.WorkerID.Decode}
	}
	for _, header := range []string{"x-claude-code-session-id", "thread-id", "x-session-id", "x-dynamo-session-id"} {
		first := ask(header, "one "+header)
		ask() // moves the turn on
		for range 3 {
			if again := ask(header, "one "+header); again != first {
				t.Errorf("%s: %+v after %+v", header, again, first)
			}
		}
	}
}

// The soft mode moves a session off an overloaded worker, the hard one answers 529 for as long as it is busy.
func TestSessionsOfAnOverloadedWorker(t *testing.T) {
	for _, soft := range []bool{false, true} {
		k := startKV(t, sessionsFor(time.Hour, func(r *Routing) { r.SoftSessions = soft }))
		k.kvEngine(nil)
		k.kvEngine(nil)
		k.waitReady(2)
		home, _ := k.askIn("s", "hello")
		for _, entry := range k.frontend.manager.Served() {
			entry.Server.pool.Judge(home, inference.Errorf(inference.WorkerOverloaded, "full"))
		}
		worker, status := k.askIn("s", "again")
		if soft && (status != 200 || worker == home) || !soft && status != 529 {
			t.Errorf("soft %v: status %d, served by %d after %d", soft, status, worker, home)
		}
	}
}
