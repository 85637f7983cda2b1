package frontend

import (
	"context"
	"sync"

	"signalbox/discovery"
	"signalbox/kvevents/enginefeed"
	"signalbox/kvindex"
	"signalbox/observe"
)

// Events returns an event plane that follows the servers' own events beside those of another one.
func (u *Upstream) Events(others EventPlane) EventPlane { return joinedEvents{others, u} }

type joinedEvents struct {
	EventPlane
	upstream *Upstream
}

// Feed implements EventPlane.
func (j joinedEvents) Feed(target FeedTarget) (EventFeed, error) {
	own := discovery.EndpointID{Namespace: j.upstream.namespace, Component: upstreamComponent, Name: tokenEndpoint}
	if target.Endpoint != own {
		return j.EventPlane.Feed(target)
	}
	return &upstreamFeed{upstream: j.upstream, target: target, ranks: make(map[kvindex.Rank]*followed)}, nil
}

// upstreamFeed fills an index with what servers publish.
type upstreamFeed struct {
	upstream *Upstream
	target   FeedTarget

	mutex sync.Mutex
	ranks map[kvindex.Rank]*followed
	past  enginefeed.Counters // of those who have left
}

// followed is a rank whose events are followed.
type followed struct {
	*enginefeed.Follower
	cancel context.CancelFunc
	done   chan struct{}
}

func (f *followed) end() {
	f.cancel()
	<-f.done
}

// Expect implements EventFeed: it begins to follow the ranks.
func (f *upstreamFeed) Expect(workerID uint64, ranks ...uint32) {
	server := f.upstream.server(workerID)
	if server == nil {
		return // it has left already, which this feed is told in a moment
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, number := range ranks {
		rank := kvindex.Rank{WorkerID: workerID, DPRank: number}
		if f.ranks[rank] != nil {
			continue
		}
		events, replay := server.EventsOf(number)
		logger := f.target.Logger.With("server", server.URL, "dp_rank", number, "kv_events", events)
		follower, err := enginefeed.New(enginefeed.Source{Rank: rank, BlockSize: int(server.About.BlockSize), Endpoint: events, ReplayEndpoint: replay, CatchUp: true},
			f.target.Index, logger)
		if err != nil {
			logger.Error("a server's KV events cannot be followed; it is chosen by load alone", "error", err)
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		started := &followed{Follower: follower, cancel: cancel, done: make(chan struct{})}
		f.ranks[rank] = started
		go func() { // ends with ctx
			defer close(started.done)
			follower.Follow(ctx)
		}()
	}
}

// Leave implements EventFeed.
func (f *upstreamFeed) Leave(workerID uint64) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for rank, follower := range f.ranks {
		if rank.WorkerID == workerID {
			follower.end()
			f.past = plus(f.past, follower.Counters())
			delete(f.ranks, rank)
		}
	}
	f.target.Index.RemoveWorker(workerID)
}

// Silent implements EventFeed: a rank is silent while it is not connected. One that stores nothing has nothing to tell.
func (f *upstreamFeed) Silent() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	count := 0
	for _, follower := range f.ranks {
		if !follower.Active() {
			count++
		}
	}
	return count
}

// WaitSynced implements EventFeed.
func (f *upstreamFeed) WaitSynced(ctx context.Context) error {
	f.mutex.Lock()
	waiting := make([]<-chan struct{}, 0, len(f.ranks))
	for _, follower := range f.ranks {
		waiting = append(waiting, follower.Ready())
	}
	f.mutex.Unlock()
	for _, ready := range waiting {
		select {
		case <-ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Stats implements EventFeed.
func (f *upstreamFeed) Stats() observe.EventStats {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	c := f.past
	sources := map[string]int{"preconnected": 0, "active": 0}
	for _, follower := range f.ranks {
		c = plus(c, follower.Counters())
		if follower.Active() {
			sources["active"]++
		} else {
			sources["preconnected"]++
		}
	}
	return observe.EventStats{
		Applied: map[observe.EventOutcome]uint64{
			{Type: "stored", Status: "ok"}:                     c.Stored - min(c.Stored, c.UnknownParent+c.Refused),
			{Type: "stored", Status: "parent_block_not_found"}: c.UnknownParent,
			{Type: "stored", Status: "invalid_block"}:          c.Refused,
			{Type: "removed", Status: "ok"}:                    c.Removed - min(c.Removed, c.UnknownBlock),
			{Type: "removed", Status: "block_not_found"}:       c.UnknownBlock,
			{Type: "cleared", Status: "ok"}:                    c.Cleared,
		},
		Gaps: c.Gaps, Recoveries: c.Recovered, FailedRecoveries: c.Gaps - min(c.Gaps, c.Recovered), Sources: sources, Batches: c.Batches,
		Lifecycle: map[string]uint64{"preconnected": c.Connected, "reconnect": c.Lost, "envelope_decode_error": c.Unreadable},
	}
}

// Close implements EventFeed.
func (f *upstreamFeed) Close() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for rank, follower := range f.ranks {
		follower.end()
		delete(f.ranks, rank)
	}
}

func plus(a, b enginefeed.Counters) enginefeed.Counters {
	return enginefeed.Counters{Batches: a.Batches + b.Batches, Unreadable: a.Unreadable + b.Unreadable, Stored: a.Stored + b.Stored, Removed: a.Removed + b.Removed,
		Cleared: a.Cleared + b.Cleared, UnknownParent: a.UnknownParent + b.UnknownParent, UnknownBlock: a.UnknownBlock + b.UnknownBlock, Refused: a.Refused + b.Refused,
		Gaps: a.Gaps + b.Gaps, Recovered: a.Recovered + b.Recovered, Connected: a.Connected + b.Connected, Lost: a.Lost + b.Lost}
}
