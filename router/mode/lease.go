package mode

import (
	"signalbox/inference"
	"signalbox/router"
)

// booking is a placement together with its lease: one allocation per request.
type booking struct {
	placement router.Placement
	pool      *router.Pool
	workerID  uint64
	counted   bool
}

var _ router.Lease = (*booking)(nil)

// Dispatched implements router.Lease; modes of this package draw no conclusion from it.
func (*booking) Dispatched() {}

// FirstToken implements router.Lease.
func (*booking) FirstToken() {}

// Progress implements router.Lease.
func (*booking) Progress(int) {}

// End returns the count and judges the worker.
func (b *booking) End(outcome error) {
	if b.counted {
		b.pool.Occupancy().Release(b.workerID)
	}
	b.pool.Judge(b.workerID, outcome)
}

// book makes the placement of a choice. Draws have counted already; what was named is counted here.
func (r *Router) book(snapshot *router.Snapshot, request *inference.Request, attempt router.Attempt, chosen choice) *router.Placement {
	booked := &booking{pool: r.pool, workerID: chosen.pin.WorkerID, counted: chosen.counted && !request.Routing.QueryOnly}
	if booked.counted && chosen.among == nil {
		r.pool.Occupancy().Choose(snapshot, true, func(router.Loads) int { return int(chosen.index) })
	}
	var lease router.Lease = booked
	if request.Routing.QueryOnly {
		lease = nil
	}
	placement := &booked.placement
	placement.Init(chosen.pin, lease)
	placement.InputTokens = len(request.TokenIDs)
	placement.QueryOnly = request.Routing.QueryOnly
	if attempt.Explain {
		placement.Decision = r.explain(snapshot, request, chosen)
		placement.Decision.SetPhase(attempt.Phase)
	}
	return placement
}

func (r *Router) explain(snapshot *router.Snapshot, request *inference.Request, chosen choice) *router.Decision {
	decision := &router.Decision{Mode: string(r.mode), Reason: chosen.reason, InputTokens: len(request.TokenIDs), Winner: -1}
	among := chosen.among
	if among == nil {
		among = []int32{chosen.index}
	}
	for i, index := range among {
		candidate := router.Candidate{WorkerID: snapshot.Workers[index].ID, Rank: chosen.pin.Rank}
		if i < len(chosen.loads) {
			candidate.Load = chosen.loads[i]
		}
		if index == chosen.index {
			decision.Winner = i
		}
		decision.Candidates = append(decision.Candidates, candidate)
	}
	for i := range snapshot.Workers {
		switch state := snapshot.State(i); {
		case state.Down():
			decision.Excluded = append(decision.Excluded, router.Exclusion{WorkerID: snapshot.Workers[i].ID, Reason: "marked down"})
		case state.Overloaded():
			decision.Excluded = append(decision.Excluded, router.Exclusion{WorkerID: snapshot.Workers[i].ID, Reason: "overloaded"})
		}
	}
	return decision
}
