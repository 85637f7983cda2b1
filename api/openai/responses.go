package openai

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"signalbox/api/body"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// Responses answers POST /v1/responses.
func (a *API) Responses(w http.ResponseWriter, r *http.Request) {
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
	q, p := a.readResponses(document, request)
	if p == nil {
		p = a.applyHeaders(r.Header, request)
	}
	observed := a.observer.Begin("responses", request.Model, q != nil && q.stream)
	observed.Named(request.ID, request.ClientRequestID, request.TraceParent)
	var model Model
	if p == nil {
		q.job.Received = received
		model, p = a.find(request.Model, Chat)
	}
	if p != nil {
		observed.End(pipeline.Usage{}, p, false)
		p.Write(w)
		return
	}
	request.Model = model.Name()
	observed.Model(request.Model)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	observed.Dispatched()
	generation, err := model.Generate(ctx, q.job)
	if err != nil {
		p := a.mapper.FromError(problem.Reason(r.Context(), err), false)
		observed.End(pipeline.Usage{}, p, problem.ClientGone(r.Context()))
		p.Write(w)
		return
	}
	defer generation.Close()
	answer := &response{request: q, generation: generation, observed: observed, id: "resp_" + itemID(), created: time.Now().Unix(), status: "in_progress"}
	if q.stream {
		a.streamResponse(ctx, w, r, answer)
	} else {
		a.wholeResponse(ctx, w, r, answer)
	}
}

func itemID() string {
	id := uuid.New()
	return hex.EncodeToString(id[:])
}

// response is a Responses answer being written.
type response struct {
	request    *responsesRequest
	generation Generation
	observed   RequestObserver
	id         string
	created    int64
	status     string
	completed  int64
	incomplete string // reason, "" for none
	failure    []byte // raw error object, nil for none
	output     [][]byte
	withUsage  bool
}

// finish sets the status that the finish reason calls for.
func (x *response) finish(reason inference.FinishReason) {
	x.withUsage = true
	switch reason {
	case inference.FinishLength:
		x.status, x.incomplete = "incomplete", "max_output_tokens"
	case inference.FinishContentFilter:
		x.status, x.incomplete = "incomplete", "content_filter"
	default:
		x.status, x.completed = "completed", time.Now().Unix()
	}
}

// itemStatus is the status of output items in the response's state.
func (x *response) itemStatus() string {
	if x.status == "incomplete" {
		return "incomplete"
	}
	return "completed"
}

// member appends one member: the request's own value, else the default.
func (x *response) member(b []byte, name, fallback string) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	if raw := x.request.echo[name]; raw != nil {
		return append(b, raw...)
	}
	return append(b, fallback...)
}

// appendTo appends the response object.
func (x *response) appendTo(b []byte) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, x.id)
	b = append(b, `,"object":"response","created_at":`...)
	b = strconv.AppendInt(b, x.created, 10)
	b = append(b, `,"completed_at":`...)
	if x.completed != 0 {
		b = strconv.AppendInt(b, x.completed, 10)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"status":"`...)
	b = append(b, x.status...)
	b = append(b, `","incomplete_details":`...)
	if x.incomplete != "" {
		b = append(b, `{"reason":"`...)
		b = append(b, x.incomplete...)
		b = append(b, `"}`...)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"error":`...)
	if x.failure != nil {
		b = append(b, x.failure...)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"model":`...)
	b = appendString(b, x.request.job.Request.Model)
	b = append(b, `,"output":[`...)
	for i, item := range x.output {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, item...)
	}
	b = append(b, `],"background":false,"billing":null,"conversation":null,"max_tool_calls":null,"presence_penalty":0.0,"frequency_penalty":0.0,"previous_response_id":null,"prompt":null`...)
	for _, m := range [][2]string{{"instructions", "null"}, {"max_output_tokens", "null"}, {"metadata", "{}"}, {"parallel_tool_calls", "true"},
		{"prompt_cache_key", "null"}, {"prompt_cache_retention", "null"}, {"reasoning", "null"}, {"safety_identifier", "null"}, {"service_tier", `"auto"`},
		{"store", "false"}, {"temperature", "1.0"}, {"text", `{"format":{"type":"text"}}`}, {"tool_choice", `"auto"`}, {"tools", "[]"},
		{"top_logprobs", "0"}, {"top_p", "1.0"}, {"truncation", `"disabled"`}} {
		b = x.member(b, m[0], m[1])
	}
	b = append(b, `,"usage":`...)
	if x.withUsage {
		b = appendResponseUsage(b, x.generation.Usage())
	} else {
		b = append(b, "null"...)
	}
	if e := x.request.extension; len(e.ExtraFields) > 0 && x.withUsage {
		whole := chatAnswer{extension: e, generation: x.generation}
		d := whole.discloseWhole(nil, inference.StopReason{}, nil)
		b = d.appendTo(b)
	}
	return append(b, '}')
}

func appendResponseUsage(b []byte, u pipeline.Usage) []byte {
	cached, reasoning := 0, 0
	if u.CachedTokens != nil {
		cached = *u.CachedTokens
	}
	if u.ReasoningTokens != nil {
		reasoning = *u.ReasoningTokens
	}
	b = append(b, `{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(u.PromptTokens), 10)
	b = append(b, `,"input_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(cached), 10)
	b = append(b, `},"output_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CompletionTokens), 10)
	b = append(b, `,"output_tokens_details":{"reasoning_tokens":`...)
	b = strconv.AppendInt(b, int64(reasoning), 10)
	b = append(b, `},"total_tokens":`...)
	b = strconv.AppendInt(b, int64(u.PromptTokens+u.CompletionTokens), 10)
	return append(b, '}')
}

func appendTextPart(b []byte, text string) []byte {
	b = append(b, `{"type":"output_text","annotations":[],"logprobs":[],"text":`...)
	b = appendString(b, text)
	return append(b, '}')
}

// appendMessageItem appends a message item; without text its content is empty.
func appendMessageItem(b []byte, id, status string, text *string) []byte {
	b = append(b, `{"type":"message","content":[`...)
	if text != nil {
		b = appendTextPart(b, *text)
	}
	b = append(b, `],"id":`...)
	b = appendString(b, id)
	b = append(b, `,"role":"assistant","status":"`...)
	b = append(b, status...)
	return append(b, `"}`...)
}

func appendCallItem(b []byte, id, status string, call *pipeline.ToolCallDelta, arguments string) []byte {
	b = append(b, `{"type":"function_call","arguments":`...)
	b = appendString(b, arguments)
	b = append(b, `,"call_id":`...)
	b = appendString(b, call.ID)
	b = append(b, `,"name":`...)
	b = appendString(b, call.Name)
	b = append(b, `,"id":`...)
	b = appendString(b, id)
	b = append(b, `,"status":"`...)
	b = append(b, status...)
	return append(b, `"}`...)
}

// wholeResponse writes the answer as one body: calls before the message.
func (a *API) wholeResponse(ctx context.Context, w http.ResponseWriter, r *http.Request, x *response) {
	choice := &chatChoice{}
	any := false
	for {
		delta, err := x.generation.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p := a.mapper.FromError(problem.Reason(r.Context(), err), any)
			x.observed.End(x.generation.Usage(), p, problem.ClientGone(r.Context()))
			p.Write(w)
			return
		}
		if delta.Event != "" || delta.Index != 0 {
			continue
		}
		any = true
		x.observed.Tokens(len(delta.TokenIDs))
		choice.add(delta)
	}
	x.finish(choice.finish)
	status := x.itemStatus()
	for i := range choice.calls {
		x.output = append(x.output, appendCallItem(nil, "fc_"+itemID(), status, &choice.calls[i], choice.calls[i].Arguments))
	}
	if len(choice.content) > 0 || len(choice.calls) == 0 {
		text := string(choice.content)
		x.output = append(x.output, appendMessageItem(nil, "msg_"+itemID(), status, &text))
	}
	writeJSON(w, http.StatusOK, x.appendTo(nil))
	x.observed.End(x.generation.Usage(), nil, false)
}

// InputTokens answers POST /v1/responses/input_tokens with an estimate; any model name will do.
func (a *API) InputTokens(w http.ResponseWriter, r *http.Request) {
	document, p := a.reader.Document(w, r)
	if p != nil {
		a.refuse(w, p)
		return
	}
	f := body.NewFields(document.Root(), "")
	if f.Problem != nil {
		a.refuse(w, f.Problem)
		return
	}
	tokens := estimateInput(document.Root())
	writeJSON(w, http.StatusOK, append(strconv.AppendInt([]byte(`{"object":"response.input_tokens","input_tokens":`), int64(tokens), 10), '}'))
}

// estimateInput guesses: a third of the characters, four more for each message.
func estimateInput(root jsontape.Node) int {
	input := root.Get("input")
	characters := len([]rune(root.Get("instructions").Text()))
	if characters > 0 {
		characters += 4
	}
	if input.Kind() == jsontape.String {
		return (characters + 4 + len([]rune(input.Text()))) / 3
	}
	for _, item := range input.Elements {
		characters += 4 + len([]rune(item.Get("content").Text())) + len([]rune(item.Get("arguments").Text())) + len([]rune(item.Get("output").Text()))
		for _, part := range item.Get("content").Elements {
			characters += len([]rune(part.Get("text").Text()))
		}
	}
	return characters / 3
}
