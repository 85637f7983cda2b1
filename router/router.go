package router

import (
	"context"
	"time"

	"signalbox/inference"
)

// Router places requests on the workers of one pool. It is safe for concurrent use.
type Router interface {
	// Place chooses a worker for the request and books it there, waiting for room where the router queues. The caller owns the
	// placement and must call [Placement.End] exactly when it is through with it, however the request went. A request that asks
	// a question only (Routing.QueryOnly) is chosen for but not booked; its placement ends by itself.
	//
	// Failures are *inference.Error; a full queue class has a *[QueueLimitError] inside. A context that ends while the request
	// waits takes it out of the queue and yields kind Cancelled.
	Place(ctx context.Context, request *inference.Request, attempt Attempt) (*Placement, error)
	// Close answers everybody who waits with an error and refuses further requests. Placements that were handed out stay
	// valid.
	Close()
}

// Phase is the leg of a request that is to be placed. It decides which of the client's pins applies.
type Phase uint8

const (
	// Aggregated means that one worker does it all.
	Aggregated Phase = iota
	// Prefill computes the prompt's KV cache for a decode worker.
	Prefill
	// Decode generates from a prefilled prompt.
	Decode
)

// String returns the phase's name in messages.
func (p Phase) String() string {
	switch p {
	case Prefill:
		return "prefill"
	case Decode:
		return "decode"
	}
	return "aggregated"
}

// Attempt says what the caller knows beyond the request itself. The zero value is a first try of an aggregated request.
type Attempt struct {
	Phase Phase
	// Tried lists workers that failed this very request before. They are passed over; a pinned worker is tried again.
	Tried []uint64
	// LastError is how the last of them failed. It decides what is reported when nobody untried is left.
	LastError error
	// Explain asks for a [Decision] in the placement.
	Explain bool
	// Pin places the request on this rank, whatever the client asked for: decided elsewhere, by affinity for example.
	Pin *Pin
	// Prefer is a rank to take when it is eligible; otherwise the choice is free.
	Prefer *Pin
	// Untracked books no prefill tokens, for a decode leg whose prompt was computed elsewhere. RouterOverride in the request
	// says the same for callers who want it beyond their own process.
	Untracked bool
	// AtOnce answers a question (Routing.QueryOnly) from what is known now. Without it a question waits its turn, as the request would.
	AtOnce bool
	// Received is when the client's request arrived, for the time to its first token; zero when nobody measures that.
	Received time.Time
	// Prefill is where the prompt was or is being computed, for a decode leg; nil otherwise.
	Prefill *Placement
}

// Pin names a worker and, where known, one of its ranks.
type Pin struct {
	WorkerID uint64
	Rank     uint32
	HasRank  bool
}
