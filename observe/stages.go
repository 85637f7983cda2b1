package observe

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/router"
)

// Stages holds the metrics of what requests go through inside. It implements pipeline.Observer.
type Stages struct {
	duration   *prometheus.HistogramVec
	template   prometheus.Observer
	tokenize   prometheus.Observer
	tokenizeMS prometheus.Observer
	// tokenizerMS has the latencies of both operations.
	tokenizerMS *prometheus.HistogramVec
	now         *prometheus.GaugeVec
	migrations  *prometheus.CounterVec
	exceeded    *prometheus.CounterVec
	lastTTFT    *prometheus.GaugeVec
	lastITL     *prometheus.GaugeVec
	lastInput   *prometheus.GaugeVec

	// OnStep, when set, is told how long each step of preparing a prompt took, and how many tokens came out of it.
	OnStep func(step string, took time.Duration, tokens int)

	mu      sync.RWMutex
	workers map[workerKey]*workerGauges
}

// workerKey has no strings: it is looked up for every token.
type workerKey struct {
	id      uint64
	rank    int64 // -1 without one
	prefill bool
}

// labels are the key's label values, in the order of the gauges' names.
func (k workerKey) labels() []string {
	rank, phase := "none", "decode"
	if k.rank >= 0 {
		rank = strconv.FormatInt(k.rank, 10)
	}
	if k.prefill {
		phase = "prefill"
	}
	return []string{rank, strconv.FormatUint(k.id, 10), phase}
}

// workerGauges are one rank's gauges with their labels resolved.
type workerGauges struct{ ttft, itl, input prometheus.Gauge }

// NewStages registers the metrics; prefix as in NewFrontend.
func NewStages(registry prometheus.Registerer, prefix string) *Stages {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	s := &Stages{workers: make(map[workerKey]*workerGauges)}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		registry.MustRegister(h)
		return h
	}
	s.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: DefaultPrefix + "_stage_duration_seconds",
		Help: "Time that requests spend in a stage", Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 2.5, 5}}, []string{"stage"})
	registry.MustRegister(s.duration)
	s.now = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: DefaultPrefix + "_stage_requests", Help: "Requests that are in a stage now"}, []string{"phase", "stage"})
	registry.MustRegister(s.now)
	s.template = histogram(DefaultPrefix+"_template_seconds", "Time to render a chat template", []float64{.00001, .00005, .0001, .0005, .001, .005, .01, .05})
	s.tokenize = histogram(DefaultPrefix+"_tokenize_seconds", "Time to tokenise a prompt", []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1})
	milliseconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + "_tokenizer_latency_ms", Help: "Time to tokenise a prompt", Buckets: doubling(0.5, 11)}, []string{"operation"})
	registry.MustRegister(milliseconds)
	s.tokenizerMS = milliseconds
	s.tokenizeMS = milliseconds.WithLabelValues("tokenize")
	s.migrations = prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "_model_migration_total", Help: "Requests that moved to another worker"}, []string{"migration_type", "model"})
	s.exceeded = prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "_model_migration_max_seq_len_exceeded_total", Help: "Requests that were too long to move"}, []string{"model"})
	registry.MustRegister(s.migrations, s.exceeded)
	gauge := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: DefaultPrefix + "_worker_" + name, Help: help}, []string{"dp_rank", "worker_id", "worker_type"})
		registry.MustRegister(g)
		return g
	}
	s.lastTTFT = gauge("last_time_to_first_token_seconds", "Time to first token of the worker's last request")
	s.lastITL = gauge("last_inter_token_latency_seconds", "Time between the worker's last two tokens")
	s.lastInput = gauge("last_input_sequence_tokens", "Prompt length of the worker's last request")
	return s
}

// Stage implements pipeline.Observer.
func (s *Stages) Stage(stage, _ string, seconds float64) {
	if stage != "dispatch" { // that is measured to the first item: see Plane
		s.duration.WithLabelValues(stage).Observe(seconds)
	}
	if stage == "preprocess" {
		s.step(stage, seconds, 0)
	}
}

// Entered implements pipeline.StageCounter.
func (s *Stages) Entered(stage, phase string) { s.now.WithLabelValues(phase, stage).Inc() }

// Left implements pipeline.StageCounter.
func (s *Stages) Left(stage, phase string) { s.now.WithLabelValues(phase, stage).Dec() }

// Rendered implements pipeline.Observer.
func (s *Stages) Rendered(seconds float64) {
	s.template.Observe(seconds)
	s.step("render", seconds, 0)
}

func (s *Stages) step(name string, seconds float64, tokens int) {
	if s.OnStep != nil {
		s.OnStep(name, time.Duration(seconds*float64(time.Second)), tokens)
	}
}

// Tokenized implements pipeline.Observer.
func (s *Stages) Tokenized(seconds float64, tokens int) {
	s.step("tokenize", seconds, tokens)
	s.tokenize.Observe(seconds)
	s.tokenizeMS.Observe(seconds * 1000)
}

// Migrated implements pipeline.Observer.
func (s *Stages) Migrated(model, kind string) { s.migrations.WithLabelValues(kind, model).Inc() }

// MigrationExceeded implements pipeline.Observer.
func (s *Stages) MigrationExceeded(model string) { s.exceeded.WithLabelValues(model).Inc() }

// Placed implements pipeline.Observer.
func (s *Stages) Placed(string, *router.Placement) {}

// FirstToken implements pipeline.Observer.
func (s *Stages) FirstToken(phase string, p *router.Placement, seconds float64, inputTokens int) {
	g := s.gauges(phase, p)
	g.ttft.Set(seconds)
	g.input.Set(float64(inputTokens))
}

// InterToken implements pipeline.Observer.
func (s *Stages) InterToken(phase string, p *router.Placement, seconds float64) {
	s.gauges(phase, p).itl.Set(seconds)
}

func (s *Stages) gauges(phase string, p *router.Placement) *workerGauges {
	key := workerKey{id: p.WorkerID, rank: -1, prefill: phase == "prefill"}
	if p.HasRank {
		key.rank = int64(p.Rank)
	}
	s.mu.RLock()
	g := s.workers[key]
	s.mu.RUnlock()
	if g != nil {
		return g
	}
	labels := key.labels()
	g = &workerGauges{ttft: s.lastTTFT.WithLabelValues(labels...), itl: s.lastITL.WithLabelValues(labels...), input: s.lastInput.WithLabelValues(labels...)}
	s.mu.Lock()
	s.workers[key] = g
	s.mu.Unlock()
	return g
}

// Forget drops the gauges of a worker that is gone.
func (s *Stages) Forget(workerID uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.workers {
		if key.id != workerID {
			continue
		}
		delete(s.workers, key)
		for _, vec := range []*prometheus.GaugeVec{s.lastTTFT, s.lastITL, s.lastInput} {
			vec.DeleteLabelValues(key.labels()...)
		}
	}
}
