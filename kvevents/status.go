package kvevents

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/discovery"
	"signalbox/kvindex"
)

// State tells how a rank's entries in the sink relate to the rank.
type State uint8

const (
	// Joining is the state of a rank that has just been found.
	Joining State = iota
	// Live ranks are equal but for events on their way.
	Live
	// Recovering ranks miss events, which are being asked for.
	Recovering
	// Degraded ranks miss events that nobody could tell: what is known of them is true but incomplete.
	Degraded
	// Unreachable ranks count as empty: their publisher can't be connected to, or has no channel. It is tried for ever.
	Unreachable
	// Ambiguous ranks count as empty: several publishers claim to speak for them.
	Ambiguous
	// Silent ranks were announced by Expect and have no publisher.
	Silent
)

var stateNames = [...]string{"joining", "live", "recovering", "degraded", "unreachable", "ambiguous", "silent"}

// String returns the state's name in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// RankStatus describes one rank.
type RankStatus struct {
	Rank  kvindex.Rank
	State State
	// PublisherID is 0 when there is no publisher, or more than one.
	PublisherID uint64
	// LastEventID is the id of the last event applied, 0 before the first.
	LastEventID uint64
}

// Expect announces the ranks of a worker that is routed to. One that has no publisher some seconds later is reported: by an error
// in the log that names it, and by Silent. After a Leave all that the worker holds is asked for again.
func (s *Subscriber) Expect(workerID uint64, ranks ...uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[workerID] {
		delete(s.left, workerID)
		for rank, entry := range s.ranks {
			if rank.WorkerID == workerID && entry.feed != nil {
				entry.feed.again()
			}
		}
	}
	for _, dpRank := range ranks {
		rank := kvindex.Rank{WorkerID: workerID, DPRank: dpRank}
		if _, known := s.expected[rank]; !known {
			s.expected[rank] = time.Now()
		}
	}
}

// Leave takes an Expect back: the worker has gone. What the sink knows of it goes with its publishers; whoever calls Leave may also
// remove the worker from the sink at once.
func (s *Subscriber) Leave(workerID uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank := range s.ranks {
		if rank.WorkerID == workerID {
			s.left[workerID] = true
		}
	}
	for rank := range s.expected {
		if rank.WorkerID == workerID {
			delete(s.expected, rank)
		}
	}
	delete(s.reported, workerID)
}

// SilentError names ranks that requests are routed to and that publish no KV events: their caches count as empty.
type SilentError struct {
	Endpoint discovery.EndpointID
	Ranks    []kvindex.Rank
}

// Error names the workers and says what to do.
func (e *SilentError) Error() string {
	names := make([]string, len(e.Ranks))
	for i, rank := range e.Ranks {
		names[i] = fmt.Sprintf("worker %d rank %d", rank.WorkerID, rank.DPRank)
	}
	return fmt.Sprintf("no KV events of %s from %s: switch KV events on at the workers, or route without them (--no-router-kv-events)",
		e.Endpoint, strings.Join(names, ", "))
}

// Silent returns a *SilentError when there are ranks that were expected some seconds ago and have no publisher, else nil.
func (s *Subscriber) Silent() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ranks := s.silent(); len(ranks) > 0 {
		return &SilentError{s.options.Endpoint, ranks}
	}
	return nil
}

// silent lists silent ranks in order. The caller holds mu.
func (s *Subscriber) silent() []kvindex.Rank {
	var ranks []kvindex.Rank
	for rank, since := range s.expected {
		entry := s.ranks[rank]
		mute := entry == nil || entry.feed == nil && len(entry.publishers) < 2 // no publisher, or one without a channel
		if mute && time.Since(since) >= s.options.pace.silence {
			ranks = append(ranks, rank)
		}
	}
	slices.SortFunc(ranks, compareRanks)
	return ranks
}

func compareRanks(a, b kvindex.Rank) int {
	return cmp.Or(cmp.Compare(a.WorkerID, b.WorkerID), cmp.Compare(a.DPRank, b.DPRank))
}

// reportSilent logs the silent workers that have not been named yet.
func (s *Subscriber) reportSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ranks := slices.DeleteFunc(s.silent(), func(rank kvindex.Rank) bool { return s.reported[rank.WorkerID] })
	for _, rank := range ranks {
		s.reported[rank.WorkerID] = true
	}
	if len(ranks) > 0 {
		s.options.Logger.Error((&SilentError{s.options.Endpoint, ranks}).Error())
	}
}

// Counters returns what happened so far.
func (s *Subscriber) Counters() Counters { return s.counters.snapshot() }

// Status describes all ranks that have a publisher or should have one, in order.
func (s *Subscriber) Status() []RankStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]RankStatus, 0, len(s.ranks))
	for rank, entry := range s.ranks {
		status := RankStatus{Rank: rank}
		switch {
		case len(entry.publishers) > 1:
			status.State = Ambiguous
		case len(entry.publishers) == 1:
			status.State, status.PublisherID = Unreachable, entry.publishers[0]
		}
		if f := entry.feed; f != nil {
			f.mu.Lock()
			status.State = f.state
			if f.begun {
				status.LastEventID = f.cursor
			}
			f.mu.Unlock()
		}
		list = append(list, status)
	}
	for _, rank := range s.silent() {
		if s.ranks[rank] == nil {
			list = append(list, RankStatus{Rank: rank, State: Silent})
		}
	}
	slices.SortFunc(list, func(a, b RankStatus) int { return compareRanks(a.Rank, b.Rank) })
	return list
}

// WaitSynced waits until all that discovery listed at the start is known, and no rank is Joining or Recovering; or until ctx ends.
func (s *Subscriber) WaitSynced(ctx context.Context) error {
	for {
		changed := s.changed.next()
		if s.isSynced() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Subscriber) isSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.synced < 2 {
		return false
	}
	for _, entry := range s.ranks {
		if f := entry.feed; f != nil {
			f.mu.Lock()
			state := f.state
			f.mu.Unlock()
			if state == Joining || state == Recovering {
				return false
			}
		}
	}
	return true
}

// changes tells any number of waiters that something changed.
type changes struct {
	mu   sync.Mutex
	wait chan struct{}
}

// next returns a channel that is closed at the next change.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wait == nil {
		c.wait = make(chan struct{})
	}
	return c.wait
}

func (c *changes) broadcast() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wait != nil {
		close(c.wait)
		c.wait = nil
	}
}
