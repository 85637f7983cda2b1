package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ModelFacts are what a model's card says that operators watch; nil members are not known.
type ModelFacts struct {
	Name                                                                  string
	ContextLength, BlockSize, MaxSequences, MaxBatchedTokens, TotalBlocks *uint64
	MigrationLimit                                                        uint64
	Ready                                                                 bool
}

// Models shows the served models to scrapers. It asks for them when it is scraped, so that nothing has to be kept in step.
type Models struct {
	facts                                                                                          func() []ModelFacts
	started                                                                                        time.Time
	contextLength, blockSize, maxSequences, maxBatched, totalBlocks, migrationLimit, ready, uptime *prometheus.Desc
}

// NewModels registers the collector; prefix as in NewFrontend. processID is this process's discovery id in hexadecimal digits.
func NewModels(registry prometheus.Registerer, prefix, processID string, facts func() []ModelFacts) *Models {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	m := &Models{facts: facts, started: time.Now()}
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+"_model_"+name, help, []string{"model"}, nil)
	}
	m.contextLength = describe("context_length", "Longest sequence of a worker of the model, in tokens")
	m.blockSize = describe("kv_cache_block_size", "Tokens in a KV cache block")
	m.maxSequences = describe("max_num_seqs", "Sequences that a worker of the model runs at once")
	m.maxBatched = describe("max_num_batched_tokens", "Tokens that a worker of the model computes at once")
	m.totalBlocks = describe("total_kv_blocks", "KV blocks of a worker of the model")
	m.migrationLimit = describe("migration_limit", "Times that a request of the model may move to another worker")
	m.ready = describe("ready", "1 while a request for the model can be served")
	m.uptime = prometheus.NewDesc("dynamo_component_uptime_seconds", "Seconds since the start", nil, prometheus.Labels{"worker_id": processID})
	registry.MustRegister(m)
	return m
}

// Describe implements prometheus.Collector.
func (m *Models) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.contextLength, m.blockSize, m.maxSequences, m.maxBatched, m.totalBlocks, m.migrationLimit, m.ready, m.uptime} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Models) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(m.uptime, prometheus.GaugeValue, time.Since(m.started).Seconds())
	for _, f := range m.facts() {
		gauge := func(d *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, f.Name)
		}
		for _, row := range []struct {
			desc  *prometheus.Desc
			value *uint64
		}{{m.contextLength, f.ContextLength}, {m.blockSize, f.BlockSize}, {m.maxSequences, f.MaxSequences}, {m.maxBatched, f.MaxBatchedTokens}, {m.totalBlocks, f.TotalBlocks}} {
			if row.value != nil {
				gauge(row.desc, float64(*row.value))
			}
		}
		gauge(m.migrationLimit, float64(f.MigrationLimit))
		ready := 0.0
		if f.Ready {
			ready = 1
		}
		gauge(m.ready, ready)
	}
}
