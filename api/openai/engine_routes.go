package openai

import (
	"net/http"
	"strconv"
	"time"

	"signalbox/api/body"
	"signalbox/api/problem"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// Routes in the shape of one engine: the client sends tokens, the engine alone knows what its options mean, and tokens come back.

// engineError is the error body of such a route: with type and code as vLLM has it, with the message alone as SGLang.
func engineError(w http.ResponseWriter, status int, kind, message string) {
	(&problem.Problem{Status: status}).SetRetryAfter(w.Header())
	text := appendString([]byte(`{"error":{"message":`), message)
	if kind != "" {
		text = appendString(append(text, `,"type":`...), kind)
		text = appendInt(append(text, `,"code":`...), int64(status))
	}
	text = append(text, "}}"...)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// engineProblem puts what went wrong into the words of engine routes. Messages of a worker stay hidden unless they are about the request.
func engineProblem(p *problem.Problem) (status int, kind, message string) {
	switch {
	case p.Status == problem.StatusClientClosed:
		return p.Status, "request_cancelled", "request was cancelled"
	case p.Overload:
		return http.StatusServiceUnavailable, "service_unavailable", "engine rejected the request"
	case p.Status == http.StatusServiceUnavailable:
		return p.Status, "service_unavailable", p.Message
	case p.Status == http.StatusNotFound:
		return p.Status, "not_found", p.Message
	case p.Status >= 400 && p.Status < 500:
		return http.StatusBadRequest, "invalid_request_error", p.Message
	}
	return http.StatusInternalServerError, "internal_error", "internal server error"
}

// onlyModel is the one model of a kind, for requests that name none. The problem has the words of the route.
func (a *API) onlyModel(kind Kind, several string) (Model, *problem.Problem) {
	names := a.models.Names(kind)
	switch len(names) {
	case 0:
		return nil, &problem.Problem{Status: http.StatusNotFound, Message: "no generate-capable model is registered", Class: "NotFound", Reason: "request.not_found"}
	case 1:
		return a.findEngine(names[0], kind)
	}
	return nil, problem.Invalid("model", "%s", several)
}

func (a *API) findEngine(name string, kind Kind) (Model, *problem.Problem) {
	model := a.models.Find(name)
	if model == nil || !model.Serves(kind) {
		return nil, &problem.Problem{Status: http.StatusNotFound, Message: "Model not found: " + name, Class: "NotFound", Reason: "request.not_found"}
	}
	if !model.Ready() {
		return nil, problem.NotReady(name)
	}
	return model, nil
}

// engineJob is a job whose answer comes back as the worker sends it.
func engineJob(document *jsontape.Document, ids string, f *body.Fields, r *http.Request) *pipeline.Job {
	request := newRequest(r.Header)
	tokens := f.Node(ids)
	if !tokens.Exists() {
		f.Missing(ids)
	} else if request.TokenIDs = f.TokenIDs(ids); request.TokenIDs == nil {
		request.TokenIDs = []uint32{}
	}
	one := uint8(1)
	request.Sampling.N = &one
	return &pipeline.Job{Request: request, Verbatim: true, Received: time.Now(), Endpoint: "generate", Parsing: pipeline.Parsing{Off: true}}
}

// setEnginePriority books a priority, higher first, and the head start that positive ones have.
func setEnginePriority(job *pipeline.Job, priority int32) {
	jump := float64(max(priority, 0))
	job.Request.Routing.Priority, job.Request.Routing.PriorityJump = &priority, &jump
	job.Request.Routing.ExpectedOutputTokens = job.Request.Stop.MaxTokens
}

// envelope writes the object that goes to the engine: given members in their order, then the client's own but for those named.
type envelope struct{ text []byte }

func (e *envelope) add(name string, raw []byte) {
	if e.text == nil {
		e.text = []byte{'{'}
	} else {
		e.text = append(e.text, ',')
	}
	e.text = append(appendString(e.text, name), ':')
	e.text = append(e.text, raw...)
}

func (e *envelope) addText(name, text string) { e.add(name, appendString(nil, text)) }

func (e *envelope) rest(object jsontape.Node, taken ...string) {
	for name, value := range object.Members {
		known := false
		for _, t := range taken {
			known = known || t == name
		}
		if !known {
			e.add(name, value.Raw())
		}
	}
}

func (e *envelope) end() []byte {
	if e.text == nil {
		return []byte("{}")
	}
	return append(e.text, '}')
}

func appendInt(dst []byte, value int64) []byte { return strconv.AppendInt(dst, value, 10) }
