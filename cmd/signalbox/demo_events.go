package main

import (
	"context"
	"sync"

	"signalbox/frontend"
	"signalbox/kvindex"
	"signalbox/observe"
	"signalbox/worker/sim"
)

// inProcessEvents carries the KV events of engines in this process to the indexes of its frontend, without any socket.
type inProcessEvents struct {
	mu    sync.RWMutex
	feeds map[*inProcessFeed]bool
}

// Feed implements frontend.EventPlane. Feeds begin before the first request, so that no event is missed.
func (p *inProcessEvents) Feed(target frontend.FeedTarget) (frontend.EventFeed, error) {
	feed := &inProcessFeed{plane: p, target: target, applied: make(map[observe.EventOutcome]uint64)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.feeds == nil {
		p.feeds = make(map[*inProcessFeed]bool)
	}
	p.feeds[feed] = true
	return feed, nil
}

// apply hands one event to every index: the demo's workers are all of one set.
func (p *inProcessEvents) apply(kind string, event kvindex.Event) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for feed := range p.feeds {
		feed.apply(kind, event)
	}
}

// inProcessFeed fills one index.
type inProcessFeed struct {
	plane  *inProcessEvents
	target frontend.FeedTarget

	mu      sync.Mutex
	applied map[observe.EventOutcome]uint64
}

func (f *inProcessFeed) apply(kind string, event kvindex.Event) {
	status := "ok"
	if f.target.Index.Apply(event) != nil {
		status = "block_not_found"
		if kind == "stored" {
			status = "parent_block_not_found"
		}
	}
	f.mu.Lock()
	f.applied[observe.EventOutcome{Type: kind, Status: status}]++
	f.mu.Unlock()
}

// Expect, Leave, Silent and WaitSynced implement frontend.EventFeed: engines of this process are never silent.
func (f *inProcessFeed) Expect(uint64, ...uint32)         {}
func (f *inProcessFeed) Leave(uint64)                     {}
func (f *inProcessFeed) Silent() int                      { return 0 }
func (f *inProcessFeed) WaitSynced(context.Context) error { return nil }

// Stats implements frontend.EventFeed.
func (f *inProcessFeed) Stats() observe.EventStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	stats := observe.EventStats{Applied: make(map[observe.EventOutcome]uint64, len(f.applied))}
	for outcome, count := range f.applied {
		stats.Applied[outcome] = count
	}
	return stats
}

// Close implements frontend.EventFeed.
func (f *inProcessFeed) Close() {
	f.plane.mu.Lock()
	defer f.plane.mu.Unlock()
	delete(f.plane.feeds, f)
}

// engineEvents are one engine's events.
type engineEvents struct {
	plane    *inProcessEvents
	workerID uint64
}

var _ sim.Events = engineEvents{}

// Stored implements sim.Events.
func (e engineEvents) Stored(rank int, parent uint64, hasParent bool, blocks []sim.Block) {
	event := kvindex.Event{Rank: e.rank(rank), Op: kvindex.Stored, Parent: parent, HasParent: hasParent, Blocks: make([]kvindex.Block, len(blocks))}
	for i, block := range blocks {
		event.Blocks[i] = kvindex.Block(block)
	}
	e.plane.apply("stored", event)
}

// Removed implements sim.Events.
func (e engineEvents) Removed(rank int, hashes []uint64) {
	e.plane.apply("removed", kvindex.Event{Rank: e.rank(rank), Op: kvindex.Removed, Hashes: hashes})
}

// Load implements sim.Events; the router keeps its own count.
func (e engineEvents) Load(int, int) {}

func (e engineEvents) rank(rank int) kvindex.Rank {
	return kvindex.Rank{WorkerID: e.workerID, DPRank: uint32(rank)}
}
