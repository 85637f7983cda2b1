package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"signalbox/inference"
	"signalbox/router"
)

// maxUnstartedRetries bounds how many workers are tried for a request that has not produced anything.
const maxUnstartedRetries = 8

// attempt is one try of a request on one worker.
type attempt struct {
	placement *router.Placement
	stream    inference.Stream
	sent      time.Time // when it began to be sent; zero when nothing was
	reused    bool      // the worker has said what it took from its cache
}

// noteReuse tells the router, once, what the worker reports to have taken from its cache: engines say it with the end of an answer, in
// engine_data.
func (a *attempt) noteReuse(output *inference.Output) {
	if a.reused || output.EngineData == nil {
		return
	}
	var report struct {
		Hit *struct {
			Reused uint32 `json:"reused_tokens"`
		} `json:"kv_cache_hit"`
	}
	if json.Unmarshal(output.EngineData, &report) != nil || report.Hit == nil {
		return // it is data of the engine's own
	}
	a.reused = true
	a.placement.Reused(int(report.Hit.Reused))
}

// end releases what the attempt holds. Only the first call's outcome counts.
func (a *attempt) end(outcome error) {
	if a.stream != nil {
		_ = a.stream.Close()
	}
	a.placement.End(outcome)
}

// dispatch places the request on a worker of the hop and sends it there. A worker that cannot be reached costs nothing: the
// next one is tried, until the tries are used up or the request is pinned. how is told who was tried.
func (p *Pipeline) dispatch(ctx context.Context, hop *Hop, request *inference.Request, how *router.Attempt) (*attempt, error) {
	for tries := 0; ; tries++ {
		a, err := p.try(ctx, hop, request, *how)
		if err == nil {
			return a, nil
		}
		var failure *sendFailure
		if !errors.As(err, &failure) {
			return nil, err
		}
		if tries >= maxUnstartedRetries || ctx.Err() != nil || !inference.KindOf(failure.cause).Migratable() || pinned(request, *how) {
			return nil, failure.cause
		}
		p.Observer.Migrated(p.Model.Name, "new_request")
		how.Tried = append(how.Tried, failure.workerID)
		how.LastError = failure.cause
	}
}

// sendFailure is a worker that did not take the request.
type sendFailure struct {
	workerID uint64
	cause    error
}

func (f *sendFailure) Error() string { return f.cause.Error() }

func (f *sendFailure) Unwrap() error { return f.cause }

// pinned tells whether the client named the worker, so that no other will do.
func pinned(request *inference.Request, how router.Attempt) bool {
	r := &request.Routing
	if how.Phase == router.Prefill {
		return r.PrefillWorkerID != nil || r.BackendInstanceID != nil
	}
	return how.Pin != nil || r.BackendInstanceID != nil || r.DecodeWorkerID != nil
}

func (p *Pipeline) try(ctx context.Context, hop *Hop, request *inference.Request, how router.Attempt) (*attempt, error) {
	phase := how.Phase.String()
	start := time.Now()
	left := p.enter("route", phase)
	placement, err := hop.Router.Place(ctx, request, how)
	left()
	if err != nil {
		return nil, err
	}
	p.Observer.Stage("route", phase, time.Since(start).Seconds())
	if p.OnDecision != nil && placement.Decision != nil {
		p.OnDecision(request, placement.Decision)
	}
	p.Observer.Placed(phase, placement)
	if placement.QueryOnly {
		return &attempt{placement: placement}, nil
	}
	target, ok := hop.Target(placement.WorkerID)
	if !ok {
		err := &inference.Error{Kind: inference.CannotConnect, Message: "the worker vanished before the request was sent", WorkerID: placement.WorkerID}
		placement.End(err)
		return nil, &sendFailure{placement.WorkerID, err}
	}
	if placement.HasRank {
		// In a copy: a rank in the request itself would bind the next try to it.
		ranked, rank := *request, placement.Rank
		if how.Phase == router.Prefill {
			ranked.Routing.PrefillDPRank = &rank
		}
		ranked.Routing.DPRank = &rank
		request = &ranked
	}
	sent := time.Now()
	left = p.enter("dispatch", phase)
	stream, err := hop.Sender.Send(ctx, target, request)
	left()
	if err != nil {
		placement.End(err)
		return nil, &sendFailure{placement.WorkerID, err}
	}
	placement.Dispatched()
	p.Observer.Stage("dispatch", phase, time.Since(sent).Seconds())
	return &attempt{placement: placement, stream: stream, sent: sent}, nil
}
