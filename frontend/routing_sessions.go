package frontend

import (
	"context"
	"sync"

	"signalbox/model"
	"signalbox/router"
	"signalbox/router/affinity"
	"signalbox/router/mode"
)

// sessions is a router that keeps sessions on their workers, around a set's own.
type sessions struct {
	*affinity.Router
	inner watchMembers // nil when the inner router does not care
}

// Members passes on who is in the set.
func (s *sessions) Members(set *model.Set) {
	if s.inner != nil {
		s.inner.Members(set)
	}
}

// startSessions puts sessions around a set's router. Each set has its own, so that the prefill and the decode leg of a session are
// bound independently.
func (r *Routing) startSessions(set RouterSet, inner router.Router, endInner func()) (router.Router, func(), error) {
	kept, err := affinity.New(affinity.Options{
		Inner: inner, Pool: set.Pool, TTL: r.SessionTTL, Soft: r.SoftSessions,
		WorkersOnly: r.Mode != KVMode, Explicit: r.Mode == string(mode.Direct),
	})
	if err != nil {
		inner.Close()
		if endInner != nil {
			endInner()
		}
		return nil, nil, err
	}
	made := &sessions{Router: kept}
	made.inner, _ = inner.(watchMembers)
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { kept.Run(ctx) }) // ends with ctx
	return made, func() {
		cancel()
		wait.Wait()
		if endInner != nil {
			endInner()
		}
	}, nil
}
