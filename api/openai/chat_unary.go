package openai

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/pipeline"
)

// chatChoice gathers one choice of a whole answer.
type chatChoice struct {
	index     uint32
	content   []byte
	reasoning []byte
	calls     []pipeline.ToolCallDelta
	logprobs  []pipeline.TokenLogprob
	finish    inference.FinishReason
	stop      inference.StopReason
	tokens    []uint32
	engine    []byte
}

func (c *chatChoice) add(delta *pipeline.Delta) {
	c.content = append(c.content, delta.Content...)
	c.reasoning = append(c.reasoning, delta.Reasoning...)
	for _, call := range delta.ToolCalls {
		at := slices.IndexFunc(c.calls, func(have pipeline.ToolCallDelta) bool { return have.Index == call.Index })
		if at < 0 {
			c.calls = append(c.calls, call)
			continue
		}
		c.calls[at].Arguments += call.Arguments
	}
	for i := range delta.Logprobs {
		token := delta.Logprobs[i]
		token.Top = slices.Clone(token.Top)
		token.Bytes = slices.Clone(token.Bytes)
		c.logprobs = append(c.logprobs, token)
	}
	if delta.Finish != inference.FinishNone {
		c.finish, c.stop = delta.Finish, delta.StopReason
	}
	if delta.EngineData != nil {
		c.engine = slices.Clone(delta.EngineData)
	}
}

// unaryChat writes a chat answer as one body.
func (a *API) unaryChat(ctx context.Context, w http.ResponseWriter, r *http.Request, c *chatAnswer) {
	choices, any, err := gatherChat(ctx, c)
	if err != nil {
		p := a.mapper.FromError(problem.Reason(r.Context(), err), any)
		c.observed.End(c.generation.Usage(), p, problem.ClientGone(r.Context()))
		p.Write(w)
		return
	}
	b := make([]byte, 0, 1024)
	switch {
	case c.queryOnly():
		b = c.appendQueryAnswer(b)
	case len(choices) == 0:
		// A worker that ends without a word: existing clients know this empty answer.
		b = append(b, `{"id":"","choices":[],"created":0,"model":"","object":"chat.completion"}`...)
	default:
		b = a.appendChatAnswer(b, c, choices)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
	c.observed.End(c.generation.Usage(), nil, false)
}

// gatherChat reads the whole answer. any tells whether the worker said anything before it failed.
func gatherChat(ctx context.Context, c *chatAnswer) (choices []*chatChoice, any bool, err error) {
	for {
		delta, err := c.generation.Next(ctx)
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
		at := slices.IndexFunc(choices, func(have *chatChoice) bool { return have.index == delta.Index })
		if at < 0 {
			at = len(choices)
			choices = append(choices, &chatChoice{index: delta.Index})
		}
		choices[at].add(delta)
		if c.extension.Wants("completion_token_ids") {
			choices[at].tokens = append(choices[at].tokens, delta.TokenIDs...)
		}
	}
	slices.SortFunc(choices, func(x, y *chatChoice) int { return int(x.index) - int(y.index) })
	return choices, any, nil
}

func (a *API) appendChatAnswer(b []byte, c *chatAnswer, choices []*chatChoice) []byte {
	c.buildFrame("chat.completion")
	b = append(b, c.prefix...)
	finished := false
	for i, choice := range choices {
		if i > 0 {
			b = append(b, ',')
		}
		finished = finished || choice.finish != inference.FinishNone
		b = a.appendChatChoice(b, choice)
	}
	b = append(b, c.suffix...)
	if finished {
		b = append(b, `,"usage":`...)
		b = appendChatUsage(b, c.generation.Usage())
	}
	extra := c.discloseWhole(choices[0].tokens, choices[0].stop, choices[0].engine)
	b = extra.appendTo(b)
	return append(b, '}')
}

func (a *API) appendChatChoice(b []byte, choice *chatChoice) []byte {
	b = append(b, `{"index":`...)
	b = appendUint(b, choice.index)
	b = append(b, `,"message":{"content":`...)
	if len(choice.content) > 0 {
		b = appendString(b, string(choice.content))
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"refusal":null`...)
	if len(choice.calls) > 0 {
		b = append(b, `,"tool_calls":[`...)
		for j := range choice.calls {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendToolCall(b, &choice.calls[j], -1)
		}
		b = append(b, ']')
	}
	b = append(b, `,"role":"assistant"`...)
	if len(choice.reasoning) > 0 {
		b = append(b, `,"`...)
		b = append(b, a.options.ReasoningField...)
		b = append(b, `":`...)
		b = appendString(b, string(choice.reasoning))
	}
	b = append(b, `},"finish_reason":`...)
	b = appendFinish(b, choice.finish)
	b = append(b, `,"logprobs":`...)
	b = appendChatLogprobs(b, choice.logprobs)
	return append(b, '}')
}

// discloseWhole gathers what a whole answer discloses.
func (c *chatAnswer) discloseWhole(tokens []uint32, stop inference.StopReason, engine []byte) disclosure {
	var d disclosure
	e := c.extension
	if e.Wants("worker_id") {
		d.workers(c.generation.Workers())
	}
	if e.Wants("timing") {
		d.timing(c.generation.Timing())
	}
	if e.Wants("completion_token_ids") {
		d.ids("completion_token_ids", tokens)
	}
	if e.Wants("prompt_token_ids") {
		d.ids("prompt_token_ids", c.generation.PromptTokenIDs())
	}
	if e.Wants("engine_data") && engine != nil {
		d.raw("engine_data", engine)
	}
	if e.Wants("stop_reason") {
		d.stopReason(stop)
	}
	return d
}

func (c *chatAnswer) appendQueryAnswer(b []byte) []byte {
	c.buildFrame("chat.completion")
	b = append(b, c.prefix...)
	b = append(b, `{"index":0,"message":{"content":null,"refusal":null,"role":"assistant"},"finish_reason":null,"logprobs":null}`...)
	b = append(b, c.suffix...)
	b = queryDisclosure(c.generation).appendTo(b)
	return append(b, '}')
}
