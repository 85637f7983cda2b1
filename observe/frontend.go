// Package observe measures the product: metrics, traces, logs and decision records. It knows the names that dashboards expect
// and nothing of how requests are served.
package observe

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/api/openai"
	"signalbox/api/problem"
	"signalbox/pipeline"
)

// DefaultPrefix begins the names of the frontend's metrics.
const DefaultPrefix = "dynamo_frontend"

// unknownModel is the one label value of all names that no model has, so that clients can't grow the series.
const unknownModel = "unknown_model"

// Frontend holds the metrics of requests as clients see them.
type Frontend struct {
	started      *prometheus.CounterVec
	finished     *prometheus.CounterVec
	failures     *prometheus.CounterVec
	active       *prometheus.GaugeVec
	inflight     *prometheus.GaugeVec
	queued       *prometheus.GaugeVec
	disconnected prometheus.Gauge
	duration     *prometheus.HistogramVec
	inputTokens  *prometheus.HistogramVec
	outputTokens *prometheus.HistogramVec
	cachedTokens *prometheus.HistogramVec
	outputTotal  *prometheus.CounterVec
	firstToken   *prometheus.HistogramVec
	interToken   *prometheus.HistogramVec
	embedding    *prometheus.HistogramVec
	images       *prometheus.HistogramVec
	videos       *prometheus.HistogramVec
	audios       *prometheus.HistogramVec
	cancelled    *prometheus.CounterVec
	rejected     *prometheus.CounterVec
	// OnEnd, when set, is called once per request with what a log line needs.
	OnEnd func(Summary)

	mu     sync.RWMutex
	models map[string]*modelMetrics
}

// modelMetrics are the metrics of one model with their labels resolved, so that the token path looks nothing up.
type modelMetrics struct {
	outputTotal prometheus.Counter
	firstToken  prometheus.Observer
	interToken  prometheus.Observer
	queued      prometheus.Gauge
	images      prometheus.Observer
	videos      prometheus.Observer
	audios      prometheus.Observer
}

// Summary tells about a finished request, for the log.
type Summary struct {
	// RequestID is the request's own id, ClientID what the client calls it, TraceParent the trace that it belongs to.
	RequestID, ClientID, TraceParent string
	Endpoint, Model                  string
	Streaming                        bool
	Status                           int // 200 on success
	ErrorType                        string
	Duration                         time.Duration
	TTFT                             time.Duration // 0 when no token came
	Usage                            pipeline.Usage
	Err                              error
}

// NewFrontend registers the metrics under the prefix; an empty one means DefaultPrefix.
func NewFrontend(registry prometheus.Registerer, prefix string) *Frontend {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	f := &Frontend{models: make(map[string]*modelMetrics)}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "_" + name, Help: help}, labels)
		registry.MustRegister(vec)
		return vec
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "_" + name, Help: help}, labels)
		registry.MustRegister(vec)
		return vec
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + "_" + name, Help: help, Buckets: buckets}, []string{"model"})
		registry.MustRegister(vec)
		return vec
	}
	f.started = counter("requests_started_total", "Requests that a handler accepted", "endpoint", "model", "request_type")
	f.finished = counter("requests_total", "Requests that ended; a high share of status=error by error_type tells what is wrong", "endpoint", "error_type", "model", "request_type", "status")
	f.failures = counter("failures_total", "Failures by class and reason", "class", "reason")
	f.active = gauge("active_requests", "Requests inside a handler now", "model")
	f.inflight = gauge("inflight_requests", "Requests between finding their model and their end", "model")
	f.queued = gauge("queued_requests", "Requests that wait for their first token", "model")
	disconnected := prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "_disconnected_clients", Help: "Clients that went away before their answer was complete"})
	registry.MustRegister(disconnected)
	f.disconnected = disconnected
	f.duration = histogram("request_duration_seconds", "From the request's arrival to its end", configurableBuckets("REQUEST_DURATION", 1, 512, 10))
	f.inputTokens = histogram("input_sequence_tokens", "Prompt length", configurableBuckets("INPUT_SEQUENCE", 50, 128000, 12))
	f.outputTokens = histogram("output_sequence_tokens", "Output length", configurableBuckets("OUTPUT_SEQUENCE", 50, 32000, 10))
	f.cachedTokens = histogram("cached_tokens", "Prompt tokens that the worker found in its cache", configurableBuckets("INPUT_SEQUENCE", 50, 128000, 12))
	f.outputTotal = counter("output_tokens_total", "Tokens sent to clients", "model")
	f.firstToken = histogram("time_to_first_token_seconds", "From the request's arrival to its first token", configurableBuckets("TTFT", 0.001, 480, 18))
	f.interToken = histogram("inter_token_latency_seconds", "Time between tokens of one answer", configurableBuckets("ITL", 0.001, 80, 20))
	f.embedding = histogram("embedding_latency_seconds", "From an embedding request's arrival to its end", configurableBuckets("EMBEDDING_LATENCY", 0.001, 10, 12))
	f.images = histogram("images_per_request", "Images in a prompt", mediaCounts)
	f.videos = histogram("videos_per_request", "Videos in a prompt", mediaCounts)
	f.audios = histogram("audio_per_request", "Sounds in a prompt", mediaCounts)
	f.cancelled = counter("model_cancellation_total", "Requests whose client went away", "endpoint", "model", "request_type")
	f.rejected = counter("model_rejection_total", "Requests refused for load", "endpoint", "model")
	return f
}

// mediaCounts are bounds of how many media a prompt has.
var mediaCounts = []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 100}

// Begin implements openai.Observer.
func (f *Frontend) Begin(endpoint, _ string, streaming bool) openai.RequestObserver {
	r := &request{frontend: f, endpoint: endpoint, kind: "unary", start: time.Now()}
	if streaming {
		r.kind = "stream"
	}
	return r
}

// Refused implements openai.Observer.
func (f *Frontend) Refused(p *problem.Problem) {
	if p.Class != "" {
		f.failures.WithLabelValues(p.Class, p.Reason).Inc()
	}
}

func (f *Frontend) model(name string) *modelMetrics {
	f.mu.RLock()
	m := f.models[name]
	f.mu.RUnlock()
	if m != nil {
		return m
	}
	m = &modelMetrics{outputTotal: f.outputTotal.WithLabelValues(name), firstToken: f.firstToken.WithLabelValues(name),
		interToken: f.interToken.WithLabelValues(name), queued: f.queued.WithLabelValues(name),
		images: f.images.WithLabelValues(name), videos: f.videos.WithLabelValues(name), audios: f.audios.WithLabelValues(name)}
	f.mu.Lock()
	f.models[name] = m
	f.mu.Unlock()
	return m
}

// Forget drops the series of a model that is gone.
func (f *Frontend) Forget(name string) {
	f.mu.Lock()
	delete(f.models, name)
	f.mu.Unlock()
}

// request follows one request. It belongs to the request's goroutine.
type request struct {
	frontend    *Frontend
	endpoint    string
	kind        string
	id          string
	clientID    string
	traceParent string
	name        string
	model       *modelMetrics
	start       time.Time
	ttft        time.Duration
	lastToken   time.Time
	dispatched  bool
	waiting     bool
	ended       bool
}

func (r *request) label() string {
	if r.name == "" {
		return unknownModel
	}
	return r.name
}

// Model implements openai.RequestObserver.
func (r *request) Model(name string) {
	r.name = name
	f := r.frontend
	r.model = f.model(name)
	f.started.WithLabelValues(r.endpoint, name, r.kind).Inc()
	f.active.WithLabelValues(name).Inc()
}

// Dispatched implements openai.RequestObserver.
func (r *request) Dispatched() {
	if r.model == nil {
		return
	}
	r.dispatched, r.waiting = true, true
	r.frontend.inflight.WithLabelValues(r.name).Inc()
	r.model.queued.Inc()
}

// Named implements openai.RequestObserver.
func (r *request) Named(id, clientID, traceParent string) {
	r.id, r.clientID, r.traceParent = id, clientID, traceParent
}

// Media implements openai.RequestObserver.
func (r *request) Media(images, videos, audios int) {
	if r.model == nil {
		return
	}
	r.model.images.Observe(float64(images))
	r.model.videos.Observe(float64(videos))
	r.model.audios.Observe(float64(audios))
}

// Tokens implements openai.RequestObserver.
func (r *request) Tokens(count int) {
	if r.model == nil {
		return
	}
	if r.waiting {
		r.waiting = false
		r.model.queued.Dec()
	}
	if count == 0 {
		return
	}
	now := time.Now()
	r.model.outputTotal.Add(float64(count))
	if r.lastToken.IsZero() {
		r.ttft = now.Sub(r.start)
		r.model.firstToken.Observe(r.ttft.Seconds())
	} else {
		gap := now.Sub(r.lastToken).Seconds() / float64(count)
		for range count {
			r.model.interToken.Observe(gap)
		}
	}
	r.lastToken = now
}

// End implements openai.RequestObserver.
func (r *request) End(usage pipeline.Usage, p *problem.Problem, cancelled bool) {
	if r.ended {
		return
	}
	r.ended = true
	f, label := r.frontend, r.label()
	took := time.Since(r.start)
	if r.model == nil {
		f.started.WithLabelValues(r.endpoint, label, r.kind).Inc()
		f.duration.WithLabelValues(label).Observe(took.Seconds())
		for _, gauge := range []*prometheus.GaugeVec{f.active, f.inflight, f.queued} {
			gauge.WithLabelValues(label) // there at zero, as of any model
		}
	} else {
		f.active.WithLabelValues(label).Dec()
	}
	if r.waiting {
		r.model.queued.Dec()
	}
	if r.dispatched {
		f.inflight.WithLabelValues(label).Dec()
	}
	errorType := errorType(p, cancelled)
	status := "success"
	if errorType != "" {
		status = "error"
	}
	f.finished.WithLabelValues(r.endpoint, errorType, label, r.kind, status).Inc()
	if p != nil && p.Class != "" && !cancelled {
		f.failures.WithLabelValues(p.Class, p.Reason).Inc()
	}
	if cancelled {
		f.disconnected.Inc()
		f.cancelled.WithLabelValues(r.endpoint, label, r.kind).Inc()
	}
	if p != nil && p.Overload {
		f.rejected.WithLabelValues(r.endpoint, label).Inc()
	}
	if r.dispatched {
		f.duration.WithLabelValues(label).Observe(took.Seconds())
		if r.endpoint == "embeddings" {
			f.embedding.WithLabelValues(label).Observe(took.Seconds())
		}
		if usage.PromptTokens > 0 {
			f.inputTokens.WithLabelValues(label).Observe(float64(usage.PromptTokens))
			f.outputTokens.WithLabelValues(label).Observe(float64(usage.CompletionTokens))
		}
		if usage.CachedTokens != nil {
			f.cachedTokens.WithLabelValues(label).Observe(float64(*usage.CachedTokens))
		}
	}
	r.report(usage, p, errorType, took)
}

func (r *request) report(usage pipeline.Usage, p *problem.Problem, errorType string, took time.Duration) {
	if r.frontend.OnEnd == nil {
		return
	}
	summary := Summary{RequestID: r.id, ClientID: r.clientID, TraceParent: r.traceParent, Endpoint: r.endpoint, Model: r.label(), Streaming: r.kind == "stream", Status: 200, ErrorType: errorType,
		Duration: took, TTFT: r.ttft, Usage: usage}
	if p != nil {
		summary.Status, summary.Err = p.Status, p
	}
	r.frontend.OnEnd(summary)
}

// errorType is the metric label of a failure; "" for success.
func errorType(p *problem.Problem, cancelled bool) string {
	switch {
	case cancelled:
		return "cancelled"
	case p == nil:
		return ""
	case p.Overload:
		return "overload"
	case p.Status == problem.StatusClientClosed:
		return "cancelled"
	case p.Status == 404:
		return "not_found"
	case p.Status == 501:
		return "not_implemented"
	case p.Status == 503:
		return "unavailable"
	case p.Status == 504:
		return "response_timeout"
	case p.Status < 500:
		return "validation"
	}
	return "internal"
}
