package frontend

import (
	"context"
	"errors"
	"log/slog"

	"signalbox/discovery"
	"signalbox/kvevents"
	"signalbox/observe"
)

// WorkerEvents feeds indexes from the event plane: publishers are found through discovery, and who missed something asks the
// worker over the request plane.
type WorkerEvents struct {
	Backend discovery.Backend
	Queries kvevents.Queries
	// Plane carries the events; nil means ZeroMQ.
	Plane kvevents.Plane
	// Logger is told of reports that cannot be received; nil means slog.Default.
	Logger *slog.Logger
}

// Feed implements EventPlane.
func (e WorkerEvents) Feed(target FeedTarget) (EventFeed, error) {
	subscriber, err := kvevents.Start(context.Background(), kvevents.Options{
		Backend: e.Backend, Endpoint: target.Endpoint, Plane: e.Plane, Queries: e.Queries, Sink: target.Index, Threads: target.Threads, Logger: target.Logger,
	})
	if err != nil {
		return nil, err
	}
	return subscription{subscriber}, nil
}

// FollowLoad implements LoadReports.
func (e WorkerEvents) FollowLoad(ctx context.Context, endpoint discovery.EndpointID, report func(kvevents.Load)) {
	kvevents.FollowLoad(ctx, e.Backend, e.Plane, endpoint, e.logger(), report)
}

func (e WorkerEvents) logger() *slog.Logger {
	if e.Logger != nil {
		return e.Logger
	}
	return slog.Default()
}

// subscription shows a subscriber as a feed.
type subscription struct{ *kvevents.Subscriber }

// Silent implements EventFeed.
func (s subscription) Silent() int {
	var silent *kvevents.SilentError
	if errors.As(s.Subscriber.Silent(), &silent) {
		return len(silent.Ranks)
	}
	return 0
}

// Stats implements EventFeed.
func (s subscription) Stats() observe.EventStats {
	c := s.Counters()
	sources := map[string]int{"preconnected": 0, "active": 0}
	for _, rank := range s.Status() {
		switch rank.State {
		case kvevents.Joining:
			sources["preconnected"]++
		case kvevents.Live, kvevents.Recovering, kvevents.Degraded:
			sources["active"]++
		}
	}
	refused := c.UnknownParent + c.IndexFull + c.InvalidEvent
	return observe.EventStats{
		Applied: map[observe.EventOutcome]uint64{
			{Type: "stored", Status: "ok"}:                     c.Stored - min(refused, c.Stored),
			{Type: "stored", Status: "parent_block_not_found"}: c.UnknownParent,
			{Type: "stored", Status: "capacity_exhausted"}:     c.IndexFull,
			{Type: "stored", Status: "invalid_block"}:          c.InvalidEvent,
			{Type: "removed", Status: "ok"}:                    c.Removed - min(c.UnknownBlock, c.Removed),
			{Type: "removed", Status: "block_not_found"}:       c.UnknownBlock,
			{Type: "cleared", Status: "ok"}:                    c.Cleared,
		},
		Stale: c.Stale, Gaps: c.Gaps, Recoveries: c.Dumps + c.Ranges + c.Unneeded, FailedRecoveries: c.FailedRecoveries,
		Sources: sources, Batches: c.Batches,
		Lifecycle: map[string]uint64{"started": c.Started, "preconnected": c.Connected, "activated": c.Activated, "reconnect": c.Disconnects, "envelope_decode_error": c.Malformed, "identity_mismatch": c.Foreign},
	}
}
