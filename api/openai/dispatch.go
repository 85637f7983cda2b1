package openai

import (
	"strconv"

	"signalbox/api/sse"
	"signalbox/inference"
	"signalbox/pipeline"
)

// dispatch gathers what a choice's dispatch events tell: agents act on a whole call, or on the whole reasoning, as soon as it is
// there and need not put it together from chunks.
type dispatch struct {
	reasoning []byte
	call      *pipeline.ToolCallDelta // a call that comes in pieces
}

// dispatchEvents sends the events that belong before the chunk of a delta.
func (a *API) dispatchEvents(out *sse.Writer, c *chatAnswer, delta *pipeline.Delta) {
	if !a.options.ReasoningDispatchEvents && !a.options.ToolDispatchEvents || delta.Index >= maxChoices {
		return
	}
	for int(delta.Index) >= len(c.dispatches) {
		c.dispatches = append(c.dispatches, dispatch{})
	}
	d := &c.dispatches[delta.Index]
	finished := delta.Finish != inference.FinishNone
	if a.options.ReasoningDispatchEvents {
		d.reasoning = append(d.reasoning, delta.Reasoning...)
		if len(d.reasoning) > 0 && (delta.Reasoning == "" || finished) {
			event := append([]byte(`{"index":`), strconv.Itoa(int(delta.Index))...)
			event = append(event, `,"reasoning_content":`...)
			event = appendString(event, string(d.reasoning))
			out.Event("reasoning_dispatch", append(event, '}'))
			d.reasoning = nil
		}
	}
	if a.options.ToolDispatchEvents {
		d.calls(out, delta, c.job.Parsing.ToolChoice >= pipeline.ToolChoiceRequired, finished)
	}
}

// calls sends an event for every call that is complete with the delta. Only calls that the client demanded come in pieces: such a
// one is complete when another follows or the choice ends.
func (d *dispatch) calls(out *sse.Writer, delta *pipeline.Delta, pieces, finished bool) {
	for i := range delta.ToolCalls {
		call := &delta.ToolCalls[i]
		switch {
		case call.ID == "" && d.call != nil:
			d.call.Arguments += call.Arguments
		case call.ID != "" && pieces:
			d.complete(out, delta.Index)
			copied := *call
			d.call = &copied
		case call.ID != "":
			sendDispatch(out, delta.Index, call)
		}
	}
	if finished {
		d.complete(out, delta.Index)
	}
}

func (d *dispatch) complete(out *sse.Writer, choice uint32) {
	if d.call != nil {
		sendDispatch(out, choice, d.call)
		d.call = nil
	}
}

func sendDispatch(out *sse.Writer, choice uint32, call *pipeline.ToolCallDelta) {
	event := append([]byte(`{"choice_index":`), strconv.Itoa(int(choice))...)
	event = append(event, `,"tool_call":`...)
	event = appendToolCall(event, call, call.Index)
	out.Event("tool_call_dispatch", append(event, '}'))
}
