package frontend

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/router"
	"signalbox/router/busy"
)

// bases are the KV routers of base models, which their adapters share: the same workers serve both, with one load, one index and one
// queue.
type bases struct {
	mutex   sync.Mutex
	routers map[workersKey]*kvRouting
	changed chan struct{} // closed with the next change
}

// workersKey names a set of workers without the model that they are asked for.
type workersKey struct {
	endpoint discovery.EndpointID
	role     card.WorkerType
}

func newBases() *bases {
	return &bases{routers: make(map[workersKey]*kvRouting), changed: make(chan struct{})}
}

func workersOf(set *model.Set) workersKey { return workersKey{set.Key.Endpoint, set.Key.Role} }

// set makes k the router of a base model's workers; nil takes away the one that was, which is old.
func (b *bases) set(key workersKey, k, old *kvRouting) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if k != nil {
		b.routers[key] = k
	} else if b.routers[key] == old {
		delete(b.routers, key)
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *bases) get(key workersKey) (*kvRouting, <-chan struct{}) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.routers[key], b.changed
}

// await returns the router of a base model's workers; nil when there is none for longer than patience.
func (b *bases) await(key workersKey, patience time.Duration) *kvRouting {
	late := time.After(patience)
	for {
		base, changed := b.get(key)
		if base != nil {
			return base
		}
		select {
		case <-changed:
		case <-late:
			return nil
		}
	}
}

// basePatience is how long an adapter waits for its base model: a frontend that starts builds both at the same time.
const basePatience = syncPatience + 2*time.Second

// adapterRouter places an adapter's requests by the router of its base model, on the workers that have the adapter.
type adapterRouter struct {
	bases   *bases
	key     workersKey
	members atomic.Pointer[[]uint64]
	closed  atomic.Bool
}

var _ router.Router = (*adapterRouter)(nil)

// startAdapter makes the router of an adapter's set: a view of its base model's. nil leaves the adapter to a router of its own, because
// there is no base model.
func (r *Routing) startAdapter(set RouterSet) router.Router {
	key := workersOf(set.Set)
	base := r.bases.await(key, basePatience)
	if base == nil {
		return nil
	}
	a := &adapterRouter{bases: r.bases, key: key}
	a.Members(set.Set)
	if set.Busy != nil {
		set.Busy.BookedBy(func(list []busy.Booked) []busy.Booked {
			if base := a.base(); base != nil {
				return base.appendBooked(list)
			}
			return list
		})
	}
	if set.Queues != nil {
		*set.Queues = len(base.AppendClasses(nil)) > 0
	}
	return a
}

func (a *adapterRouter) base() *kvRouting {
	base, _ := a.bases.get(a.key)
	return base
}

// Members takes note of who has the adapter.
func (a *adapterRouter) Members(set *model.Set) {
	ids := make([]uint64, 0, len(set.Members))
	for _, member := range set.Members {
		ids = append(ids, member.Instance.InstanceID)
	}
	a.members.Store(&ids)
}

// Place implements [router.Router].
func (a *adapterRouter) Place(ctx context.Context, request *inference.Request, attempt router.Attempt) (*router.Placement, error) {
	if a.closed.Load() {
		return nil, router.Closed()
	}
	base := a.base()
	if base == nil {
		return nil, inference.Errorf(inference.Unavailable, "the base model of adapter %q is not served by %s now", request.Routing.LoRAName, a.key.endpoint)
	}
	return base.Place(ctx, a.narrow(request, &attempt), attempt)
}

// narrow returns the request with the workers that it may go to: those with the adapter. Where it is pinned that is stronger.
func (a *adapterRouter) narrow(request *inference.Request, attempt *router.Attempt) *inference.Request {
	allowed := *a.members.Load()
	if given := request.Routing.AllowedWorkerIDs; given != nil {
		allowed = slices.DeleteFunc(slices.Clone(given), func(id uint64) bool { return !slices.Contains(allowed, id) })
	}
	pin, pinned := router.Pinned(&request.Routing, attempt.Phase)
	if attempt.Pin != nil {
		pin, pinned = *attempt.Pin, true
	}
	if pinned && !slices.Contains(allowed, pin.WorkerID) && request.Routing.AllowedWorkerIDs == nil {
		allowed = append(slices.Clip(allowed), pin.WorkerID)
	}
	narrowed := *request
	narrowed.Routing.AllowedWorkerIDs = allowed
	return &narrowed
}

// narrowed is the request as a set's router places it: an adapter's goes to its workers alone.
func narrowed(r router.Router, request *inference.Request, attempt *router.Attempt) *inference.Request {
	switch made := r.(type) {
	case *adapterRouter:
		return made.narrow(request, attempt)
	case *sessions:
		return narrowed(made.Router.Inner(), request, attempt)
	}
	return request
}

// Close implements [router.Router].
func (a *adapterRouter) Close() { a.closed.Store(true) }
