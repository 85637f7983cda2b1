package frontend

import (
	"context"
	"errors"
	"sync"
	"time"

	"signalbox/api/openai"
	"signalbox/inference"
	"signalbox/pipeline"
)

// awaited is a set whose requests are held when its last worker goes before their first byte, like those that find no worker at all.
type awaited struct {
	served
	holder *holder
}

// holding wraps a set where requests are held; else it is the set itself.
func (h *holder) holding(set served) openai.Model {
	if h.options.Patience <= 0 {
		return set
	}
	return awaited{set, h}
}

// Generate implements openai.Model.
func (m awaited) Generate(ctx context.Context, job *pipeline.Job) (openai.Generation, error) {
	return m.holder.generate(ctx, m.served, job)
}

// Generate implements openai.Model.
func (m heldModel) Generate(ctx context.Context, job *pipeline.Job) (openai.Generation, error) {
	found, err := m.holder.await(ctx, m.kept.listing.Name)
	if err != nil {
		return nil, err
	}
	return m.holder.generate(ctx, found, job)
}

// abandoned tells whether a request failed for lack of workers: nobody is left, or who was left could not take it or broke off. A
// worker that the client named is not waited for.
func abandoned(err error, request *inference.Request) bool {
	r := &request.Routing
	if err == nil || r.BackendInstanceID != nil || r.DecodeWorkerID != nil || r.PrefillWorkerID != nil {
		return false
	}
	kind := inference.KindOf(err)
	return errors.Is(err, pipeline.ErrNoWorkers) || kind == inference.Unavailable || kind.MarksDown()
}

// generate starts a generation at the set, and again at whatever set serves the model later while workers fail before the first byte.
func (h *holder) generate(ctx context.Context, set served, job *pipeline.Job) (openai.Generation, error) {
	held := &heldGeneration{holder: h, context: ctx, asked: *job, model: set.Name(), until: time.Now().Add(h.options.Patience)}
	held.asked.Request = job.Request.Clone() // starting changes the job's own
	if err := held.begin(set, job); err != nil {
		return nil, err
	}
	return held, nil
}

// heldGeneration is a generation that may begin anew until its first delta has been handed out.
type heldGeneration struct {
	holder  *holder
	context context.Context
	asked   pipeline.Job // as it was asked; its request is copied for each start
	model   string
	until   time.Time // no start after it
	started bool      // something was handed out

	mu      sync.Mutex // guards the two below, for Close comes from anywhere
	current openai.Generation
	closed  bool
}

// begin starts at the set, or at the sets that come after it.
func (g *heldGeneration) begin(set served, job *pipeline.Job) error {
	for {
		generation, err := set.Generate(g.context, job)
		if err == nil {
			g.replace(generation)
			return nil
		}
		if set, err = g.next(err); err != nil {
			return err
		}
		job = g.again()
	}
}

// again is the job as it was asked.
func (g *heldGeneration) again() *pipeline.Job {
	job := g.asked
	job.Request = g.asked.Request.Clone()
	return &job
}

// next waits for a set to start at after a failure, which it returns when there is none in time.
func (g *heldGeneration) next(failure error) (served, error) {
	if g.context.Err() != nil || !abandoned(failure, g.asked.Request) || time.Until(g.until) <= 0 {
		return served{}, failure
	}
	ctx, cancel := context.WithDeadline(g.context, g.until)
	defer cancel()
	pause := time.NewTimer(lookAgain) // a worker that fails at once is not asked again at once
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return served{}, failure
	}
	set, err := g.holder.await(ctx, g.model)
	if err != nil && inference.KindOf(err) != inference.ResourceExhausted { // else too many wait already
		err = failure
	}
	return set, err
}

func (g *heldGeneration) replace(generation openai.Generation) {
	g.mu.Lock()
	g.current = generation
	closed := g.closed
	g.mu.Unlock()
	if closed {
		_ = generation.Close()
	}
}

func (g *heldGeneration) now() openai.Generation {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current
}

// Next implements openai.Generation.
func (g *heldGeneration) Next(ctx context.Context) (*pipeline.Delta, error) {
	for {
		current := g.now()
		delta, err := current.Next(ctx)
		if g.started || err == nil || ctx.Err() != nil {
			g.started = true
			return delta, err
		}
		set, err := g.next(err)
		if err != nil {
			return nil, err
		}
		_ = current.Close()
		if err := g.begin(set, g.again()); err != nil {
			return nil, err
		}
	}
}

// Buffered implements openai.Generation.
func (g *heldGeneration) Buffered() bool { return g.now().Buffered() }

// Usage implements openai.Generation.
func (g *heldGeneration) Usage() pipeline.Usage { return g.now().Usage() }

// Workers implements openai.Generation.
func (g *heldGeneration) Workers() pipeline.WorkerReport { return g.now().Workers() }

// Timing implements openai.Generation.
func (g *heldGeneration) Timing() pipeline.Timing { return g.now().Timing() }

// PromptTokenIDs implements openai.Generation.
func (g *heldGeneration) PromptTokenIDs() []uint32 { return g.now().PromptTokenIDs() }

// FormattedPrompt implements openai.Generation.
func (g *heldGeneration) FormattedPrompt() string { return g.now().FormattedPrompt() }

// Close implements openai.Generation.
func (g *heldGeneration) Close() error {
	g.mu.Lock()
	g.closed = true
	current := g.current
	g.mu.Unlock()
	return current.Close()
}
