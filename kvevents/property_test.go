package kvevents

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"signalbox/discovery/mem"
	"signalbox/kvindex"
)

// step is one thing that happens to a rank's publisher, its message and the connection.
type step struct {
	Rank   int
	Events int // in the message
	Fate   string
	Random uint64
	Wait   time.Duration
}

// TestWhateverHappensTheSinkEndsEqual loses, repeats, delays and spoils messages, breaks connections, restarts publishers and fails
// queries. Once all is quiet and one more event has come, the sink holds what the ranks hold; and unless a recovery was given up it
// never saw an event that its publisher's own order makes impossible.
func TestWhateverHappensTheSinkEndsEqual(t *testing.T) {
	fates := []string{"arrives", "arrives", "arrives", "arrives", "is lost", "is lost", "comes twice", "comes later", "is spoilt", "connection breaks", "restarts", "restarts unseen", "clears"}
	total := Counters{}
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{
				Rank: rapid.IntRange(0, 1).Draw(t, "rank"), Events: rapid.IntRange(1, 4).Draw(t, "events"),
				Fate: rapid.SampledFrom(fates).Draw(t, "fate"), Random: rapid.Uint64().Draw(t, "random"),
				Wait: time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 5, 50, 2000}).Draw(t, "wait")) * time.Millisecond,
			}
		}), 1, 60).Draw(rt, "steps")
		trouble := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 20).Draw(rt, "trouble of queries")
		legacy := rapid.Bool().Draw(rt, "legacy")
		problem := ""
		synctest.Test(t, func(t *testing.T) { problem = live(t, steps, trouble, legacy, &total) })
		if problem != "" {
			rt.Fatal(problem)
		}
	})
	if total.Gaps == 0 || total.Dumps == 0 || total.Ranges == 0 || total.Unneeded == 0 || total.Stale == 0 || total.Restarts == 0 || total.Malformed == 0 ||
		total.Disconnects == 0 || total.FailedQueries == 0 || total.Dropped == 0 {
		t.Errorf("not everything happened: %+v", total)
	}
}

func live(t *testing.T, steps []step, trouble []int, legacy bool, total *Counters) string {
	f := newFleet()
	f.querying = func(ctx context.Context, _ *uint64) error {
		f.mu.Lock()
		kind := trouble[f.queries%len(trouble)]
		if f.queries > 200 {
			kind = 9
		}
		f.mu.Unlock()
		switch kind {
		case 0:
			return errRefused
		case 1, 2:
			sleep(ctx, 30*time.Millisecond)
		case 3:
			sleep(ctx, time.Second)
		case 4:
			<-ctx.Done() // a worker that never calls home
			return ctx.Err()
		}
		return nil
	}
	worker := f.store.Open(mem.Options{})
	ranks := []*fakeRank{f.join(worker, 0, 11, true), f.join(worker, 1, 12, true)}
	ranks[0].legacy = legacy
	sink := newBooks()
	s := f.start(t, sink, func(o *Options) {
		o.pace = defaultPace
		o.pace.holdBytes = 1000
		o.pace.query, o.pace.attempts = 3*time.Second, 3
	})
	defer f.close(s, worker)
	late := map[int]Envelope{}
	for _, step := range steps {
		r := ranks[step.Rank]
		random := step.Random
		draw := func(n uint64) uint64 {
			random = random*6364136223846793005 + 1442695040888963407
			return (random >> 33) % n
		}
		switch step.Fate {
		case "restarts":
			// The end of the connection is seen before anybody can ask the new life about the old one.
			for _, pause := range []time.Duration{time.Duration(draw(2)) * 200 * time.Millisecond, 0} {
				synctest.Wait()
				r.disconnect()
				time.Sleep(pause)
			}
			synctest.Wait()
			r.restart()
		case "restarts unseen": // as through a broker: the connection stays. It is known by its messages, so there must have been one
			synctest.Wait()
			r.publish(r.churn(draw))
			synctest.Wait()
			r.restart()
			time.Sleep(time.Millisecond) // its first message is younger than the last one before
		case "connection breaks":
			r.disconnect()
		}
		var events [][]byte
		if step.Fate == "clears" {
			events = append(events, r.clear())
		}
		for range step.Events {
			events = append(events, r.churn(draw))
		}
		envelope := r.envelope(events...)
		switch step.Fate {
		case "is lost":
		case "comes twice":
			r.deliver(envelope)
			r.deliver(envelope)
		case "comes later":
			late[step.Rank] = envelope
			time.Sleep(step.Wait)
			continue
		case "is spoilt":
			envelope.Payload = envelope.Payload[:draw(uint64(len(envelope.Payload)))]
			r.deliver(envelope)
		default:
			r.deliver(envelope)
		}
		if envelope, ok := late[step.Rank]; ok {
			r.deliver(envelope)
			delete(late, step.Rank)
		}
		time.Sleep(step.Wait)
	}
	f.mu.Lock()
	f.querying = nil // the trouble is over
	f.mu.Unlock()
	time.Sleep(3 * time.Minute) // and what was given up is tried again
	for _, r := range ranks {
		r.publish(r.churn(func(n uint64) uint64 { return 5 % n }))
	}
	time.Sleep(10 * time.Second)
	synctest.Wait()
	for i, r := range ranks {
		if got, want := sink.of(r.rank), r.truth(); !maps.Equal(got, want) {
			return fmt.Sprintf("rank %d: the sink holds %v, the rank %v; %+v", i, got, want, s.Status())
		}
	}
	for _, status := range s.Status() {
		if status.State != Live {
			return fmt.Sprintf("rank %d is %s", status.Rank.DPRank, status.State)
		}
	}
	c := s.Counters()
	if c.FailedRecoveries == 0 && (len(sink.problems) > 0 || c.UnknownBlock+c.UnknownParent+c.InvalidEvent > 0) { // else events are missing
		return fmt.Sprintf("%v: %+v", sink.problems, c)
	}
	total.add(c)
	return ""
}

func (c *Counters) add(o Counters) {
	c.Gaps += o.Gaps
	c.Dumps += o.Dumps
	c.Ranges += o.Ranges
	c.Unneeded += o.Unneeded
	c.Stale += o.Stale
	c.Restarts += o.Restarts
	c.Malformed += o.Malformed
	c.Disconnects += o.Disconnects
	c.FailedQueries += o.FailedQueries
	c.FailedRecoveries += o.FailedRecoveries
	c.Dropped += o.Dropped
}

// churn stores or removes something, leaves first as engines do: hashes form a binary tree, 1 at its root.
func (r *fakeRank) churn(draw func(uint64) uint64) []byte {
	held := r.truth()
	tier := kvindex.Tier(draw(2))
	hash := 1 + draw(31)
	has := func(hash uint64) bool { _, ok := held[place{tier, hash}]; return ok }
	for has(hash) && (has(2*hash) || has(2*hash+1)) { // down to a leaf
		hash *= 2
		if !has(hash) {
			hash++
		}
	}
	if has(hash) {
		return r.remove(tier, hash)
	}
	for hash > 1 && !has(hash/2) { // up to what can be stored
		hash /= 2
	}
	if child := 2 * hash; child < 32 && draw(2) == 0 {
		return r.store(tier, hash/2, hash, child)
	}
	return r.store(tier, hash/2, hash)
}
