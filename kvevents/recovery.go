package kvevents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"signalbox/kvindex"
)

// pace is how patient recovery is; tests are less so.
type pace struct {
	// attempts bound the queries of one recovery; pause is the wait after the first that failed, doubling up to longest.
	attempts       int
	pause, longest time.Duration
	// query bounds one query: a worker that can't read one never answers it.
	query time.Duration
	// spacing is the least time between two recoveries of a rank.
	spacing time.Duration
	// settle is how long after the first recovery of a connection a rank is asked once more: the publisher may have sent
	// events before it knew of the subscription, and if no others follow nothing would tell.
	settle time.Duration
	// retry is the wait after a recovery that was given up.
	retry time.Duration
	// silence is how long an expected rank may be without a publisher before that is an error.
	silence time.Duration
	// holdBytes bound the live messages that wait for a recovery of a rank.
	holdBytes int
}

var defaultPace = pace{attempts: 8, pause: 200 * time.Millisecond, longest: 5 * time.Second, query: 30 * time.Second,
	spacing: 20 * time.Millisecond, settle: time.Second, retry: time.Minute, silence: 10 * time.Second, holdBytes: 1 << 20}

// recoverLoop asks the worker for what is missing, until ctx ends.
func (f *feed) recoverLoop(ctx context.Context) {
	later := time.NewTimer(time.Hour)
	later.Stop()
	defer later.Stop()
	connection := uint64(0) // the epoch that has been settled
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-later.C:
			f.mu.Lock()
			switch {
			case !f.connected || f.lacks != needNothing:
			case f.state == Degraded:
				f.want(needAll)
			case f.begun:
				f.lacks = needTail // only to make sure: the state stays
			}
			f.mu.Unlock()
		}
		f.recover(ctx)
		f.mu.Lock()
		state, epoch := f.state, f.epoch
		f.mu.Unlock()
		switch {
		case state == Degraded:
			later.Reset(f.options.pace.retry)
		case state == Live && epoch != connection:
			connection = epoch
			later.Reset(f.options.pace.settle)
		}
		if !sleep(ctx, f.options.pace.spacing) {
			return
		}
	}
}

// sleep waits; false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// recover asks until nothing is missing, or until it has failed too often.
func (f *feed) recover(ctx context.Context) {
	pace := f.options.pace
	pause := pace.pause
	for attempt := 1; ; attempt++ {
		f.mu.Lock()
		lacks, epoch, since, connected := f.lacks, f.epoch, f.cursor+1, f.connected
		f.mu.Unlock()
		if lacks == needNothing || !connected { // a new connection asks by itself
			return
		}
		answer, err := f.ask(ctx, lacks, since)
		if ctx.Err() != nil {
			return
		}
		done, current := f.settle(query{lacks, epoch, since, attempt == pace.attempts}, answer, err)
		switch {
		case !current: // a new connection, a restart or a clear came in between
			attempt, pause = 0, pace.pause
			continue
		case done:
			return
		}
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, pace.longest)
	}
}

// ask sends one query; only so many are under way at the same time in the process.
func (f *feed) ask(ctx context.Context, lacks need, since uint64) (*answer, error) {
	select {
	case f.asking <- struct{}{}:
		defer func() { <-f.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, f.options.pace.query)
	defer cancel()
	start := &since
	if lacks == needAll {
		start = nil
	}
	return ask(ctx, f.options.Queries, f.target, f.rank, start)
}

// query is what was asked for.
type query struct {
	lacks need
	epoch uint64
	since uint64
	last  bool // no further one is sent in this recovery
}

// settle installs the answer to a query and applies what was held meanwhile. done tells that the recovery is at its end, well or
// not; current that the answer was still wanted.
func (f *feed) settle(q query, answer *answer, err error) (done, current bool) {
	f.threads <- struct{}{}
	defer func() { <-f.threads }()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch != q.epoch {
		return false, false
	}
	if err == nil {
		err = f.install(answer, q.lacks, q.since)
	}
	if err != nil {
		f.counters.failedQueries.Add(1)
		f.options.Logger.Debug("a query for KV events failed", "worker", f.rank.WorkerID, "dp_rank", f.rank.DPRank, "error", err)
		f.lacks = needAll // whatever made it fail, everything is the safest to ask for
	} else {
		f.lacks = needNothing
		f.replay()
	}
	switch {
	case f.lacks == needNothing:
		f.become(Live)
	case q.last:
		f.giveUp(err)
	default:
		return false, true
	}
	return true, true
}

// install brings the sink up to the answer. The caller holds mu.
func (f *feed) install(a *answer, lacks need, since uint64) error {
	switch {
	case a.kind == answerDump && lacks == needTail && a.last+1 == since:
		f.counters.unneeded.Add(1) // all there is, and it is known already
	case a.kind == answerDump:
		f.options.Sink.RemoveRank(f.rank)
		for i := range a.batch.Events {
			f.apply(&a.batch.Events[i])
		}
		f.begun, f.cursor = true, a.last
		f.fresh = a.last == 0 && len(a.batch.Events) == 0
		f.counters.dumps.Add(1)
	case lacks == needAll:
		return errors.New("the worker answered with some events where everything was asked for")
	case a.last+1 < since:
		f.counters.restarts.Add(1)
		return fmt.Errorf("the worker's newest event is %d, after %d has been seen: it began anew", a.last, since-1)
	case a.kind == answerTooNew:
		if a.last+1 != since {
			return fmt.Errorf("the worker has event %d and says that %d is too new", a.last, since)
		}
		f.counters.unneeded.Add(1)
	default:
		return f.patch(a)
	}
	return nil
}

// patch applies the events that were missing. The caller holds mu.
func (f *feed) patch(a *answer) error {
	for i := range a.batch.Events {
		event := &a.batch.Events[i]
		switch {
		case event.ID <= f.cursor:
		case event.ID == f.cursor+1, event.Change.Op == kvindex.Cleared: // what is before a clear may be left out
			f.advance(event)
		default:
			return fmt.Errorf("the answer goes from event %d to %d", f.cursor, event.ID)
		}
	}
	if f.cursor < a.last {
		return fmt.Errorf("the answer ends with event %d; the last one is %d", f.cursor, a.last)
	}
	f.counters.ranges.Add(1)
	return nil
}

// giveUp goes on without the missing events: an empty rank and what comes from now on. The caller holds mu.
func (f *feed) giveUp(err error) {
	if err == nil {
		err = errors.New("events get lost faster than they are recovered")
	}
	f.counters.failedRecovers.Add(1)
	f.options.Logger.Error("a worker does not tell what its KV cache holds; the rank's cache counts as empty but for new events",
		"worker", f.rank.WorkerID, "dp_rank", f.rank.DPRank, "tries", f.options.pace.attempts, "error", err)
	f.options.Sink.RemoveRank(f.rank)
	f.begun, f.fresh, f.lacks = false, false, needNothing
	held := f.held
	f.release()
	for _, message := range held {
		if f.replayed.Decode(message.payload) != nil {
			continue
		}
		for i := message.from; i < len(f.replayed.Events); i++ {
			if event := &f.replayed.Events[i]; !f.begun || event.ID > f.cursor {
				f.advance(event)
			}
		}
	}
	f.become(Degraded)
}
