package openai

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"signalbox/api/body"
	"signalbox/api/problem"
	"signalbox/api/sse"
	"signalbox/inference"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// internalFields are members of SGLang's request by which the fleet itself moves requests; clients may not set them.
var internalFields = []string{"bootstrap_info", "bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key", "data_parallel_rank", "decode_tp_size",
	"disaggregated_params", "disagg_prefill_dp_rank", "routed_dp_rank", "external_trace_header", "received_time"}

// GenerateSGLang answers POST and PUT /generate: tokens in, SGLang's own answer out, as a stream.
func (a *API) GenerateSGLang(w http.ResponseWriter, r *http.Request) {
	document, plain := a.reader.LooseDocument(w, r)
	var f *body.Fields
	var job *pipeline.Job
	var p *problem.Problem
	if plain != nil {
		p = &problem.Problem{Status: plain.Status, Message: plain.Message, Class: "InvalidRequest", Reason: "request.invalid"}
	} else if a.draining() {
		a.refuse(w, problem.Draining())
		return
	} else {
		f = body.NewFields(document.Root(), "")
		job = engineJob(document, "input_ids", f, r)
		p = f.Problem
	}
	var stream bool
	if p == nil {
		stream, p = readSGLang(f, job, r.Header.Get("X-Request-Id"))
	}
	if p == nil {
		p = f.Problem
	}
	if p != nil && (plain != nil || f.Problem != nil) {
		a.observer.Refused(p)
		writeSGLangShape(w, p)
		return
	}
	observed := a.observer.Begin("generate", "", true)
	observed.Named(job.Request.ID, job.Request.ClientRequestID, job.Request.TraceParent)
	fail := func(p *problem.Problem, gone bool) {
		observed.End(pipeline.Usage{}, p, gone)
		status, _, message := engineProblem(p)
		if p.Status == http.StatusNotImplemented {
			status, message = p.Status, p.Message
		}
		engineError(w, status, "", message)
	}
	if p == nil && !stream {
		p = &problem.Problem{Status: http.StatusNotImplemented, Message: "non-streaming SGLang generate requests are not implemented; set stream=true",
			Class: "NotImplemented", Reason: "runtime.not_implemented"}
	}
	if p == nil {
		p = a.applyHeaders(r.Header, job.Request)
	}
	var model Model
	if p == nil {
		model, p = a.onlyModel(SGLangGenerate, "multiple SGLang models are registered; configure a model-specific generate endpoint")
	}
	if p != nil {
		fail(p, false)
		return
	}
	job.Request.Model = model.Name()
	observed.Model(model.Name())
	observed.Dispatched()
	generation, err := model.Generate(r.Context(), job)
	if err != nil {
		fail(a.mapper.FromError(problem.Reason(r.Context(), err), false), problem.ClientGone(r.Context()))
		return
	}
	defer generation.Close()
	a.streamSGLang(w, r, generation, observed)
}

// writeSGLangShape refuses a body that is not of the route's shape, as SGLang does.
func writeSGLangShape(w http.ResponseWriter, p *problem.Problem) {
	text, _ := json.Marshal(struct { // texts and numbers
		Object  string  `json:"object"`
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	}{"error", p.Message, "Bad Request", nil, http.StatusBadRequest})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(text)
}

// readSGLang reads what the frontend needs; the engine gets everything as it was sent.
func readSGLang(f *body.Fields, job *pipeline.Job, headerID string) (stream bool, p *problem.Problem) {
	id := headerID
	if rid := f.String("rid"); rid != nil {
		id = *rid
	}
	if id == "" {
		id = job.Request.ID
	}
	if given := f.Bool("stream"); given != nil {
		stream = *given
	}
	priority := int32(0)
	if given := f.Int32("priority"); given != nil {
		priority = *given
	}
	parameters, sampling := f.Node("sampling_params"), []byte("null")
	if parameters.Present() {
		if parameters.Kind() != jsontape.Object {
			f.Fail("sampling_params", "invalid type: %s, expected a map", parameters.Kind())
			return false, nil
		}
		sampling = parameters.Raw()
	}
	if len(job.Request.TokenIDs) == 0 {
		return stream, problem.Invalid("input_ids", "input_ids cannot be empty.")
	}
	var n *uint32
	if parameters.Present() {
		s, stop := body.NewFields(parameters, "sampling_params"), &job.Request.Stop
		n = s.Uint32("n")
		stop.MaxTokens, stop.MinTokens, stop.IgnoreEOS = s.Uint32("max_new_tokens"), s.Uint32("min_new_tokens"), s.Bool("ignore_eos")
		if s.Problem != nil {
			mistake, _, _ := strings.Cut(strings.TrimPrefix(s.Problem.Message, body.DeserializePrefix), " at line ")
			s.Problem.Message = s.Problem.Param + ": " + mistake
			return stream, s.Problem
		}
	}
	if n != nil && *n != 1 {
		return stream, problem.Invalid("sampling_params.n", "sampling_params.n must be 1; parallel sampling is not supported.")
	}
	for _, name := range internalFields {
		if f.Object().Get(name).Exists() {
			return stream, problem.Invalid(name, "`%s` is internal Dynamo routing state and cannot be set by clients", name)
		}
	}
	asIDs := true
	job.Request.Output.ReturnTokensAsTokenIDs = &asIDs
	setEnginePriority(job, priority)

	var e envelope
	e.rest(f.Object(), "rid", "input_ids", "sampling_params", "stream", "priority")
	e.add("sampling_params", sampling)
	e.addText("rid", id)
	e.add("stream", []byte("true"))
	var extra envelope
	extra.add("sglang_tito", e.end())
	job.Request.ExtraArgs = extra.end()
	return stream, nil
}

// streamSGLang passes the engine's own answers on.
func (a *API) streamSGLang(w http.ResponseWriter, r *http.Request, g Generation, observed RequestObserver) {
	out := sse.NewWriter(w, a.options.WriteTimeout)
	failed := out.Start()
	for failed == nil {
		delta, err := g.Next(r.Context())
		if errors.Is(err, io.EOF) {
			_ = out.Done()
			observed.End(g.Usage(), nil, false)
			return
		}
		if err == nil && delta.Event != "" {
			continue
		}
		if err == nil {
			var data struct {
				Response json.RawMessage `json:"sglang_response"`
			}
			if delta.EngineData == nil || json.Unmarshal(delta.EngineData, &data) != nil || data.Response == nil {
				err = inference.Errorf(inference.ProtocolViolation, "the worker sent no answer of SGLang's")
			} else {
				observed.Tokens(len(delta.TokenIDs))
				out.Data(data.Response)
				if !g.Buffered() {
					failed = out.Flush()
				}
			}
		}
		if err != nil {
			a.endSGLang(r, out, g, observed, err)
			return
		}
	}
	observed.End(g.Usage(), clientClosed(failed), true)
}

// endSGLang ends a stream with an error. What is wrong with the request is told in the worker's words.
func (a *API) endSGLang(r *http.Request, out *sse.Writer, g Generation, observed RequestObserver, err error) {
	reason := problem.Reason(r.Context(), err)
	message := a.mapper.InStream(reason).Message
	var typed *inference.Error
	if errors.As(reason, &typed) && (typed.Kind == inference.InvalidArgument || typed.Kind == inference.BackendInvalid) && typed.Message != "" {
		message = typed.Message
	}
	text := appendString([]byte(`{"error":{"message":`), message)
	out.Data(append(text, "}}"...))
	_ = out.Done()
	observed.End(g.Usage(), a.mapper.FromError(reason, true), problem.ClientGone(r.Context()))
}
