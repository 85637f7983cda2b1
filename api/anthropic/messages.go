package anthropic

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"signalbox/api/body"
	"signalbox/api/nvext"
	"signalbox/api/openai"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/pipeline"
)

// Options configure the API.
type Options struct {
	BodyLimitMB       int64
	DisableExtensions bool
	MetadataPrefix    string
	WriteTimeout      time.Duration
	OverloadStatus    int
	StripPreamble     bool
	Draining          func() bool
}

// API answers Messages requests.
type API struct {
	models   openai.Models
	observer openai.Observer
	options  Options
	reader   body.Reader
	mapper   problem.Mapper
}

// New returns an API over the models.
func New(models openai.Models, observer openai.Observer, options Options) *API {
	if options.MetadataPrefix == "" {
		options.MetadataPrefix = nvext.DefaultMetadataPrefix
	}
	return &API{models: models, observer: observer, options: options, reader: body.NewReader(options.BodyLimitMB), mapper: problem.Mapper{OverloadStatus: options.OverloadStatus}}
}

// errorType is Anthropic's word for a failure.
func errorType(p *problem.Problem) string {
	switch {
	case p.Overload, p.Status == http.StatusServiceUnavailable, p.Status == problem.StatusOverloaded:
		return "overloaded_error"
	case p.Status == http.StatusUnauthorized:
		return "authentication_error"
	case p.Status == http.StatusForbidden:
		return "permission_error"
	case p.Status == http.StatusNotFound:
		return "not_found_error"
	case p.Status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case p.Status == problem.StatusClientClosed:
		return "request_cancelled"
	case p.Status >= 400 && p.Status < 500:
		return "invalid_request_error"
	}
	return "api_error"
}

func errorBody(kind, message string) []byte {
	b := append([]byte(`{"type":"error","error":{"type":`), quote(kind)...)
	b = append(b, `,"message":`...)
	b = append(b, quote(message)...)
	return append(b, "}}"...)
}

func write(w http.ResponseWriter, p *problem.Problem) {
	w.Header().Set("Content-Type", "application/json")
	p.SetRetryAfter(w.Header())
	w.WriteHeader(p.Status)
	_, _ = w.Write(errorBody(errorType(p), p.Message))
}

// Messages answers POST /v1/messages.
func (a *API) Messages(w http.ResponseWriter, r *http.Request) {
	received := time.Now()
	document, plain := a.reader.LooseDocument(w, r)
	if plain != nil {
		plain.Write(w)
		return
	}
	if a.options.Draining != nil && a.options.Draining() {
		write(w, problem.Draining())
		return
	}
	request := &inference.Request{ID: nvext.RequestID(r.Header)}
	nvext.ApplyTracing(r.Header, request)
	m, p := a.read(document, request)
	if p == nil && !a.options.DisableExtensions {
		nvext.ApplyRoutingHeaders(r.Header, request)
	}
	if p == nil {
		p = nvext.ApplySessionHeaders(r.Header, request)
	}
	if p == nil {
		p = nvext.ApplyMetadataHeaders(r.Header, a.options.MetadataPrefix, request)
	}
	observed := a.observer.Begin("anthropic_messages", request.Model, m != nil && m.stream)
	observed.Named(request.ID, request.ClientRequestID, request.TraceParent)
	var model openai.Model
	if p == nil {
		m.job.Received = received
		model, p = a.find(request.Model)
	}
	if p != nil {
		observed.End(pipeline.Usage{}, p, false)
		write(w, p)
		return
	}
	request.Model = model.Name()
	observed.Model(request.Model)
	a.run(w, r, m, model, observed)
}

func (a *API) find(name string) (openai.Model, *problem.Problem) {
	model := a.models.Find(name)
	if model == nil || !model.Serves(openai.Chat) {
		p := problem.ModelNotFound()
		p.Message = "Model '" + name + "' not found"
		return nil, p
	}
	if !model.Ready() {
		return nil, problem.NotReady(name)
	}
	return model, nil
}

func (a *API) run(w http.ResponseWriter, r *http.Request, m *messageRequest, model openai.Model, observed openai.RequestObserver) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	observed.Dispatched()
	m.job.Extras.StopReason = true
	generation, err := model.Generate(ctx, m.job)
	if err != nil {
		p := a.mapper.FromError(problem.Reason(r.Context(), err), false)
		observed.End(pipeline.Usage{}, p, problem.ClientGone(r.Context()))
		write(w, p)
		return
	}
	defer generation.Close()
	answer := &answer{request: m, model: model.Name(), generation: generation, observed: observed, id: "msg_" + randomID()}
	if m.stream {
		a.stream(ctx, w, r, answer)
	} else {
		a.whole(ctx, w, r, answer)
	}
}

// answer is an answer being written.
type answer struct {
	request    *messageRequest
	model      string
	generation openai.Generation
	observed   openai.RequestObserver
	id         string
}

func randomID() string {
	id := uuid.New()
	return hex.EncodeToString(id[:])
}

// stopReason is Anthropic's word for why an answer ended.
func stopReason(reason inference.FinishReason, stop inference.StopReason) (word string, sequence string) {
	switch reason {
	case inference.FinishLength:
		return "max_tokens", ""
	case inference.FinishToolCalls:
		return "tool_use", ""
	case inference.FinishStop:
		if stop.Text != "" {
			return "stop_sequence", stop.Text
		}
	case inference.FinishContentFilter:
		return "refusal", ""
	}
	return "end_turn", ""
}

func appendUsage(b []byte, u pipeline.Usage, total bool) []byte {
	input := u.PromptTokens
	if u.CachedTokens != nil {
		input -= min(*u.CachedTokens, input) // what was read from the cache is counted apart
	}
	b = append(b, `{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(input), 10)
	b = append(b, `,"output_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CompletionTokens), 10)
	b = append(b, `,"cache_creation_input_tokens":0`...)
	if u.CachedTokens != nil && *u.CachedTokens > 0 {
		b = append(b, `,"cache_read_input_tokens":`...)
		b = strconv.AppendInt(b, int64(*u.CachedTokens), 10)
	}
	if total {
		b = append(b, `,"total_tokens":`...)
		b = strconv.AppendInt(b, int64(input+u.CompletionTokens), 10)
	}
	return append(b, '}')
}

// whole writes the answer as one body.
func (a *API) whole(ctx context.Context, w http.ResponseWriter, r *http.Request, answer *answer) {
	var text, thinking []byte
	var calls []pipeline.ToolCallDelta
	var finish inference.FinishReason
	var stop inference.StopReason
	any := false
	for {
		delta, err := answer.generation.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p := a.mapper.FromError(problem.Reason(r.Context(), err), any)
			answer.observed.End(answer.generation.Usage(), p, problem.ClientGone(r.Context()))
			write(w, p)
			return
		}
		if delta.Event != "" {
			continue
		}
		any = true
		answer.observed.Tokens(len(delta.TokenIDs))
		text = append(text, delta.Content...)
		thinking = append(thinking, delta.Reasoning...)
		for _, call := range delta.ToolCalls {
			if at := slices.IndexFunc(calls, func(have pipeline.ToolCallDelta) bool { return have.Index == call.Index }); at >= 0 {
				calls[at].Arguments += call.Arguments
			} else {
				calls = append(calls, call)
			}
		}
		if delta.Finish != inference.FinishNone {
			finish, stop = delta.Finish, delta.StopReason
		}
	}
	blocks := make([]json.RawMessage, 0, 2+len(calls))
	if len(thinking) > 0 {
		blocks = append(blocks, json.RawMessage(`{"type":"thinking","thinking":`+string(quote(string(thinking)))+`,"signature":""}`))
	}
	for i := range calls {
		blocks = append(blocks, toolUse(&calls[i]))
	}
	if len(text) > 0 {
		blocks = append(blocks, part("text", "text", string(text)))
	}
	content, _ := json.Marshal(blocks)
	word, sequence := stopReason(finish, stop)
	b := append([]byte(`{"id":"`), answer.id...)
	b = append(b, `","type":"message","role":"assistant","content":`...)
	b = append(b, content...)
	b = append(b, `,"model":`...)
	b = append(b, quote(answer.model)...)
	b = append(b, `,"stop_reason":"`...)
	b = append(b, word...)
	b = append(b, `","stop_sequence":`...)
	b = appendSequence(b, sequence)
	b = append(b, `,"usage":`...)
	b = appendUsage(b, answer.generation.Usage(), false)
	b = append(b, '}')
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
	answer.observed.End(answer.generation.Usage(), nil, false)
}

func appendSequence(b []byte, sequence string) []byte {
	if sequence == "" {
		return append(b, "null"...)
	}
	return append(b, quote(sequence)...)
}

// toolUse is a tool call as a content block. Arguments that are no JSON object are shown as they are, under "raw".
func toolUse(call *pipeline.ToolCallDelta) json.RawMessage {
	input := call.Arguments
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(input), &object) != nil {
		input = `{"raw":` + string(quote(call.Arguments)) + `}`
	}
	return json.RawMessage(`{"type":"tool_use","id":"toolu_` + randomID() + `","name":` + string(quote(call.Name)) + `,"input":` + input + `}`)
}

// CountTokens answers POST /v1/messages/count_tokens with an estimate; any model name will do.
func (a *API) CountTokens(w http.ResponseWriter, r *http.Request) {
	document, plain := a.reader.LooseDocument(w, r)
	if plain != nil {
		plain.Write(w)
		return
	}
	f := body.NewFields(document.Root(), "")
	if f.Problem == nil {
		f.RequiredString("model")
		if !document.Root().Get("messages").Exists() {
			f.Missing("messages")
		}
	}
	if f.Problem != nil {
		write(w, f.Problem)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(strconv.AppendInt([]byte(`{"input_tokens":`), int64(estimate(document.Root())), 10), '}'))
}
