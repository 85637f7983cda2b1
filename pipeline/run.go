package pipeline

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"signalbox/inference"
	"signalbox/router"
)

// Run is one generation on its way. One goroutine pulls it; Close may come from any.
type Run struct {
	pipeline *Pipeline
	job      *Job
	request  *inference.Request // what the current worker was sent
	original int                // prompt length before any migration
	prompt   string

	how      router.Attempt
	mu       sync.Mutex // guards current, which Close may read while Next replaces it
	current  *attempt
	prefill  *router.Placement
	cancel   context.CancelFunc
	context  context.Context
	migrated int
	// asked is the request's routing before any prefill worker had it; bypassed tells that the pipeline chose the decode worker itself.
	asked    askedRouting
	bypassed bool

	choices  []*choice
	finished int
	expected int
	pending  []Delta
	returned int // how many of pending were handed out
	ended    error

	generated      []uint32 // of the only choice, for migration
	usage          Usage
	promptReported bool
	firstTokenAt   time.Time
	lastTokenAt    time.Time
	prefillWait    *time.Duration
	prefillTime    *time.Duration
	queryOnly      bool
}

// Generate starts a generation. It returns once a worker has accepted the request.
func (p *Pipeline) Generate(ctx context.Context, job *Job) (*Run, error) {
	var prompt prepared
	var err error
	if job.Verbatim {
		job.Request.Model = p.Model.Name
	} else if prompt, err = p.prepare(ctx, job); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Run{pipeline: p, job: job, request: job.Request, original: len(job.Request.TokenIDs), prompt: prompt.text,
		context: ctx, cancel: cancel, expected: 1}
	if n := job.Request.Sampling.N; n != nil {
		r.expected = int(*n)
	}
	r.asked = askedRouting{job.Request.Routing, job.Request.RouterOverride}
	r.usage.PromptTokens = r.original
	r.how.Explain = p.OnDecision != nil
	r.how.Received = job.Received
	if err := r.start(); err != nil {
		cancel()
		if r.prefill != nil {
			// Whatever failed afterwards does not speak against the prefill worker.
			r.prefill.End(inference.Errorf(inference.Cancelled, "the request ended before its decode"))
			if r.request.PrefillResult != nil && inference.KindOf(err) == inference.Cancelled {
				go r.releasePrefill() // ends by its own deadline
			}
		}
		return nil, err
	}
	return r, nil
}

func (r *Run) start() error {
	p := r.pipeline
	if err := r.runPrefill(); errors.Is(err, errPrefillComplete) {
		return nil
	} else if err != nil {
		return err
	}
	a, err := p.dispatch(r.context, &p.Decode, r.request, &r.how)
	if err != nil {
		return err
	}
	r.replace(a)
	r.queryOnly = a.placement.QueryOnly
	return nil
}

// Next returns the next delta; io.EOF after the last one.
func (r *Run) Next(ctx context.Context) (*Delta, error) {
	for {
		if r.returned < len(r.pending) {
			r.returned++
			return &r.pending[r.returned-1], nil
		}
		r.pending, r.returned = r.pending[:0], 0
		if r.ended != nil {
			return nil, r.ended
		}
		if r.queryOnly {
			r.finish(io.EOF)
			continue
		}
		output, err := r.current.stream.Next(ctx)
		switch {
		case err == nil:
			if err := r.absorb(output); err != nil {
				r.finish(err)
			}
		case err == io.EOF: // itself: a failure may well be caused by one
			r.finish(io.EOF)
		case ctx.Err() != nil && r.context.Err() == nil:
			return nil, err // the caller's time is up; the run goes on
		case r.finished >= r.expected:
			r.finish(io.EOF) // the answer was complete: nothing is lost with its end
		case r.complete(err):
		case r.migrate(ctx, err):
		default:
			r.finish(err)
		}
	}
}

// Buffered tells whether the next delta can be had without waiting.
func (r *Run) Buffered() bool {
	if r.returned < len(r.pending) || r.ended != nil {
		return true
	}
	return r.current != nil && r.current.stream != nil && r.current.stream.Buffered()
}

// finish ends the run; what the parsers still hold is flushed on a clean end.
func (r *Run) finish(reason error) {
	if r.ended != nil {
		return
	}
	r.ended = reason
	if errors.Is(reason, io.EOF) {
		for _, c := range r.choices {
			if c != nil && !c.done {
				r.flushUnfinished(c)
			}
		}
	}
	outcome := reason
	if errors.Is(reason, io.EOF) {
		outcome = nil
	}
	if r.current != nil {
		r.current.end(outcome)
	}
	r.cancel()
}

// absorb turns a worker's item into deltas.
func (r *Run) absorb(output *inference.Output) error {
	if output.Event != "" {
		r.pending = append(r.pending, Delta{Event: output.Event, Comments: output.Comments})
		return nil
	}
	if output.Finish == inference.FinishError {
		return inference.Errorf(inference.BackendUnknown, "%s", output.FinishMessage)
	}
	r.noteUsage(output.Usage)
	r.current.noteReuse(output)
	c, err := r.choice(output.Index)
	if err != nil {
		return err
	}
	if count := len(output.TokenIDs) + int(output.Untold); count > 0 {
		r.noteTokens(count)
		if r.current.placement.FollowsOutput && output.Index == 0 {
			r.current.placement.Output(output.TokenIDs)
		}
		if r.canMigrate() {
			r.noteGenerated(output)
		}
	}
	if c.done {
		return nil
	}
	if r.job.Verbatim {
		r.passOn(c, output)
	} else if err := r.advance(c, output); err != nil {
		return err
	}
	if c.done {
		r.finished++
		if r.finished >= r.expected && c.stoppedHere {
			// All that the client wants is there: the worker need not go on.
			r.finish(io.EOF)
		}
	}
	return nil
}

// noteGenerated remembers what another worker would go on from. Tokens whose ids are not told are those that make their text.
func (r *Run) noteGenerated(output *inference.Output) {
	if output.Untold > 0 {
		r.generated = r.pipeline.Model.Tokenizer.Encode(r.generated, output.Text, false)
		return
	}
	r.generated = append(r.generated, output.TokenIDs...)
}

func (r *Run) noteTokens(count int) {
	now := time.Now()
	placement := r.current.placement
	if r.firstTokenAt.IsZero() {
		r.firstTokenAt = now
		placement.FirstToken()
		phase, computed := r.how.Phase, placement
		if r.how.Prefill != nil {
			phase, computed = router.Prefill, r.how.Prefill // it is what the client waited for
		}
		r.pipeline.Observer.FirstToken(phase.String(), computed, now.Sub(r.job.Received).Seconds(), r.original)
	} else {
		placement.FirstToken()
		r.pipeline.Observer.InterToken(r.how.Phase.String(), placement, now.Sub(r.lastTokenAt).Seconds()/float64(count))
	}
	r.lastTokenAt = now
	placement.Progress(count)
}

func (r *Run) noteUsage(usage *inference.Usage) {
	if usage == nil {
		return
	}
	if !r.promptReported && r.migrated == 0 {
		if usage.PromptTokens > 0 {
			r.usage.PromptTokens = int(usage.PromptTokens)
		}
		if usage.CachedTokens != nil {
			cached := int(*usage.CachedTokens)
			r.usage.CachedTokens = &cached
			r.promptReported = true
		}
	}
	if usage.CompletionDetails != nil {
		r.usage.CompletionDetails = slices.Clone(usage.CompletionDetails)
	}
}

// canMigrate tells whether the stream may still move to another worker.
func (r *Run) canMigrate() bool {
	p := r.pipeline
	return p.MigrationLimit > 0 && r.migrated < p.MigrationLimit && r.expected == 1 && r.request.Sampling.Guided == nil && !r.job.Verbatim
}

// complete ends a run whose stream broke when all tokens that it may have were there: only the word of its end is missing.
func (r *Run) complete(failure error) bool {
	limit := r.job.Request.Stop.MaxTokens
	if r.expected != 1 || limit == nil || len(r.choices) == 0 || r.choices[0] == nil || r.choices[0].tokens < int(*limit) ||
		!inference.KindOf(failure).Migratable() {
		return false
	}
	if err := r.absorb(&inference.Output{Finish: inference.FinishLength}); err != nil {
		r.finish(err)
		return true
	}
	r.current.end(failure) // the client has all, but the worker is gone
	r.finish(io.EOF)
	return true
}

// migrate moves the request to another worker after a failure that allows it. Before the first token that costs the client
// nothing and is always tried; afterwards the configured limit holds.
func (r *Run) migrate(ctx context.Context, failure error) bool {
	p := r.pipeline
	if r.bypassed {
		r.how.Pin = nil // it was not the client's wish
	}
	if ctx.Err() != nil || !inference.KindOf(failure).Migratable() || pinned(r.request, r.how) {
		return false
	}
	started := !r.firstTokenAt.IsZero()
	kind := "new_request"
	if started {
		if !r.canMigrate() || !r.continueElsewhere() {
			return false
		}
		kind = "ongoing_request"
		r.migrated++
	} else if len(r.how.Tried) >= maxUnstartedRetries {
		return false
	}
	worker := r.current.placement.WorkerID
	r.current.end(failure)
	r.how.Tried = append(r.how.Tried, worker)
	r.how.LastError = failure
	p.Observer.Migrated(p.Model.Name, kind)
	if err := r.startAgain(); err != nil {
		r.finish(err)
	}
	return true
}

// startAgain sends the request on its way once more. Where prompts are computed elsewhere, this one is too: what a prefill worker
// had ready was for the worker that is gone.
func (r *Run) startAgain() error {
	r.request.PrefillResult, r.request.Bootstrap = nil, nil
	r.request.Routing, r.request.RouterOverride = r.asked.routing, r.asked.override
	r.how.Phase, r.how.Untracked, r.how.Prefill = router.Aggregated, false, nil
	return r.start()
}

// askedRouting is what the client asked of the router.
type askedRouting struct {
	routing  inference.Routing
	override *inference.RouterOverride
}

func (r *Run) replace(a *attempt) {
	r.mu.Lock()
	r.current = a
	r.mu.Unlock()
}

// continueElsewhere makes the request that goes on where the broken stream ended.
func (r *Run) continueElsewhere() bool {
	p := r.pipeline
	if limit := p.MigrationMaxLength; limit > 0 && len(r.request.TokenIDs)+len(r.generated) > limit {
		p.Observer.MigrationExceeded(p.Model.Name)
		return false
	}
	next := r.request.Clone()
	next.TokenIDs = append(next.TokenIDs, r.generated...)
	reduce := func(limit *uint32) *uint32 {
		if limit == nil {
			return nil
		}
		left := uint32(max(0, int64(*limit)-int64(len(r.generated))))
		return &left
	}
	next.Stop.MaxTokens = reduce(next.Stop.MaxTokens)
	next.Stop.MinTokens = reduce(next.Stop.MinTokens)
	if next.Stop.MaxTokens != nil && *next.Stop.MaxTokens == 0 {
		return false
	}
	r.generated = r.generated[:0]
	r.request = next
	return true
}

// Close ends the run at any time; work that still goes on at the worker is cancelled.
func (r *Run) Close() error {
	r.cancel()
	r.mu.Lock()
	current := r.current
	r.mu.Unlock()
	// After a clean end the attempt has ended already and this changes nothing.
	current.end(inference.Errorf(inference.Cancelled, "the client went away"))
	return nil
}

// Usage returns the counts so far.
func (r *Run) Usage() Usage {
	u := r.usage
	for _, c := range r.choices {
		if c == nil {
			continue
		}
		u.CompletionTokens += c.tokens
		if r.pipeline.Model.Stages != nil && r.pipeline.Model.Stages.CountsReasoning() && !r.job.Parsing.Off {
			count := c.reasoningTokens
			if u.ReasoningTokens != nil {
				count += *u.ReasoningTokens
			}
			u.ReasoningTokens = &count
		}
	}
	return u
}

// Workers tells who serves the request.
func (r *Run) Workers() WorkerReport {
	var report WorkerReport
	set := func(p *router.Placement, id **uint64, rank **uint32) {
		worker := p.WorkerID
		*id = &worker
		if p.HasRank {
			value := p.Rank
			*rank = &value
		}
	}
	set(r.current.placement, &report.DecodeWorkerID, &report.DecodeRank)
	prefill := r.prefill
	if prefill == nil {
		prefill = r.current.placement
	}
	set(prefill, &report.PrefillWorkerID, &report.PrefillRank)
	return report
}

// Timing tells how long the parts took so far.
func (r *Run) Timing() Timing {
	t := Timing{Received: r.job.Received, PrefillWait: r.prefillWait, PrefillTime: r.prefillTime}
	total := time.Since(r.job.Received)
	t.Total = &total
	if !r.firstTokenAt.IsZero() {
		ttft := r.firstTokenAt.Sub(r.job.Received)
		t.TTFT = &ttft
		if t.PrefillTime == nil && !r.current.sent.IsZero() {
			wait, prefill := max(0, r.current.sent.Sub(r.job.Received)), max(0, r.firstTokenAt.Sub(r.current.sent))
			t.PrefillWait, t.PrefillTime = &wait, &prefill
		}
	}
	placement := r.current.placement
	if r.prefill != nil {
		placement = r.prefill // where the prompt's cache counts
	}
	if placement.InputBlocks > 0 {
		// Only modes that look at caches and queue know these.
		rate, depth := placement.HitRate(), placement.QueueDepth
		t.KVHitRate, t.RouterQueueDepth = &rate, &depth
	}
	return t
}

// PromptTokenIDs returns the prompt's tokens.
func (r *Run) PromptTokenIDs() []uint32 { return r.request.TokenIDs[:r.original] }

// FormattedPrompt returns the rendered prompt; "" when the client sent tokens.
func (r *Run) FormattedPrompt() string { return r.prompt }
