package observe

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/router"
	"signalbox/router/kv"
)

// Routers holds the metrics of the routers of a frontend: one [Router] per worker set.
type Routers struct {
	routerID, processID string

	started, finished                     *prometheus.CounterVec
	firstToken, interToken                *prometheus.HistogramVec
	inputTokens, outputTokens             *prometheus.HistogramVec
	hitRate, sharedHitRate, sharedBeyond  *prometheus.HistogramVec
	transfer, blocksLost                  *prometheus.HistogramVec
	nonMaximal                            *prometheus.CounterVec
	selectedCached, bestCached, reused    *prometheus.CounterVec
	blockHashing, sequenceHashing         prometheus.Observer
	findMatches, scheduling, total        prometheus.Observer
	sharedQuery                           prometheus.Observer
	sharedErrors                          prometheus.Counter
	decodeBlocks, prefillTokens           *prometheus.Desc
	registered, mismatch, applied         *prometheus.Desc
	stale, gaps, recoveries               *prometheus.Desc
	indexBlocks, indexBytes, indexRefused *prometheus.Desc
	indexRanks, expired                   *prometheus.Desc
	waiting, waitingTokens, waitingCached *prometheus.Desc
	refused                               *prometheus.Desc
	shadowChoices, shadowCached           *prometheus.Desc
	shadowRegret                          *prometheus.Desc
	remoteQueries, remoteWrites           *prometheus.Desc
	sources, lifecycle, batches           *prometheus.Desc
	warnings, mutations                   *prometheus.Desc
	admitted, missed                      *prometheus.Desc
	peers                                 peerDescs
	approximate                           approximateDescs

	mu    sync.Mutex
	pools map[*Router]bool
}

// component labels are on every metric of the routers themselves: whose workers, and which process counts.
var componentLabels = []string{"dynamo_namespace", "dynamo_component", "router_id", "worker_id"}

// process are the labels of what belongs to the process and not to one of its routers.
func process(more ...string) []string {
	return append([]string{"dynamo_namespace", "dynamo_component", "worker_id"}, more...)
}

func component(more ...string) []string {
	return append(append([]string{}, componentLabels...), more...)
}

// NewRouters registers the metrics. processID is this process's discovery id.
func NewRouters(registry prometheus.Registerer, processID uint64) *Routers {
	m := &Routers{routerID: strconv.FormatUint(processID, 10), processID: strconv.FormatUint(processID, 16), pools: make(map[*Router]bool)}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dynamo_component_router_" + name, Help: help}, component(labels...))
		registry.MustRegister(vec)
		return vec
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "dynamo_component_router_" + name, Help: help, Buckets: buckets}, component(labels...))
		registry.MustRegister(vec)
		return vec
	}
	m.started = counter("requests_started_total", "Requests that the router placed")
	m.finished = counter("requests_total", "Requests that a worker took and that ended")
	m.firstToken = histogram("time_to_first_token_seconds", "From the request's arrival to its first token", logBuckets(0.001, 480, 18))
	m.interToken = histogram("inter_token_latency_seconds", "Average time between tokens, whenever the output fills a block", logBuckets(0.001, 2, 13))
	m.inputTokens = histogram("input_sequence_tokens", "Prompt length", logBuckets(50, 128000, 12), "model", "phase")
	m.outputTokens = histogram("output_sequence_tokens", "Output length", logBuckets(50, 32000, 10))
	m.hitRate = histogram("kv_hit_rate", "Part of the prompt that the router expects in the worker's cache", linear(0.05, 21))
	m.sharedHitRate = histogram("shared_cache_hit_rate", "Part of the prompt in the fleet's shared cache", linear(0.05, 21))
	m.sharedBeyond = histogram("shared_cache_beyond_blocks", "Shared-cache blocks beyond what the worker holds", doubling(1, 12))
	m.transfer = histogram("kv_transfer_estimated_latency_seconds", "From the end of prefill to the first token of the decode worker", logBuckets(0.001, 10, 15))
	m.nonMaximal = counter("non_max_overlap_selections_total", "Placements on a prefill worker that holds less than another eligible one", "worker_type")
	m.blocksLost = histogram("overlap_blocks_lost", "Blocks that such a placement gave up", doubling(0.25, 16), "worker_type")
	m.selectedCached = counter("kv_selected_cached_prefix_tokens_total", "Prompt tokens that the chosen rank had cached, in any tier", "model", "phase")
	m.bestCached = counter("kv_best_eligible_cached_prefix_tokens_total", "Prompt tokens that the eligible rank with most of them had cached", "model", "phase")
	m.reused = counter("kv_worker_reused_tokens_total", "Prompt tokens that workers say they took from their caches", "model", "phase")
	m.registerOverhead(registry)
	m.describe()
	registry.MustRegister(m)
	return m
}

// linear returns count bounds from 0, step apart.
func linear(step float64, count int) []float64 {
	bounds := make([]float64, count)
	for i := range bounds {
		bounds[i] = float64(i) * step
	}
	return bounds
}

func (m *Routers) registerOverhead(registry prometheus.Registerer) {
	labels := prometheus.Labels{"router_id": m.routerID}
	histogram := func(name, help string, buckets []float64) prometheus.Observer {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "dynamo_router_overhead_" + name, Help: help, Buckets: buckets, ConstLabels: labels})
		registry.MustRegister(h)
		return h
	}
	m.blockHashing = histogram("block_hashing_ms", "Time to hash a prompt's blocks", doubling(0.001, 15))
	m.sequenceHashing = histogram("seq_hashing_ms", "Time to chain the hashes", doubling(0.001, 15))
	m.findMatches = histogram("indexer_find_matches_ms", "Time to look a prompt up", growing(0.01, 3, 17))
	m.scheduling = histogram("scheduling_ms", "Time to choose a worker, the wait for room included", growing(0.01, 3, 17))
	m.sharedQuery = histogram("shared_cache_query_ms", "Time to ask the shared cache", growing(0.01, 3, 17))
	m.total = histogram("total_ms", "Time to place a request", growing(0.01, 3, 17))
	m.sharedErrors = prometheus.NewCounter(prometheus.CounterOpts{Name: "dynamo_router_shared_cache_errors_total", Help: "Failed questions to the shared cache", ConstLabels: labels})
	registry.MustRegister(m.sharedErrors)
}

// PoolLabels name a worker set in metrics.
type PoolLabels struct {
	Namespace, Component, Endpoint string
	Model                          string
	// WorkerType is "prefill" for prefill pools and "decode" for all others.
	WorkerType string
	// Phase is what the pool does of a request: "aggregated", "prefill" or "decode".
	Phase string
}

// Router holds the metrics of one worker set's router. It implements kv.Observer.
type Router struct {
	routers *Routers
	labels  PoolLabels
	probe   Probe

	started, finished         prometheus.Counter
	firstToken, interToken    prometheus.Observer
	inputTokens, outputTokens prometheus.Observer
	hitRate, transfer         prometheus.Observer
	selectedCached            prometheus.Counter
	bestCached, reused        prometheus.Counter
	nonMaximal                prometheus.Counter // nil but for prefill pools
	blocksLost                prometheus.Observer
}

var _ kv.Observer = (*Router)(nil)

// Pool returns the metrics of a worker set, at zero from the start.
func (m *Routers) Pool(labels PoolLabels) *Router {
	values := []string{labels.Namespace, labels.Component, m.routerID, m.processID}
	phased := append(append([]string{}, values...), labels.Model, labels.Phase)
	r := &Router{
		routers: m, labels: labels,
		started: m.started.WithLabelValues(values...), finished: m.finished.WithLabelValues(values...),
		firstToken: m.firstToken.WithLabelValues(values...), interToken: m.interToken.WithLabelValues(values...),
		inputTokens: m.inputTokens.WithLabelValues(phased...), outputTokens: m.outputTokens.WithLabelValues(values...),
		hitRate: m.hitRate.WithLabelValues(values...), transfer: m.transfer.WithLabelValues(values...),
		selectedCached: m.selectedCached.WithLabelValues(phased...), bestCached: m.bestCached.WithLabelValues(phased...), reused: m.reused.WithLabelValues(phased...),
	}
	for _, vec := range []*prometheus.HistogramVec{m.sharedHitRate, m.sharedBeyond} {
		vec.WithLabelValues(values...)
	}
	// The prefill series is there from the start, whatever the pool is; only prefill pools count in it.
	prefill := append(values, "prefill")
	nonMaximal, lost := m.nonMaximal.WithLabelValues(prefill...), m.blocksLost.WithLabelValues(prefill...)
	if labels.WorkerType == "prefill" {
		r.nonMaximal, r.blocksLost = nonMaximal, lost
	}
	return r
}

// Decided implements kv.Observer.
func (r *Router) Decided(p *router.Placement, steps *kv.Steps) {
	m := r.routers
	m.blockHashing.Observe(milliseconds(steps.BlockHashing))
	m.sequenceHashing.Observe(milliseconds(steps.SequenceHashing))
	m.findMatches.Observe(milliseconds(steps.FindMatches))
	m.scheduling.Observe(milliseconds(steps.Scheduling))
	m.total.Observe(milliseconds(steps.Total))
	if p.QueryOnly {
		return
	}
	r.decidedShared(&steps.Shared)
	r.started.Inc()
	r.inputTokens.Observe(float64(p.InputTokens))
	r.hitRate.Observe(steps.HitRate)
	r.selectedCached.Add(float64(steps.SelectedCached))
	r.bestCached.Add(float64(steps.BestCached))
	if r.nonMaximal != nil && steps.LostBlocks > 0 {
		r.nonMaximal.Inc()
		r.blocksLost.Observe(steps.LostBlocks)
	}
}

// FirstToken implements kv.Observer.
func (r *Router) FirstToken(sinceArrival time.Duration) { r.firstToken.Observe(sinceArrival.Seconds()) }

// Transferred implements kv.Observer.
func (r *Router) Transferred(latency time.Duration) { r.transfer.Observe(latency.Seconds()) }

// Reused implements kv.Observer.
func (r *Router) Reused(tokens int) { r.reused.Add(float64(tokens)) }

// OutputBlock implements kv.Observer.
func (r *Router) OutputBlock(interToken time.Duration) { r.interToken.Observe(interToken.Seconds()) }

// Ended implements kv.Observer.
func (r *Router) Ended(outputTokens int) {
	r.finished.Inc()
	if outputTokens > 0 {
		r.outputTokens.Observe(float64(outputTokens))
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
