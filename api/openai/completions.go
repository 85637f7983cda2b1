package openai

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"signalbox/api/nvext"
	"signalbox/api/problem"
	"signalbox/api/sse"
	"signalbox/inference"
	"signalbox/pipeline"
)

// Completions answers POST /v1/completions.
func (a *API) Completions(w http.ResponseWriter, r *http.Request) {
	document, p := a.reader.Document(w, r)
	if p != nil {
		a.refuse(w, p)
		return
	}
	if a.draining() {
		a.refuse(w, problem.Draining())
		return
	}
	template := newRequest(r.Header)
	request, p := a.readCompletion(document, template)
	if p == nil {
		for _, job := range request.jobs {
			if p = a.applyHeaders(r.Header, job.Request); p != nil {
				break
			}
		}
	}
	observed := a.observer.Begin("completions", template.Model, request != nil && request.stream)
	observed.Named(template.ID, template.ClientRequestID, template.TraceParent)
	var model Model
	if p == nil {
		model, p = a.find(template.Model, Completions)
	}
	if p != nil {
		observed.End(pipeline.Usage{}, p, false)
		p.Write(w)
		return
	}
	observed.Model(model.Name())
	a.runCompletions(w, r, request, model, template.ID, observed)
}

// completionAnswer is a completions answer being written: one generation per prompt.
type completionAnswer struct {
	request     *completionRequest
	generations []Generation
	model       string
	id          string
	created     int64
	observed    RequestObserver
	suffix      []byte
}

// usage sums the prompts' counts.
func (c *completionAnswer) usage() pipeline.Usage {
	total := c.generations[0].Usage()
	for _, g := range c.generations[1:] {
		u := g.Usage()
		total.PromptTokens += u.PromptTokens
		total.CompletionTokens += u.CompletionTokens
		if u.CachedTokens != nil {
			cached := *u.CachedTokens
			if total.CachedTokens != nil {
				cached += *total.CachedTokens
			}
			total.CachedTokens = &cached
		}
	}
	return total
}

func (a *API) runCompletions(w http.ResponseWriter, r *http.Request, request *completionRequest, model Model, id string, observed RequestObserver) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	observed.Media(0, 0, 0)
	observed.Dispatched()
	c := &completionAnswer{request: request, model: model.Name(), id: "cmpl-" + id, created: time.Now().Unix(), observed: observed}
	defer func() {
		for _, g := range c.generations {
			_ = g.Close()
		}
	}()
	for i, job := range request.jobs {
		job.Request.Model = c.model
		if i > 0 { // sub-requests are requests of their own to the workers
			job.Request.ID = nvext.RequestID(http.Header{})
		}
		g, err := model.Generate(ctx, job)
		if err != nil {
			p := a.mapper.FromError(problem.Reason(r.Context(), err), false)
			observed.End(pipeline.Usage{}, p, problem.ClientGone(r.Context()))
			p.Write(w)
			return
		}
		c.generations = append(c.generations, g)
	}
	c.suffix = append(c.suffix, `],"created":`...)
	c.suffix = strconv.AppendInt(c.suffix, c.created, 10)
	c.suffix = append(c.suffix, `,"model":`...)
	c.suffix = appendString(c.suffix, c.model)
	c.suffix = append(c.suffix, `,"system_fingerprint":null,"object":"text_completion"`...)
	if request.stream {
		a.streamCompletions(ctx, w, r, c)
	} else {
		a.unaryCompletions(ctx, w, r, c)
	}
}

// completionChoice gathers one choice of a whole answer.
type completionChoice struct {
	index    int
	text     []byte
	finish   inference.FinishReason
	stop     inference.StopReason
	logprobs []pipeline.TokenLogprob
	tokens   []uint32
	engine   []byte
}

func (a *API) unaryCompletions(ctx context.Context, w http.ResponseWriter, r *http.Request, c *completionAnswer) {
	var choices []*completionChoice
	for prompt, g := range c.generations {
		gathered, any, err := gatherCompletion(ctx, c, g)
		if err != nil {
			p := a.mapper.FromError(problem.Reason(r.Context(), err), any)
			c.observed.End(c.usage(), p, problem.ClientGone(r.Context()))
			p.Write(w)
			return
		}
		for _, choice := range gathered {
			choice.index += prompt * c.request.choices
		}
		choices = append(choices, gathered...)
	}
	queryOnly := c.request.jobs[0].Request.Routing.QueryOnly
	b := make([]byte, 0, 1024)
	if len(choices) == 0 && !queryOnly {
		b = append(b, `{"id":"","choices":[],"created":0,"model":"","system_fingerprint":null,"object":"text_completion","usage":null}`...)
	} else {
		b = a.appendCompletionAnswer(b, c, choices, queryOnly)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
	c.observed.End(c.usage(), nil, false)
}

func (a *API) appendCompletionAnswer(b []byte, c *completionAnswer, choices []*completionChoice, queryOnly bool) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, c.id)
	b = append(b, `,"choices":[`...)
	finished := false
	for i, choice := range choices {
		if i > 0 {
			b = append(b, ',')
		}
		finished = finished || choice.finish != inference.FinishNone
		b = appendCompletionChoice(b, string(choice.text), choice.index, choice.finish, choice.logprobs)
	}
	if queryOnly {
		b = append(b, `{"text":"","index":0}`...)
	}
	b = append(b, c.suffix...)
	b = append(b, `,"usage":`...)
	if finished {
		b = appendCompletionUsage(b, c.usage())
	} else {
		b = append(b, "null"...)
	}
	var d disclosure
	e, g := c.request.extension, c.generations[0]
	switch {
	case queryOnly:
		d = *queryDisclosure(g)
	case len(e.ExtraFields) > 0 && len(choices) > 0:
		whole := chatAnswer{extension: e, generation: g}
		d = whole.discloseWhole(choices[0].tokens, choices[0].stop, choices[0].engine)
	}
	b = d.appendTo(b)
	return append(b, '}')
}

func gatherCompletion(ctx context.Context, c *completionAnswer, g Generation) (choices []*completionChoice, any bool, err error) {
	for {
		delta, err := g.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, any, err
		}
		if delta.Event != "" {
			continue
		}
		any = true
		c.observed.Tokens(len(delta.TokenIDs))
		at := slices.IndexFunc(choices, func(have *completionChoice) bool { return have.index == int(delta.Index) })
		if at < 0 {
			at = len(choices)
			choices = append(choices, &completionChoice{index: int(delta.Index)})
		}
		choice := choices[at]
		choice.text = append(choice.text, delta.Content...)
		for i := range delta.Logprobs {
			token := delta.Logprobs[i]
			token.Top = slices.Clone(token.Top)
			choice.logprobs = append(choice.logprobs, token)
		}
		if c.request.extension.Wants("completion_token_ids") {
			choice.tokens = append(choice.tokens, delta.TokenIDs...)
		}
		if delta.EngineData != nil {
			choice.engine = slices.Clone(delta.EngineData)
		}
		if delta.Finish != inference.FinishNone {
			choice.finish, choice.stop = delta.Finish, delta.StopReason
		}
	}
	slices.SortFunc(choices, func(x, y *completionChoice) int { return x.index - y.index })
	return choices, any, nil
}

// appendCompletionChoice appends one choice; finish_reason and logprobs are left out while there are none.
func appendCompletionChoice(b []byte, text string, index int, finish inference.FinishReason, logprobs []pipeline.TokenLogprob) []byte {
	b = append(b, `{"text":`...)
	b = appendString(b, text)
	b = append(b, `,"index":`...)
	b = strconv.AppendInt(b, int64(index), 10)
	if len(logprobs) > 0 {
		b = append(b, `,"logprobs":`...)
		b = appendCompletionLogprobs(b, logprobs)
	}
	if word := finishWord(finish); word != "" {
		b = append(b, `,"finish_reason":"`...)
		b = append(b, word...)
		b = append(b, '"')
	}
	return append(b, '}')
}

func appendCompletionLogprobs(b []byte, tokens []pipeline.TokenLogprob) []byte {
	list := func(name string, each func(b []byte, token *pipeline.TokenLogprob) []byte) {
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":[`...)
		for i := range tokens {
			if i > 0 {
				b = append(b, ',')
			}
			b = each(b, &tokens[i])
		}
		b = append(b, `],`...)
	}
	b = append(b, '{')
	list("tokens", func(b []byte, t *pipeline.TokenLogprob) []byte { return appendString(b, t.Token) })
	list("token_logprobs", func(b []byte, t *pipeline.TokenLogprob) []byte { return appendFloat(b, t.Logprob) })
	list("top_logprobs", func(b []byte, t *pipeline.TokenLogprob) []byte {
		b = append(b, '{')
		for j := range t.Top {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendString(b, t.Top[j].Token)
			b = append(b, ':')
			b = appendFloat(b, t.Top[j].Logprob)
		}
		return append(b, '}')
	})
	return append(b, `"text_offset":[]}`...)
}

// streamCompletions writes completions as a stream; the chunks of several prompts interleave as they come.
func (a *API) streamCompletions(ctx context.Context, w http.ResponseWriter, r *http.Request, c *completionAnswer) {
	out := sse.NewWriter(w, a.options.WriteTimeout)
	single := len(c.generations) == 1
	var first *pipeline.Delta
	var firstErr error
	peeked := false
	if single {
		first, firstErr, peeked = a.peek(ctx, c.generations[0])
		if peeked && firstErr != nil && !errors.Is(firstErr, io.EOF) {
			p := a.mapper.FromError(problem.Reason(r.Context(), firstErr), false)
			c.observed.End(c.usage(), p, false)
			p.Write(w)
			return
		}
	}
	_ = out.Start()
	a.annotate(out, c.request.extension, c.request.jobs[0], c.generations[0])
	var err error
	switch {
	case c.request.jobs[0].Request.Routing.QueryOnly:
		b := append(out.Buffer(), `data: {"id":`...)
		b = appendString(b, c.id)
		b = append(b, `,"choices":[{"text":"","index":0}`...)
		b = append(b, c.suffix...)
		b = append(b, `,"usage":null`...)
		b = queryDisclosure(c.generations[0]).appendTo(b)
		out.SetBuffer(append(b, "}\n\n"...))
	case single:
		err = a.pumpCompletion(ctx, out, c, first, firstErr, peeked)
	default:
		err = a.pumpCompletions(ctx, out, c)
	}
	a.finishStream(ctx, r, out, err, func() {
		if a.wantsUsage(c.request.options) && !c.request.jobs[0].Request.Routing.QueryOnly {
			b := append(out.Buffer(), `data: {"id":`...)
			b = appendString(b, c.id)
			b = append(b, `,"choices":[`...)
			b = append(b, c.suffix...)
			b = append(b, `,"usage":`...)
			b = appendCompletionUsage(b, c.usage())
			out.SetBuffer(append(b, "}\n\n"...))
		}
	}, c.observed, &summed{c.generations[0], c})
}

// summed reports the usage of all prompts.
type summed struct {
	Generation
	answer *completionAnswer
}

func (s *summed) Usage() pipeline.Usage { return s.answer.usage() }

func (a *API) pumpCompletion(ctx context.Context, out *sse.Writer, c *completionAnswer, delta *pipeline.Delta, err error, peeked bool) error {
	g := c.generations[0]
	if !peeked {
		delta, err = a.next(ctx, out, g)
	}
	for err == nil {
		a.writeCompletionChunk(out, c, g, c.id, 0, delta)
		if !g.Buffered() {
			if err = out.Flush(); err != nil {
				return &clientGone{err}
			}
		}
		delta, err = a.next(ctx, out, g)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// pumpCompletions reads all prompts at once. Each reader waits until its delta is written, so that nothing piles up.
func (a *API) pumpCompletions(ctx context.Context, out *sse.Writer, c *completionAnswer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type item struct {
		prompt int
		delta  *pipeline.Delta
		err    error
		done   chan struct{}
	}
	items := make(chan item)
	for prompt, g := range c.generations {
		go func() { // ends with its generation or with ctx, which the deferred cancel ends
			done := make(chan struct{})
			for {
				delta, err := g.Next(ctx)
				select {
				case items <- item{prompt, delta, err, done}:
				case <-ctx.Done():
					return
				}
				if err != nil {
					return
				}
				select {
				case <-done:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	for open := len(c.generations); open > 0; {
		var got item
		select {
		case got = <-items:
		case <-ctx.Done():
			return ctx.Err()
		}
		if got.err != nil {
			if !errors.Is(got.err, io.EOF) {
				return got.err
			}
			open--
			continue
		}
		id := c.id + "-" + strconv.Itoa(got.prompt)
		a.writeCompletionChunk(out, c, c.generations[got.prompt], id, got.prompt, got.delta)
		got.done <- struct{}{}
		if err := out.Flush(); err != nil {
			return &clientGone{err}
		}
	}
	return nil
}

func (a *API) writeCompletionChunk(out *sse.Writer, c *completionAnswer, g Generation, id string, prompt int, delta *pipeline.Delta) {
	if delta.Event != "" {
		a.annotation(out, delta.Event, delta.Comments)
		return
	}
	c.observed.Tokens(len(delta.TokenIDs))
	finished := delta.Finish != inference.FinishNone
	if delta.Content == "" && len(delta.Logprobs) == 0 && !finished {
		return
	}
	b := append(out.Buffer(), `data: {"id":`...)
	b = appendString(b, id)
	b = append(b, `,"choices":[`...)
	b = appendCompletionChoice(b, delta.Content, prompt*c.request.choices+int(delta.Index), delta.Finish, delta.Logprobs)
	b = append(b, c.suffix...)
	b = append(b, `,"usage":`...)
	if c.request.options.continuousUsage && a.wantsUsage(c.request.options) {
		b = appendCompletionUsage(b, g.Usage())
	} else {
		b = append(b, "null"...)
	}
	extra := discloseChunk(c.request.extension, g, delta, finished)
	b = extra.appendTo(b)
	out.SetBuffer(append(b, "}\n\n"...))
}
