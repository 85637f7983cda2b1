package kv

import (
	"time"

	"signalbox/inference"
	"signalbox/router/load"
)

// Replicas are told what this router books and frees, to tell it to other routers of the same workers. The calls come under the
// router's lock: they must not block, and must keep no slices.
type Replicas interface {
	Booked(event Booked)
	PrefillCompleted(event Step)
	Freed(event Step)
}

// Booked is a request that a router booked on a rank.
type Booked struct {
	Step
	// Hashes are the tracking identities of the prompt's complete blocks; Exclusive is the number of blocks that are tracked without
	// identity instead.
	Hashes    []uint64
	Exclusive int
	// PrefillTokens are the prompt tokens that the rank has to compute; 0 when they are not tracked.
	PrefillTokens uint64
	// Expected is how long that will take, when Modelled.
	Expected time.Duration
	Modelled bool
	// ExpectedOutputTokens is the client's guess of the output length; nil without.
	ExpectedOutputTokens *uint32
}

// Step names a request and its rank.
type Step struct {
	RequestID string
	Rank      inference.Rank
	LoRA      string
}

// RemoteKind is what another router, or a worker, reports.
type RemoteKind uint8

// The reports.
const (
	RemoteBooked RemoteKind = iota
	RemotePrefillCompleted
	RemoteFreed
)

// Remote is a report of what happened to a request that this router may not know.
type Remote struct {
	Kind RemoteKind
	Booked
}

// Apply takes over what others report, so that their requests count as load here too. Requests on ranks that are not known are left
// out, and so are later steps of requests that are not. Afterwards whoever waits may go.
func (r *Router) Apply(reports []Remote) {
	now := r.clock.Now()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for i := range reports {
		report := &reports[i]
		handle, known := r.tracker.Lookup(report.RequestID)
		switch {
		case report.Kind == RemoteBooked:
			if r.fleet.find(report.Rank) < 0 {
				continue
			}
			r.tracker.Free(handle, now) // said again, it is booked again
			booking := load.Booking{ID: report.RequestID, Rank: report.Rank, PrefillTokens: report.PrefillTokens, Expected: report.Expected, Modelled: report.Modelled}
			if r.options.Config.TrackActiveBlocks {
				booking.Hashes = report.Hashes
			}
			_, _ = r.tracker.Add(booking, now) // the id is free
		case !known:
		case report.Kind == RemotePrefillCompleted:
			_ = r.tracker.PrefillComplete(handle, now) // it is known
		default:
			r.tracker.Free(handle, now)
		}
	}
	r.drain()
}
