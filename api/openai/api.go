// Package openai speaks OpenAI's HTTP API: chat completions, completions, embeddings, models. It judges requests, hands them to
// whoever serves the model and writes the answers, whole or as a stream. It knows nothing of routing or of workers' wires.
package openai

import (
	"context"
	"net/http"
	"time"

	"signalbox/api/body"
	"signalbox/api/nvext"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/pipeline"
)

// Kind is a way of using a model.
type Kind uint8

const (
	// Chat serves chat completions, responses and messages.
	Chat Kind = iota
	// Completions serves text completions.
	Completions
	// Embeddings serves embeddings.
	Embeddings
	// Images, Videos and Audios serve media that the worker makes.
	Images
	Videos
	Audios
	// Classify and Pooling serve scores and vectors of texts; reranking is one of the scores.
	Classify
	Pooling
	// Realtime serves conversations over a WebSocket.
	Realtime
	// Tensor serves tensors, over KServe alone.
	Tensor
	// VLLMGenerate and SGLangGenerate serve tokens in the shape of one engine.
	VLLMGenerate
	SGLangGenerate
)

// Model is one served model.
type Model interface {
	// Name is the canonical name, whatever alias the client used.
	Name() string
	// Ready tells whether somebody can serve it now.
	Ready() bool
	// Serves tells whether the model does what the kind asks.
	Serves(kind Kind) bool
	// Generate starts one generation.
	Generate(ctx context.Context, job *pipeline.Job) (Generation, error)
	// Forward sends a body in the API's own shape to a worker that understands it and returns its items' raw JSON.
	Forward(ctx context.Context, id string, body []byte) (inference.Stream, error)
}

// Generation is an answer on its way. It belongs to one goroutine; Close may be called from any.
type Generation interface {
	Next(ctx context.Context) (*pipeline.Delta, error)
	// Buffered tells whether the next delta can be had without waiting.
	Buffered() bool
	Usage() pipeline.Usage
	Workers() pipeline.WorkerReport
	Timing() pipeline.Timing
	PromptTokenIDs() []uint32
	FormattedPrompt() string
	Close() error
}

// Models finds served models.
type Models interface {
	// Find returns the model with the name or alias; nil when there is none.
	Find(name string) Model
	// Any tells whether some model serves the kind: routes of a kind that nobody serves are off.
	Any(kind Kind) bool
	// Names returns the names of the models that serve the kind.
	Names(kind Kind) []string
	// List returns the models that can serve now.
	List() []Listing
	// Readiness explains a model's state for /v1/models/{id}/ready; nil for an unknown name.
	Readiness(name string) []byte
}

// Listing is one entry of /v1/models.
type Listing struct {
	Name string
	// ContextWindow is in tokens; 0 when unknown.
	ContextWindow int
}

// Observer is told what happens to requests. Implementations must be quick: they run on the request's goroutine.
type Observer interface {
	// Begin is called when a handler accepted a request; the returned Request is told the rest.
	Begin(endpoint, model string, streaming bool) RequestObserver
	// Refused is called for requests that no handler accepted.
	Refused(p *problem.Problem)
}

// RequestObserver follows one request.
type RequestObserver interface {
	// Model replaces the model label once the canonical name is known.
	Model(name string)
	// Dispatched is called when the request went to its model: from here on it is in flight.
	Dispatched()
	// Named tells the request's id, what the client calls it, and the trace that it belongs to as a W3C traceparent; "" for none.
	Named(id, clientID, traceParent string)
	// Media tells how many media a prompt has.
	Media(images, videos, audios int)
	// Tokens is called for each delta with the number of tokens that it brought.
	Tokens(count int)
	// End is called exactly once. p is nil on success; cancelled tells that the client went away.
	End(usage pipeline.Usage, p *problem.Problem, cancelled bool)
}

// Options configure the API. The zero value of each member is a working default except BodyLimitMB.
type Options struct {
	BodyLimitMB         int64
	IgnoreUnknownFields bool
	// DisableExtensions drops nvext and the routing headers.
	DisableExtensions bool
	ForceIncludeUsage bool
	MetadataPrefix    string
	// ReasoningField is "reasoning_content" or "reasoning".
	ReasoningField string
	// KeepAlive is the idle time after which a comment is sent on a stream; 0 for never.
	KeepAlive time.Duration
	// ErrorPeek is how long a stream's headers wait for the first item, so that an immediate error still gets a real status.
	ErrorPeek time.Duration
	// WriteTimeout is how long a client may take nothing of its stream; 0 for the default.
	WriteTimeout   time.Duration
	OverloadStatus int
	// ContextWindow and MaxOutputTokens override the model listing; 0 for none.
	ContextWindow, MaxOutputTokens int
	AnthropicListing               bool
	ToolDispatchEvents             bool
	ReasoningDispatchEvents        bool
	// AnnotationsAsComments sends annotations as plain comments, which no SDK trips over.
	AnnotationsAsComments bool
	// Draining tells that the service shuts down; nil means never.
	Draining func() bool
	// Warn is told about requests that use what is switched off; nil for silence.
	Warn func(message string)
}

// API answers OpenAI-style requests.
type API struct {
	models   Models
	observer Observer
	options  Options
	reader   body.Reader
	mapper   problem.Mapper
}

// New returns an API over the models.
func New(models Models, observer Observer, options Options) *API {
	if options.MetadataPrefix == "" {
		options.MetadataPrefix = nvext.DefaultMetadataPrefix
	}
	if options.ReasoningField == "" {
		options.ReasoningField = "reasoning_content"
	}
	return &API{models: models, observer: observer, options: options, reader: body.NewReader(options.BodyLimitMB),
		mapper: problem.Mapper{OverloadStatus: options.OverloadStatus}}
}

// newRequest starts a request from what headers say; the body is applied before headers, which win.
func newRequest(h http.Header) *inference.Request {
	r := &inference.Request{ID: nvext.RequestID(h)}
	nvext.ApplyTracing(h, r)
	return r
}

// applyHeaders lets headers override the body.
func (a *API) applyHeaders(h http.Header, r *inference.Request) *problem.Problem {
	if a.options.DisableExtensions {
		if nvext.HasRoutingHeaders(h) && a.options.Warn != nil {
			a.options.Warn("routing headers are ignored: DYN_DISABLE_FRONTEND_NVEXT is set")
		}
	} else {
		nvext.ApplyRoutingHeaders(h, r)
	}
	if p := nvext.ApplySessionHeaders(h, r); p != nil {
		return p
	}
	return nvext.ApplyMetadataHeaders(h, a.options.MetadataPrefix, r)
}

func (a *API) draining() bool { return a.options.Draining != nil && a.options.Draining() }

// refuse answers a request that no handler accepted.
func (a *API) refuse(w http.ResponseWriter, p *problem.Problem) {
	a.observer.Refused(p)
	p.Write(w)
}

// find returns the model that serves the kind under the name.
func (a *API) find(name string, kind Kind) (Model, *problem.Problem) {
	model := a.models.Find(name)
	if model == nil || !model.Serves(kind) {
		return nil, problem.ModelNotFound()
	}
	if !model.Ready() {
		return nil, problem.NotReady(name)
	}
	return model, nil
}
