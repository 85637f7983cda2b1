// Package passthrough is the life of a request whose worker takes text: the conversation goes to it in the shape of OpenAI's API, as the
// client wrote it, and what comes back is read into the same deltas that the pipeline of tokenised requests makes. Templates, tokens,
// parsers and stop strings are the worker's own; placing, trying again and ending are the same as for all.
//
// What it cannot do, for nobody here knows the tokens: move a stream that has begun, tell token ids, and count a prompt before it is
// sent. Requests are placed by load, and by which worker has been sent the same beginning of a text before.
package passthrough

import (
	"context"
	"encoding/binary"
	"io"
	"sync"
	"time"

	"signalbox/inference"
	"signalbox/pipeline"
	"signalbox/router"
)

// Line serves one worker set that takes text.
type Line struct {
	// Model is the name that clients use.
	Model  string
	Router router.Router
	// Send gives the body to a worker; the outputs of the answer carry chunks of OpenAI's API in their bodies. Failures are
	// *inference.Error.
	Send       func(ctx context.Context, workerID uint64, id string, body []byte) (inference.Stream, error)
	Observer   pipeline.Observer
	OnDecision func(request *inference.Request, decision *router.Decision)
}

// maxTries bounds how many workers are tried for a request that has not produced anything.
const maxTries = 8

// Generate starts a generation. It returns once a worker has accepted the request.
func (l *Line) Generate(ctx context.Context, job *pipeline.Job) (*Run, error) {
	body, err := bodyOf(l.Model, job)
	if err != nil {
		return nil, err
	}
	placed := job.Request.Clone()
	placed.Model, placed.TokenIDs = l.Model, routingTokens(job)
	ctx, cancel := context.WithCancel(ctx)
	r := &Run{line: l, job: job, request: placed, body: body, context: ctx, cancel: cancel}
	if n := job.Request.Sampling.N; n != nil {
		r.reader.expected = int(*n)
	}
	r.how.Explain = l.OnDecision != nil
	r.how.Received = job.Received
	if err := r.start(); err != nil {
		cancel()
		return nil, err
	}
	return r, nil
}

// routingTokens stand for a text where prefixes are compared: each is four bytes of it, which is about what a token is. Two requests
// have as many in common as their texts begin alike. Tokens that the client sent are what they are.
func routingTokens(job *pipeline.Job) []uint32 {
	if job.Request.TokenIDs != nil {
		return job.Request.TokenIDs
	}
	var parts [][]byte
	switch chat := job.Prompt.Chat; {
	case chat != nil:
		parts = [][]byte{chat.Tools, chat.Messages}
	case job.Prompt.Text != nil:
		parts = [][]byte{[]byte(*job.Prompt.Text)}
	}
	var ids []uint32
	for _, part := range parts {
		for len(part) >= 4 {
			ids = append(ids, binary.LittleEndian.Uint32(part))
			part = part[4:]
		}
	}
	return ids
}

// Run is one generation on its way. One goroutine pulls it; Close may come from any.
type Run struct {
	line    *Line
	job     *pipeline.Job
	request *inference.Request // as the router sees it
	body    []byte
	how     router.Attempt
	context context.Context
	cancel  context.CancelFunc

	mutex     sync.Mutex // guards the two below, which Close may read while Next replaces them
	placement *router.Placement
	stream    inference.Stream

	reader   chunkReader
	returned int // how many of the reader's deltas were handed out
	started  bool
	ended    error

	firstAt, lastAt time.Time
}

// start places the request and sends it, to another worker while those that were chosen cannot take it.
func (r *Run) start() error {
	for {
		placement, stream, err := r.try()
		if err == nil {
			r.mutex.Lock()
			r.placement, r.stream = placement, stream
			r.mutex.Unlock()
			return nil
		}
		if placement == nil || !r.again(placement.WorkerID, err) {
			return err
		}
	}
}

// again tells whether another worker may be tried after a failure, and notes who failed.
func (r *Run) again(workerID uint64, failure error) bool {
	asked := &r.job.Request.Routing
	if r.context.Err() != nil || !inference.KindOf(failure).Migratable() || len(r.how.Tried) >= maxTries ||
		asked.BackendInstanceID != nil || asked.DecodeWorkerID != nil {
		return false
	}
	r.line.Observer.Migrated(r.line.Model, "new_request")
	r.how.Tried, r.how.LastError = append(r.how.Tried, workerID), failure
	return true
}

// try is one try. The placement is nil when there was none.
func (r *Run) try() (*router.Placement, inference.Stream, error) {
	l, phase := r.line, r.how.Phase.String()
	begun := time.Now()
	placement, err := l.Router.Place(r.context, r.request, r.how)
	if err != nil {
		return nil, nil, err
	}
	l.Observer.Stage("route", phase, time.Since(begun).Seconds())
	if l.OnDecision != nil && placement.Decision != nil {
		l.OnDecision(r.request, placement.Decision)
	}
	l.Observer.Placed(phase, placement)
	if placement.QueryOnly {
		r.ended = io.EOF
		return placement, nil, nil
	}
	begun = time.Now()
	stream, err := l.Send(r.context, placement.WorkerID, r.request.ID, r.body)
	if err != nil {
		placement.End(err)
		return placement, nil, err
	}
	placement.Dispatched()
	l.Observer.Stage("dispatch", phase, time.Since(begun).Seconds())
	return placement, stream, nil
}

// Next returns the next delta; io.EOF after the last one.
func (r *Run) Next(ctx context.Context) (*pipeline.Delta, error) {
	for {
		if r.returned < len(r.reader.deltas) {
			r.returned++
			r.started = true
			return &r.reader.deltas[r.returned-1], nil
		}
		r.reader.deltas, r.returned = r.reader.deltas[:0], 0
		if r.ended != nil {
			return nil, r.ended
		}
		output, err := r.stream.Next(ctx)
		switch {
		case err == nil:
			if err := r.read(output); err != nil {
				r.end(err)
			}
		case err == io.EOF: // itself: a failure may well be caused by one
			r.end(io.EOF)
		case ctx.Err() != nil && r.context.Err() == nil:
			return nil, err // the caller's time is up; the stream goes on
		case r.reader.finished():
			r.end(io.EOF) // the answer was complete
		case !r.started && r.again(r.placement.WorkerID, err):
			r.release(err)
			if err := r.start(); err != nil {
				r.end(err)
			}
		default:
			r.end(err)
		}
	}
}

// read turns a worker's item into deltas.
func (r *Run) read(output *inference.Output) error {
	if output.Event != "" {
		r.reader.deltas = append(r.reader.deltas, pipeline.Delta{Event: output.Event, Comments: output.Comments})
		return nil
	}
	if output.Finish == inference.FinishError {
		return inference.Errorf(inference.BackendUnknown, "%s", output.FinishMessage)
	}
	if output.Body == nil {
		return nil
	}
	if err := r.reader.read(output.Body); err != nil {
		return &inference.Error{Kind: inference.ProtocolViolation, Message: "an answer of OpenAI's API", WorkerID: r.placement.WorkerID, Cause: err}
	}
	if len(r.reader.deltas) > 0 {
		r.note()
	}
	return nil
}

// note reports a chunk as a token: nobody knows better here.
func (r *Run) note() {
	now, phase := time.Now(), r.how.Phase.String()
	r.placement.FirstToken()
	if r.firstAt.IsZero() {
		r.firstAt = now
		r.line.Observer.FirstToken(phase, r.placement, now.Sub(r.job.Received).Seconds(), len(r.request.TokenIDs))
	} else {
		r.line.Observer.InterToken(phase, r.placement, now.Sub(r.lastAt).Seconds())
	}
	r.lastAt = now
	r.placement.Progress(1)
}

// end ends the run.
func (r *Run) end(reason error) {
	if r.ended != nil {
		return
	}
	r.ended = reason
	if reason == io.EOF {
		reason = nil
	}
	r.release(reason)
	r.cancel()
}

// release gives back what the current try holds. Only the first call counts.
func (r *Run) release(outcome error) {
	r.mutex.Lock()
	placement, stream := r.placement, r.stream
	r.mutex.Unlock()
	if stream != nil {
		_ = stream.Close()
	}
	if placement != nil {
		placement.End(outcome)
	}
}

// Buffered tells whether the next delta can be had without waiting.
func (r *Run) Buffered() bool {
	return r.returned < len(r.reader.deltas) || r.ended != nil || r.stream != nil && r.stream.Buffered()
}

// Close ends the run at any time; work that still goes on at the worker is cancelled.
func (r *Run) Close() error {
	r.cancel()
	r.release(inference.Errorf(inference.Cancelled, "the client went away"))
	return nil
}

// Usage returns the worker's counts so far.
func (r *Run) Usage() pipeline.Usage { return r.reader.usage }

// Workers tells who serves the request.
func (r *Run) Workers() pipeline.WorkerReport {
	worker := r.placement.WorkerID
	report := pipeline.WorkerReport{PrefillWorkerID: &worker, DecodeWorkerID: &worker}
	if r.placement.HasRank {
		rank := r.placement.Rank
		report.PrefillRank, report.DecodeRank = &rank, &rank
	}
	return report
}

// Timing tells how long the parts took so far.
func (r *Run) Timing() pipeline.Timing {
	t := pipeline.Timing{Received: r.job.Received}
	total := time.Since(r.job.Received)
	t.Total = &total
	if !r.firstAt.IsZero() {
		first := r.firstAt.Sub(r.job.Received)
		t.TTFT = &first
	}
	return t
}

// PromptTokenIDs returns the tokens that the client sent; nil for a text.
func (r *Run) PromptTokenIDs() []uint32 { return r.job.Request.TokenIDs }

// FormattedPrompt is not known here.
func (r *Run) FormattedPrompt() string { return "" }
