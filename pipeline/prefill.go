package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"signalbox/inference"
	"signalbox/router"
)

// runPrefill computes the prompt on a prefill worker where the model is served that way, and makes the request ready for the
// decode worker.
func (r *Run) runPrefill() error {
	p := r.pipeline
	hop := p.Prefill.Load()
	if hop == nil {
		if p.NeedsPrefill && !p.DecodeFallback {
			return fmt.Errorf("%w: the prefill workers are not there", ErrNoWorkers)
		}
		return nil
	}
	if r.request.Routing.QueryOnly {
		return r.queryPrefill(hop)
	}
	if p.Disaggregate != nil {
		if pin := p.Disaggregate(r.context, r.request); pin != nil {
			r.how.Pin = pin
			if !r.bypassed {
				r.bypassed = true
				r.request.Annotations = append(r.request.Annotations, bypassAnnotation)
				r.pending = append(r.pending, Delta{Event: bypassAnnotation, Comments: []string{"true"}})
			}
			return nil
		}
	}
	start := time.Now()
	leg := r.prefillRequest()
	how := router.Attempt{Phase: router.Prefill, Explain: r.how.Explain, Received: r.job.Received}
	for {
		a, err := r.prefillOn(hop, leg, &how, start)
		if err == nil || errors.Is(err, errPrefillComplete) || a == nil {
			return err
		}
		// The worker broke before it had handed anything over: that costs the client nothing, as long as there is another one.
		if r.context.Err() != nil || len(how.Tried) >= maxUnstartedRetries || !inference.KindOf(err).Migratable() || pinned(leg, how) {
			return err
		}
		p.Observer.Migrated(p.Model.Name, "new_request")
		r.request.PrefillResult, r.request.Bootstrap = nil, nil
		how.Tried, how.LastError = append(how.Tried, a.placement.WorkerID), err
	}
}

// prefillOn computes the prompt on one prefill worker. With a failure it returns the attempt that failed, nil when no worker
// took the request.
func (r *Run) prefillOn(hop *Hop, leg *inference.Request, how *router.Attempt, start time.Time) (*attempt, error) {
	p := r.pipeline
	var info *inference.Bootstrap
	placed := *hop
	placed.Sender = senderFunc(func(ctx context.Context, target inference.Target, request *inference.Request) (inference.Stream, error) {
		if hop.Constrain != nil { // before the worker begins: an answer that nobody could fetch would be in vain
			r.request.Routing.RequiredTaints, r.request.Routing.PreferredTaints = r.asked.routing.RequiredTaints, r.asked.routing.PreferredTaints
			if err := hop.Constrain(target.WorkerID, r.request); err != nil {
				return nil, err
			}
		}
		sent, worker := *request, target.WorkerID // in a copy: the worker's id would pin the next try
		info = r.bootstrapFor(hop, target.WorkerID, &sent)
		sent.Bootstrap = info
		sent.Routing.PrefillWorkerID = &worker
		return hop.Sender.Send(ctx, target, &sent)
	})
	a, err := p.dispatch(r.context, &placed, leg, how)
	if err != nil {
		return nil, err
	}
	r.prefill = a.placement
	waited := time.Since(start)
	r.prefillWait = &waited
	r.decodeOnly(a.placement)
	if info != nil {
		r.request.Bootstrap = info
		if a.placement.HasRank {
			rank := a.placement.Rank
			r.request.Routing.PrefillDPRank = &rank
		}
		go drain(r.context, a) // ends with the prefill stream or with the run
		return a, nil
	}
	return a, r.awaitPrefill(a, start)
}

const bypassAnnotation = "x-bypass-remote-prefill"

type senderFunc func(context.Context, inference.Target, *inference.Request) (inference.Stream, error)

// Send implements inference.Sender.
func (f senderFunc) Send(ctx context.Context, target inference.Target, request *inference.Request) (inference.Stream, error) {
	return f(ctx, target, request)
}

func (r *Run) queryPrefill(hop *Hop) error {
	placement, err := hop.Router.Place(r.context, r.request, router.Attempt{Phase: router.Prefill, Explain: r.how.Explain})
	if err != nil {
		return err
	}
	if placement.Decision != nil && r.pipeline.OnDecision != nil {
		r.pipeline.OnDecision(r.request, placement.Decision)
	}
	r.prefill = placement
	r.how.Phase = router.Decode
	return nil
}

// prefillRequest is the request with one token of output, for the prefill worker.
func (r *Run) prefillRequest() *inference.Request {
	leg := r.request.Clone()
	one := uint32(1)
	leg.Stop.MaxTokens, leg.Stop.MinTokens = &one, nil
	return leg
}

// decodeOnly tells the decode worker's router that the prompt is computed elsewhere: its choice is by load alone.
func (r *Run) decodeOnly(prefill *router.Placement) {
	zero, no := 0.0, false
	override := inference.RouterOverride{AssumeKVReuse: &no, TrackPrefillTokens: &no}
	if r.pipeline.Disaggregate == nil {
		override.OverlapScoreCredit = &zero
	}
	r.request.RouterOverride = &override
	worker := prefill.WorkerID
	r.request.Routing.PrefillWorkerID = &worker
	r.how.Phase, r.how.Untracked, r.how.Prefill = router.Decode, true, prefill
}

// bootstrapFor draws the room where both workers meet; nil when the prefill worker awaits nobody. The room's remainder by the
// number of ranks is the rank, so that the prefill side finds its own.
func (r *Run) bootstrapFor(hop *Hop, workerID uint64, request *inference.Request) *inference.Bootstrap {
	if hop.Bootstrap == nil {
		return nil
	}
	host, port, ranks, ok := hop.Bootstrap(workerID)
	if !ok {
		return nil
	}
	var random [24]byte
	_, _ = rand.Read(random[:]) // never fails
	room := binary.LittleEndian.Uint64(random[16:]) & math.MaxInt64
	if rank := request.Routing.PrefillDPRank; rank != nil && ranks > 0 {
		quotients := (math.MaxInt64-uint64(*rank))/uint64(ranks) + 1
		room = room%quotients*uint64(ranks) + uint64(*rank)
	}
	b := &inference.Bootstrap{Host: host, Port: port, Room: room}
	copy(b.HandoffID[:], random[:16])
	b.HandoffID[6] = b.HandoffID[6]&0x0f | 0x40
	b.HandoffID[8] = b.HandoffID[8]&0x3f | 0x80
	return b
}

// drain reads a prefill stream whose tokens nobody wants.
func drain(ctx context.Context, a *attempt) {
	for {
		output, err := a.stream.Next(ctx)
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			a.end(err)
			return
		}
		a.placement.Progress(len(output.TokenIDs))
		a.noteReuse(output)
	}
}

// awaitPrefill waits for the prefill worker's hand-over.
func (r *Run) awaitPrefill(a *attempt, start time.Time) error {
	first, err := a.stream.Next(r.context)
	if err != nil {
		if err == io.EOF {
			err = inference.Errorf(inference.Unknown, "the prefill worker answered nothing")
		}
		a.end(err)
		return err
	}
	if first.Finish == inference.FinishError {
		err := inference.Errorf(inference.BackendUnknown, "%s", first.FinishMessage)
		a.end(err)
		return err
	}
	a.placement.FirstToken()
	if first.Finish != inference.FinishNone && first.Finish != inference.FinishLength {
		return r.completeInPrefill(a, first)
	}
	if first.DisaggregatedParams.IsZero() {
		err := inference.Errorf(inference.Unknown, "the prefill worker's first item has no disaggregated_params")
		a.end(err)
		return err
	}
	result := inference.PrefillResult{DisaggregatedParams: cloneOpaque(first.DisaggregatedParams)}
	a.placement.Progress(len(first.TokenIDs))
	a.noteReuse(first)
	if first.Usage != nil {
		result.CachedTokens = first.Usage.CachedTokens
		r.noteUsage(first.Usage)
	}
	if info := r.bootstrapIn(result.DisaggregatedParams); info != nil {
		r.request.Bootstrap = info
		go drain(r.context, a) // ends with the prefill stream or with the run
	} else {
		r.request.PrefillResult = &result
		if err := r.drainPrefill(a); err != nil {
			return err
		}
	}
	took := time.Since(start)
	r.prefillTime = &took
	return nil
}

// releaseTimeout bounds the delivery of a cancelled request to a decode worker.
const releaseTimeout = 10 * time.Second

// releasePrefill delivers a request that was cancelled after its prefill to a decode worker all the same, and cancels it there:
// the prefill worker keeps the prompt's blocks until a decode worker asks for them.
func (r *Run) releasePrefill() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.context), releaseTimeout)
	defer cancel()
	how := r.how
	if a, err := r.pipeline.dispatch(ctx, &r.pipeline.Decode, r.request, &how); err == nil {
		a.end(inference.Errorf(inference.Cancelled, "the client went away"))
	}
}

func (r *Run) drainPrefill(a *attempt) error {
	for {
		output, err := a.stream.Next(r.context)
		if err == io.EOF {
			a.end(nil)
			return nil
		}
		if err != nil {
			a.end(err)
			return err
		}
		a.noteReuse(output)
	}
}

// completeInPrefill takes the prefill worker's item as the whole answer: generation ended with its first token.
func (r *Run) completeInPrefill(a *attempt, first *inference.Output) error {
	item := *first
	item.DisaggregatedParams = inference.Opaque{}
	r.replace(&attempt{placement: a.placement, stream: &single{output: &item, rest: a.stream}})
	return errPrefillComplete
}

var errPrefillComplete = errors.New("the prefill worker gave the whole answer")

// single is a stream of one item before the rest of another.
type single struct {
	output *inference.Output
	rest   inference.Stream
}

func (s *single) Next(ctx context.Context) (*inference.Output, error) {
	if s.output != nil {
		output := s.output
		s.output = nil
		return output, nil
	}
	return s.rest.Next(ctx)
}

func (s *single) Buffered() bool { return s.output != nil || s.rest.Buffered() }

func (s *single) Close() error { return s.rest.Close() }

func cloneOpaque(o inference.Opaque) inference.Opaque {
	return inference.Opaque{Codec: o.Codec, Bytes: append([]byte(nil), o.Bytes...)}
}

// bootstrapIn reads a bootstrap address that a prefill worker gives in its parameters (SGLang); nil when there is none.
func (r *Run) bootstrapIn(params inference.Opaque) *inference.Bootstrap {
	if params.Codec != inference.JSON {
		if r.pipeline.OpaqueJSON == nil {
			return nil
		}
		text, err := r.pipeline.OpaqueJSON(params)
		if err != nil {
			return nil
		}
		params.Bytes = text
	}
	var fields struct {
		Host *string `json:"bootstrap_host"`
		Port *uint16 `json:"bootstrap_port"`
		Room *uint64 `json:"bootstrap_room"`
	}
	if json.Unmarshal(params.Bytes, &fields) != nil || fields.Host == nil || fields.Port == nil || fields.Room == nil {
		return nil
	}
	b := &inference.Bootstrap{Host: *fields.Host, Port: *fields.Port, Room: *fields.Room}
	_, _ = rand.Read(b.HandoffID[:])
	b.HandoffID[6] = b.HandoffID[6]&0x0f | 0x40
	b.HandoffID[8] = b.HandoffID[8]&0x3f | 0x80
	return b
}
