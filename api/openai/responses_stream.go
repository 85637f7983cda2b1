package openai

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

// responseEvents writes the event sequence of one streamed response.
type responseEvents struct {
	out      *sse.Writer
	response *response
	sequence int

	textIndex int // output index of the message, -1 while there is none
	textID    string
	text      []byte
	calls     []*openCall
}

// openCall is a function call whose item is being streamed.
type openCall struct {
	call      pipeline.ToolCallDelta
	output    int
	id        string
	arguments []byte
	done      bool
}

// event sends one event; rest is its members after type and sequence number.
func (e *responseEvents) event(kind string, rest func(b []byte) []byte) {
	b := append([]byte(`{"type":"`), kind...)
	b = append(b, `","sequence_number":`...)
	b = strconv.AppendInt(b, int64(e.sequence), 10)
	e.sequence++
	b = rest(b)
	e.out.Event(kind, append(b, '}'))
}

func (e *responseEvents) whole(kind string) {
	e.event(kind, func(b []byte) []byte { return e.response.appendTo(append(b, `,"response":`...)) })
}

func (e *responseEvents) item(kind string, output int, item []byte) {
	e.event(kind, func(b []byte) []byte {
		b = append(b, `,"output_index":`...)
		b = strconv.AppendInt(b, int64(output), 10)
		b = append(b, `,"item":`...)
		return append(b, item...)
	})
}

// inItem sends an event about a part of an item.
func (e *responseEvents) inItem(kind, id string, output int, rest func(b []byte) []byte) {
	e.event(kind, func(b []byte) []byte {
		b = append(b, `,"item_id":`...)
		b = appendString(b, id)
		b = append(b, `,"output_index":`...)
		b = strconv.AppendInt(b, int64(output), 10)
		return rest(b)
	})
}

func (a *API) streamResponse(ctx context.Context, w http.ResponseWriter, r *http.Request, x *response) {
	e := &responseEvents{out: sse.NewWriter(w, a.options.WriteTimeout), response: x, textIndex: -1}
	first, firstErr, peeked := a.peek(ctx, x.generation)
	if peeked && firstErr != nil && !errors.Is(firstErr, io.EOF) {
		p := a.mapper.FromError(problem.Reason(r.Context(), firstErr), false)
		x.observed.End(x.generation.Usage(), p, false)
		p.Write(w)
		return
	}
	e.whole("response.created")
	e.whole("response.in_progress")
	_ = e.out.Start()
	finish, err := e.pump(a, ctx, first, firstErr, peeked)
	usage := x.generation.Usage()
	var gone *clientGone
	switch {
	case err == nil:
		x.finish(finish)
		e.closeItems(x.itemStatus())
		e.whole("response." + x.status)
		if doneErr := e.out.Done(); doneErr != nil {
			x.observed.End(usage, clientClosed(doneErr), true)
			return
		}
		x.observed.End(usage, nil, false)
	case errors.As(err, &gone), problem.ClientGone(r.Context()):
		x.observed.End(usage, clientClosed(err), true)
	default:
		p := a.mapper.FromError(problem.Reason(r.Context(), err), true)
		x.status = "failed"
		code, message := "server_error", "Internal server error"
		if p.Status >= 400 && p.Status < 500 {
			code, message = "invalid_prompt", p.Message
		}
		x.failure = append(appendString(append(appendString([]byte(`{"code":`), code), `,"message":`...), message), '}')
		e.closeItems("incomplete")
		e.whole("response.failed")
		_ = e.out.Done()
		x.observed.End(usage, p, false)
	}
}

func (e *responseEvents) pump(a *API, ctx context.Context, delta *pipeline.Delta, err error, peeked bool) (inference.FinishReason, error) {
	finish := inference.FinishNone
	g := e.response.generation
	if !peeked {
		delta, err = a.next(ctx, e.out, g)
	}
	for err == nil {
		if delta.Event == "" && delta.Index == 0 {
			e.response.observed.Tokens(len(delta.TokenIDs))
			e.delta(delta)
			if delta.Finish != inference.FinishNone {
				finish = delta.Finish
			}
		}
		if !g.Buffered() {
			if flushErr := e.out.Flush(); flushErr != nil {
				return finish, &clientGone{flushErr}
			}
		}
		delta, err = a.next(ctx, e.out, g)
	}
	if errors.Is(err, io.EOF) {
		return finish, nil
	}
	return finish, err
}

func (e *responseEvents) delta(d *pipeline.Delta) {
	if d.Content != "" {
		if e.textIndex < 0 {
			e.textIndex = e.outputs()
			e.textID = "msg_" + itemID()
			e.item("response.output_item.added", e.textIndex, appendMessageItem(nil, e.textID, "in_progress", nil))
			e.inItem("response.content_part.added", e.textID, e.textIndex, func(b []byte) []byte {
				return appendTextPart(append(b, `,"content_index":0,"part":`...), "")
			})
		}
		e.text = append(e.text, d.Content...)
		e.inItem("response.output_text.delta", e.textID, e.textIndex, func(b []byte) []byte {
			return append(appendString(append(b, `,"content_index":0,"delta":`...), d.Content), `,"logprobs":[]`...)
		})
	}
	for i := range d.ToolCalls {
		e.callDelta(&d.ToolCalls[i])
	}
}

func (e *responseEvents) outputs() int {
	count := len(e.calls)
	if e.textIndex >= 0 {
		count++
	}
	return count
}

func (e *responseEvents) callDelta(d *pipeline.ToolCallDelta) {
	var open *openCall
	for _, candidate := range e.calls {
		if candidate.call.Index == d.Index {
			open = candidate
		}
	}
	if open == nil {
		for _, earlier := range e.calls {
			e.closeCall(earlier, "completed")
		}
		open = &openCall{call: *d, output: e.outputs(), id: "fc_" + itemID()}
		e.calls = append(e.calls, open)
		e.item("response.output_item.added", open.output, appendCallItem(nil, open.id, "in_progress", &open.call, ""))
	}
	if d.Arguments != "" {
		open.arguments = append(open.arguments, d.Arguments...)
		e.inItem("response.function_call_arguments.delta", open.id, open.output, func(b []byte) []byte {
			return appendString(append(b, `,"delta":`...), d.Arguments)
		})
	}
}

func (e *responseEvents) closeCall(c *openCall, status string) {
	if c.done {
		return
	}
	c.done = true
	e.event("response.function_call_arguments.done", func(b []byte) []byte {
		b = append(b, `,"item_id":`...)
		b = appendString(b, c.id)
		b = append(b, `,"output_index":`...)
		b = strconv.AppendInt(b, int64(c.output), 10)
		b = append(b, `,"name":`...)
		b = appendString(b, c.call.Name)
		b = append(b, `,"arguments":`...)
		return appendString(b, string(c.arguments))
	})
	e.item("response.output_item.done", c.output, appendCallItem(nil, c.id, status, &c.call, string(c.arguments)))
}

// closeItems ends every open item and puts all items into the response, in their output order.
func (e *responseEvents) closeItems(status string) {
	for _, call := range e.calls {
		e.closeCall(call, status)
	}
	text := string(e.text)
	if e.textIndex >= 0 {
		e.inItem("response.output_text.done", e.textID, e.textIndex, func(b []byte) []byte {
			return append(appendString(append(b, `,"content_index":0,"text":`...), text), `,"logprobs":[]`...)
		})
		e.inItem("response.content_part.done", e.textID, e.textIndex, func(b []byte) []byte {
			return appendTextPart(append(b, `,"content_index":0,"part":`...), text)
		})
		e.item("response.output_item.done", e.textIndex, appendMessageItem(nil, e.textID, status, &text))
	}
	output := make([][]byte, e.outputs())
	for _, call := range e.calls {
		output[call.output] = appendCallItem(nil, call.id, status, &call.call, string(call.arguments))
	}
	if e.textIndex >= 0 {
		output[e.textIndex] = appendMessageItem(nil, e.textID, status, &text)
	}
	e.response.output = output
}
