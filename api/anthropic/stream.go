package anthropic

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"signalbox/api/problem"
	"signalbox/api/sse"
	"signalbox/inference"
	"signalbox/pipeline"
)

// block is the kind of content block that is open.
type block uint8

const (
	noBlock block = iota
	textBlock
	thinkingBlock
	toolBlock
)

// events writes the event sequence of one streamed answer.
type events struct {
	out    *sse.Writer
	answer *answer
	index  int // of the open block, or of the next one
	open   block
	call   int // index of the call in the open tool block
}

// stream writes the answer as events.
func (a *API) stream(ctx context.Context, w http.ResponseWriter, r *http.Request, answer *answer) {
	e := &events{out: sse.NewWriter(w, a.options.WriteTimeout), answer: answer}
	e.begin()
	_ = e.out.Start()
	var finish inference.FinishReason
	var stop inference.StopReason
	err := e.out.Err()
	for err == nil {
		var delta *pipeline.Delta
		if delta, err = answer.generation.Next(ctx); err != nil {
			break
		}
		if delta.Event != "" {
			e.out.Annotation(delta.Event, delta.Comments...)
			continue
		}
		answer.observed.Tokens(len(delta.TokenIDs))
		e.delta(delta)
		if delta.Finish != inference.FinishNone {
			finish, stop = delta.Finish, delta.StopReason
		}
		if !answer.generation.Buffered() {
			err = e.out.Flush()
		}
	}
	usage := answer.generation.Usage()
	switch {
	case errors.Is(err, io.EOF):
		e.end(finish, stop, usage)
		if doneErr := e.out.Done(); doneErr != nil {
			answer.observed.End(usage, gone(doneErr), true)
			return
		}
		answer.observed.End(usage, nil, false)
	case e.out.Err() != nil, problem.ClientGone(r.Context()):
		answer.observed.End(usage, gone(err), true)
	default:
		p := a.mapper.FromError(problem.Reason(r.Context(), err), true)
		message := a.mapper.InStream(problem.Reason(r.Context(), err)).Message
		e.out.Event("error", errorBody(errorType(p), message))
		_ = e.out.Done()
		answer.observed.End(usage, p, false)
	}
}

func gone(cause error) *problem.Problem {
	return &problem.Problem{Status: problem.StatusClientClosed, Message: "Request cancelled", Class: "Cancelled", Reason: "request.cancelled", Cause: cause}
}

func (e *events) begin() {
	b := append([]byte(`{"type":"message_start","message":{"id":"`), e.answer.id...)
	b = append(b, `","type":"message","role":"assistant","content":[],"model":`...)
	b = append(b, quote(e.answer.model)...)
	b = append(b, `,"stop_reason":null,"stop_sequence":null,"usage":`...)
	b = appendUsage(b, pipeline.Usage{PromptTokens: e.answer.request.estimate}, false)
	e.out.Event("message_start", append(b, "}}"...))
}

func (e *events) delta(d *pipeline.Delta) {
	if d.Reasoning != "" {
		e.want(thinkingBlock, `{"type":"thinking","thinking":"","signature":""}`)
		e.blockDelta("thinking_delta", "thinking", d.Reasoning)
	}
	if d.Content != "" {
		e.want(textBlock, `{"type":"text","text":""}`)
		e.blockDelta("text_delta", "text", d.Content)
	}
	for i := range d.ToolCalls {
		call := &d.ToolCalls[i]
		if e.open != toolBlock || e.call != call.Index || call.ID != "" {
			e.closeBlock()
			e.call = call.Index
			e.start(toolBlock, `{"type":"tool_use","id":"toolu_`+randomID()+`","name":`+string(quote(call.Name))+`,"input":{}}`)
		}
		e.blockDelta("input_json_delta", "partial_json", call.Arguments)
	}
}

// want makes the open block one of the kind.
func (e *events) want(kind block, start string) {
	if e.open == kind {
		return
	}
	e.closeBlock()
	e.start(kind, start)
}

func (e *events) start(kind block, content string) {
	e.open = kind
	b := strconv.AppendInt([]byte(`{"type":"content_block_start","index":`), int64(e.index), 10)
	b = append(b, `,"content_block":`...)
	b = append(b, content...)
	e.out.Event("content_block_start", append(b, '}'))
}

func (e *events) blockDelta(kind, member, text string) {
	b := strconv.AppendInt([]byte(`{"type":"content_block_delta","index":`), int64(e.index), 10)
	b = append(b, `,"delta":{"type":"`...)
	b = append(b, kind...)
	b = append(b, `","`...)
	b = append(b, member...)
	b = append(b, `":`...)
	b = append(b, quote(text)...)
	b = append(b, `},"usage":`...)
	b = appendUsage(b, e.answer.generation.Usage(), true)
	e.out.Event("content_block_delta", append(b, '}'))
}

func (e *events) closeBlock() {
	if e.open == noBlock {
		return
	}
	if e.open == thinkingBlock {
		b := strconv.AppendInt([]byte(`{"type":"content_block_delta","index":`), int64(e.index), 10)
		b = append(b, `,"delta":{"type":"signature_delta","signature":"erased"},"usage":`...)
		b = appendUsage(b, e.answer.generation.Usage(), true)
		e.out.Event("content_block_delta", append(b, '}'))
	}
	b := strconv.AppendInt([]byte(`{"type":"content_block_stop","index":`), int64(e.index), 10)
	e.out.Event("content_block_stop", append(b, '}'))
	e.open = noBlock
	e.index++
}

func (e *events) end(finish inference.FinishReason, stop inference.StopReason, usage pipeline.Usage) {
	e.closeBlock()
	word, sequence := stopReason(finish, stop)
	b := append([]byte(`{"type":"message_delta","delta":{"stop_reason":"`), word...)
	b = append(b, '"')
	if sequence != "" {
		b = append(b, `,"stop_sequence":`...)
		b = append(b, quote(sequence)...)
	}
	b = append(b, `},"usage":`...)
	b = appendUsage(b, usage, false)
	e.out.Event("message_delta", append(b, '}'))
	e.out.Event("message_stop", []byte(`{"type":"message_stop"}`))
}
