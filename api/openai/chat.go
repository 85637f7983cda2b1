package openai

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"signalbox/api/nvext"
	"signalbox/api/problem"
	"signalbox/api/sse"
	"signalbox/inference"
	"signalbox/pipeline"
)

// Chat answers POST /v1/chat/completions.
func (a *API) Chat(w http.ResponseWriter, r *http.Request) {
	received := time.Now()
	document, p := a.reader.Document(w, r)
	if p != nil {
		a.refuse(w, p)
		return
	}
	if a.draining() {
		a.refuse(w, problem.Draining())
		return
	}
	request := newRequest(r.Header)
	chat, p := a.readChat(document, request)
	if p == nil {
		p = a.applyHeaders(r.Header, request)
	}
	observed := a.observer.Begin("chat_completions", request.Model, chat != nil && chat.stream)
	observed.Named(request.ID, request.ClientRequestID, request.TraceParent)
	if p != nil {
		observed.End(pipeline.Usage{}, p, false)
		p.Write(w)
		return
	}
	chat.job.Received = received
	model, p := a.find(request.Model, Chat)
	if p != nil {
		observed.End(pipeline.Usage{}, p, false)
		p.Write(w)
		return
	}
	request.Model = model.Name()
	observed.Model(request.Model)
	a.runChat(w, r, &chatAnswer{
		job: chat.job, extension: chat.extension, options: chat.options, observed: observed, model: model,
	}, chat.stream)
}

func (a *API) runChat(w http.ResponseWriter, r *http.Request, answer *chatAnswer, stream bool) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	media := answer.job.Request.MultiModal
	answer.observed.Media(len(media["image_url"]), len(media["video_url"]), len(media["audio_url"]))
	answer.observed.Dispatched()
	generation, err := answer.model.Generate(ctx, answer.job)
	if err != nil {
		p := a.mapper.FromError(problem.Reason(r.Context(), err), false)
		answer.observed.End(pipeline.Usage{}, p, problem.ClientGone(r.Context()))
		p.Write(w)
		return
	}
	defer generation.Close()
	answer.generation = generation
	answer.id = "chatcmpl-" + answer.job.Request.ID
	answer.created = time.Now().Unix()
	if stream {
		a.streamChat(ctx, w, r, answer)
	} else {
		a.unaryChat(ctx, w, r, answer)
	}
}

// chatAnswer is a chat answer being written.
type chatAnswer struct {
	job        *pipeline.Job
	extension  *nvext.Extension
	options    streamOptions
	observed   RequestObserver
	model      Model
	generation Generation
	id         string
	created    int64

	// prefix and suffix surround a chunk's choice; they are built once.
	prefix, suffix []byte
	started        []bool     // per choice index: the role was sent
	dispatches     []dispatch // per choice index, when dispatch events are on
}

func (c *chatAnswer) queryOnly() bool { return c.job.Request.Routing.QueryOnly }

func (c *chatAnswer) buildFrame(object string) {
	c.prefix = append(c.prefix, `{"id":`...)
	c.prefix = appendString(c.prefix, c.id)
	c.prefix = append(c.prefix, `,"choices":[`...)
	c.suffix = append(c.suffix, `],"created":`...)
	c.suffix = strconv.AppendInt(c.suffix, c.created, 10)
	c.suffix = append(c.suffix, `,"model":`...)
	c.suffix = appendString(c.suffix, c.job.Request.Model)
	c.suffix = append(c.suffix, `,"object":"`...)
	c.suffix = append(c.suffix, object...)
	c.suffix = append(c.suffix, '"')
}

// firstOf tells whether the choice has said nothing yet, and remembers that it now has.
func (c *chatAnswer) firstOf(index uint32) bool {
	if index >= maxChoices {
		return false
	}
	for int(index) >= len(c.started) {
		c.started = append(c.started, false)
	}
	first := !c.started[index]
	c.started[index] = true
	return first
}

// maxChoices bounds the choice index that a worker may send.
const maxChoices = 128

// streamChat writes a chat answer as a stream of chunks.
func (a *API) streamChat(ctx context.Context, w http.ResponseWriter, r *http.Request, c *chatAnswer) {
	out := sse.NewWriter(w, a.options.WriteTimeout)
	c.buildFrame("chat.completion.chunk")
	first, firstErr, peeked := a.peek(ctx, c.generation)
	if peeked && firstErr != nil && !errors.Is(firstErr, io.EOF) {
		p := a.mapper.FromError(problem.Reason(r.Context(), firstErr), false)
		c.observed.End(c.generation.Usage(), p, false)
		p.Write(w)
		return
	}
	_ = out.Start()
	a.annotate(out, c.extension, c.job, c.generation)
	if c.queryOnly() {
		a.writeQueryChunk(out, c)
	}
	err := a.pumpChat(ctx, out, c, first, firstErr, peeked)
	a.finishStream(ctx, r, out, err, func() {
		if a.wantsUsage(c.options) && !c.queryOnly() {
			b := append(out.Buffer(), "data: "...)
			b = append(b, c.prefix...)
			b = append(b, c.suffix...)
			b = append(b, `,"usage":`...)
			b = appendChatUsage(b, c.generation.Usage())
			out.SetBuffer(append(b, "}\n\n"...))
		}
	}, c.observed, c.generation)
}

func (a *API) wantsUsage(options streamOptions) bool {
	return options.includeUsage || a.options.ForceIncludeUsage
}

// peek waits for the first delta for the configured time, so that an error that comes at once still gets a real status.
func (a *API) peek(ctx context.Context, g Generation) (delta *pipeline.Delta, err error, peeked bool) {
	if a.options.ErrorPeek <= 0 {
		return nil, nil, false
	}
	peekContext, cancel := context.WithTimeout(ctx, a.options.ErrorPeek)
	defer cancel()
	delta, err = g.Next(peekContext)
	if err != nil && peekContext.Err() != nil && ctx.Err() == nil {
		return nil, nil, false // nothing came in time: go on without
	}
	return delta, err, true
}

// pumpChat writes deltas until the stream ends; nil means a clean end.
func (a *API) pumpChat(ctx context.Context, out *sse.Writer, c *chatAnswer, first *pipeline.Delta, firstErr error, peeked bool) error {
	delta, err := first, firstErr
	if !peeked {
		delta, err = a.next(ctx, out, c.generation)
	}
	for err == nil {
		if delta.Event != "" {
			a.annotation(out, delta.Event, delta.Comments)
		} else {
			c.observed.Tokens(len(delta.TokenIDs))
			a.writeChatChunk(out, c, delta)
		}
		if !c.generation.Buffered() {
			if err = out.Flush(); err != nil {
				return &clientGone{err}
			}
		}
		delta, err = a.next(ctx, out, c.generation)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// clientGone marks a failure to write: nobody is left to tell.
type clientGone struct{ cause error }

func (e *clientGone) Error() string { return "the client is gone: " + e.cause.Error() }

// next returns the next delta and keeps the connection alive with comments while it waits.
func (a *API) next(ctx context.Context, out *sse.Writer, g Generation) (*pipeline.Delta, error) {
	if a.options.KeepAlive <= 0 || g.Buffered() {
		return g.Next(ctx)
	}
	type result struct {
		delta *pipeline.Delta
		err   error
	}
	ready := make(chan result, 1)
	go func() { // ends with the delta or with ctx
		delta, err := g.Next(ctx)
		ready <- result{delta, err}
	}()
	timer := time.NewTimer(a.options.KeepAlive)
	defer timer.Stop()
	var writeErr error
	for {
		select {
		case got := <-ready:
			if writeErr != nil {
				return nil, &clientGone{writeErr}
			}
			return got.delta, got.err
		case <-timer.C:
			if writeErr == nil {
				writeErr = out.KeepAlive()
				if writeErr != nil {
					_ = g.Close()
				}
			}
			timer.Reset(a.options.KeepAlive)
		}
	}
}

func (a *API) writeChatChunk(out *sse.Writer, c *chatAnswer, delta *pipeline.Delta) {
	finished := delta.Finish != inference.FinishNone
	nothing := delta.Content == "" && delta.Reasoning == "" && len(delta.ToolCalls) == 0 && len(delta.Logprobs) == 0 && !finished
	var extra disclosure
	if len(c.extension.ExtraFields) > 0 {
		extra = discloseChunk(c.extension, c.generation, delta, finished)
	}
	if nothing && !c.needsEmptyChunk(delta) {
		return
	}
	a.dispatchEvents(out, c, delta)
	b := append(out.Buffer(), "data: "...)
	b = append(b, c.prefix...)
	b = append(b, `{"index":`...)
	b = strconv.AppendUint(b, uint64(delta.Index), 10)
	b = append(b, `,"delta":{`...)
	b = a.appendDelta(b, c, delta)
	b = append(b, `},"finish_reason":`...)
	b = appendFinish(b, delta.Finish)
	b = append(b, `,"logprobs":`...)
	b = appendChatLogprobs(b, delta.Logprobs)
	b = append(b, '}')
	b = append(b, c.suffix...)
	if c.options.continuousUsage && a.wantsUsage(c.options) {
		b = append(b, `,"usage":`...)
		b = appendChatUsage(b, c.generation.Usage())
	}
	b = extra.appendTo(b)
	out.SetBuffer(append(b, "}\n\n"...))
}

// needsEmptyChunk tells whether a delta without text is worth a chunk: the very first one of a choice whose text is held back
// by a parser carries the role.
func (c *chatAnswer) needsEmptyChunk(delta *pipeline.Delta) bool {
	return delta.OpensChoice && (int(delta.Index) >= len(c.started) || !c.started[delta.Index])
}

func (a *API) appendDelta(b []byte, c *chatAnswer, delta *pipeline.Delta) []byte {
	start := len(b)
	separate := func() {
		if len(b) > start {
			b = append(b, ',')
		}
	}
	if delta.Content != "" || len(delta.ToolCalls) > 0 {
		b = append(b, `"content":`...)
		b = appendString(b, delta.Content)
	}
	if delta.Reasoning != "" {
		separate()
		b = append(b, '"')
		b = append(b, a.options.ReasoningField...)
		b = append(b, `":`...)
		b = appendString(b, delta.Reasoning)
	}
	if len(delta.ToolCalls) > 0 {
		separate()
		b = append(b, `"tool_calls":[`...)
		for i := range delta.ToolCalls {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendToolCall(b, &delta.ToolCalls[i], delta.ToolCalls[i].Index)
		}
		b = append(b, ']')
	}
	if c.firstOf(delta.Index) {
		separate()
		b = append(b, `"role":"assistant"`...)
	}
	return b
}

func (a *API) writeQueryChunk(out *sse.Writer, c *chatAnswer) {
	b := append(out.Buffer(), "data: "...)
	b = append(b, c.prefix...)
	b = append(b, `{"index":0,"delta":{"role":"assistant"},"finish_reason":null,"logprobs":null}`...)
	b = append(b, c.suffix...)
	b = queryDisclosure(c.generation).appendTo(b)
	out.SetBuffer(append(b, "}\n\n"...))
}

func queryDisclosure(g Generation) *disclosure {
	var d disclosure
	d.workers(g.Workers())
	d.ids("token_ids", g.PromptTokenIDs())
	return &d
}
