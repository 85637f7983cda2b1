package frontend

import (
	"context"
	"sync"
	"sync/atomic"

	"signalbox/model"
	"signalbox/peers"
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
	options := affinity.Options{
		Inner: inner, Pool: set.Pool, TTL: r.SessionTTL, Soft: r.SoftSessions,
		WorkersOnly: r.Mode != KVMode, Explicit: r.Mode == string(mode.Direct),
	}
	var heard atomic.Pointer[affinity.Router]
	var link *peers.Sessions
	fail := func(err error) (router.Router, func(), error) {
		if link != nil {
			link.Close()
		}
		inner.Close()
		if endInner != nil {
			endInner()
		}
		return nil, nil, err
	}
	if r.Peers != nil {
		var err error
		link, err = r.Peers.Sessions(set.Set.Key.Endpoint, func(binding affinity.Binding) {
			if kept := heard.Load(); kept != nil {
				kept.Learn(binding)
			}
		})
		if err != nil {
			return fail(err)
		}
		options.RouterID, options.Publish = r.Peers.Backend.InstanceID(), link.Publish
	}
	kept, err := affinity.New(options)
	if err != nil {
		return fail(err)
	}
	heard.Store(kept)
	made := &sessions{Router: kept}
	made.inner, _ = inner.(watchMembers)
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { kept.Run(ctx) }) // ends with ctx
	return made, func() {
		cancel()
		wait.Wait()
		if link != nil {
			link.Close()
		}
		if endInner != nil {
			endInner()
		}
	}, nil
}
