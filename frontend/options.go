package frontend

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/api/admin"
	"signalbox/api/openai"
	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/internal/processors"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/observe"
	"signalbox/pipeline"
	"signalbox/router"
	"signalbox/router/busy"
)

// Transport reaches the workers that it knows the addresses of.
type Transport interface {
	inference.Sender
	// Forward sends a body in an API's own shape; the stream's items carry raw JSON bodies.
	Forward(target inference.Target) Forwarder
	// Target returns how to reach the instance; false when it speaks another transport.
	Target(instance *discovery.Instance) (inference.Target, bool)
	// Gone tells that discovery no longer knows the worker: whoever waits for it need not wait longer.
	Gone(workerID uint64)
}

// Loader makes a model's template, tokenizer and parsers from its card.
type Loader interface {
	// Load may take seconds and may be called for several cards at once.
	Load(ctx context.Context, c *card.Card) (*pipeline.Model, error)
}

// RouterFactory makes the router of a worker set. close ends what the router started.
type RouterFactory func(set RouterSet) (r router.Router, close func(), err error)

// RouterSet is what a router may know about the set that it serves.
type RouterSet struct {
	Pool *router.Pool
	// Set is the worker set at the time of the build; its members change later through the pool.
	Set *model.Set
	// Metrics are the set's; never nil.
	Metrics *observe.Router
	// Busy wants to know what is booked; nil when nobody does. Queues is set by a router where requests may wait for room.
	Busy   *busy.Monitor
	Queues *bool
}

// Options configure a frontend. Zero values leave parts out.
type Options struct {
	Backend   discovery.Backend
	Transport Transport
	Routers   RouterFactory
	Filter    discovery.NamespaceFilter
	ModelName string
	BlockSize uint32
	Loader    Loader

	DecodeFallback     bool
	MigrationLimit     int // 0 leaves it to the model card
	MigrationMaxLength int
	MinInitialWorkers  int
	// Thresholds are those beyond which workers are busy, for models without any of their own; Loads tells what workers report, nil
	// when nobody knows.
	Thresholds admin.Thresholds
	Loads      LoadReports
	Inhibited  time.Duration
	// Hold says what becomes of requests for models without workers.
	Hold HoldOptions
	// PreprocessWorkers bounds how many prompts are prepared at once; 0 takes one less than the processors.
	PreprocessWorkers int
	// DebugPerf logs how long each step of preparing prompts takes.
	DebugPerf bool
	// Explain records every placement: the newest can be asked for over HTTP, all are in the log at debug level.
	Explain bool

	// Companion, when set, starts a further service over the same models once the HTTP listener is up. HTTP then only has the routes
	// for operators.
	Companion func(CompanionHost) (Companion, error)

	// Tracer makes spans of requests; nil for none.
	Tracer observe.Tracer
	// Extensions are further routes.
	Extensions []Extension

	// RL lists workers for reinforcement learning on a listener of its own; nil does not.
	RL *RLOptions

	HTTP     HTTPOptions
	API      openai.Options
	Metrics  *prometheus.Registry
	Prefix   string // of the frontend's metrics
	Logger   *slog.Logger
	Version  string
	Endpoint Endpoints
}

// preprocessWorkers leaves a processor to running streams.
func (o *Options) preprocessWorkers() int {
	if o.PreprocessWorkers > 0 {
		return o.PreprocessWorkers
	}
	return max(1, processors.AtStart-1)
}

// Companion is a service that runs beside the HTTP listener, as the KServe gRPC service does.
type Companion interface {
	// Address returns where it listens.
	Address() string
	// Shutdown ends what still runs; requests that Track counts had the drain time before.
	Shutdown() error
}

// CompanionModels finds the served models.
type CompanionModels interface {
	openai.Models
	// Card returns the card of the model with the name or alias; nil when there is none.
	Card(name string) *card.Card
	// AnyReady tells whether some model can be served now.
	AnyReady() bool
}

// CompanionHost is what a companion works with.
type CompanionHost struct {
	Models   CompanionModels
	API      *openai.API
	Observer openai.Observer
	// Draining tells that the program is ending; Track counts a request until its result is called.
	Draining func() bool
	Track    func() (done func())
}

// HTTPOptions say where and how to listen.
type HTTPOptions struct {
	Host                            string
	Port                            int
	CertPath, KeyPath, ClientCAPath string
	DrainTimeout                    time.Duration
	DisableAdmin                    bool
	EnableAnthropic                 bool
	StripAnthropicPreamble          bool
	OnLargeBody                     func() // see frontdoor.Config
}

// Endpoints are the paths of the routes.
type Endpoints struct {
	Chat, Completions, Embeddings, Responses, Models, Anthropic, Health, Live, Metrics, Classify, Pooling string
	// GenerateVLLM and GenerateSGLang are the routes in the shape of one engine; "" leaves them out.
	GenerateVLLM, GenerateSGLang string
}

// DefaultEndpoints are the paths that clients expect.
func DefaultEndpoints() Endpoints {
	return Endpoints{Chat: "/v1/chat/completions", Completions: "/v1/completions", Embeddings: "/v1/embeddings", Responses: "/v1/responses",
		Models: "/v1/models", Anthropic: "/v1/messages", Health: "/health", Live: "/live", Metrics: "/metrics",
		Classify: "/v1/classify", Pooling: "/v1/pooling"}
}
