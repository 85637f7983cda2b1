package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/pipeline"
)

// Text measures tokens on their way to text and back: detokenising, and what the tokenizer remembers of prompts.
type Text struct {
	micros, tokens prometheus.Counter
	latency        prometheus.Observer
}

// NewText registers the metrics; stages has the tokenizer latencies that detokenising belongs to.
func NewText(registry prometheus.Registerer, stages *Stages) *Text {
	t := &Text{latency: stages.tokenizerMS.WithLabelValues("detokenize"),
		micros: prometheus.NewCounter(prometheus.CounterOpts{Name: DefaultPrefix + "_detokenize_total_us", Help: "Microseconds spent on detokenising, estimated from every 32nd token"}),
		tokens: prometheus.NewCounter(prometheus.CounterOpts{Name: DefaultPrefix + "_detokenize_token_count", Help: "Tokens that became text"})}
	registry.MustRegister(t.micros, t.tokens)
	return t
}

// Tokenizer returns the tokenizer with its decoders measured.
func (t *Text) Tokenizer(inner pipeline.Tokenizer) pipeline.Tokenizer {
	return &measuredTokenizer{inner, t}
}

type measuredTokenizer struct {
	pipeline.Tokenizer
	text *Text
}

// NewDecoder implements pipeline.Tokenizer.
func (m *measuredTokenizer) NewDecoder(prompt []uint32, skipSpecial bool) pipeline.Decoder {
	return &measuredDecoder{inner: m.Tokenizer.NewDecoder(prompt, skipSpecial), text: m.text}
}

// sampled is how often a token's decoding is timed: looking at the clock costs as much as decoding.
const sampled = 32

type measuredDecoder struct {
	inner pipeline.Decoder
	text  *Text
	steps int
	// timed is how long samples of the answer's tokens took.
	timed   time.Duration
	samples int
}

// Step implements pipeline.Decoder.
func (d *measuredDecoder) Step(id uint32) string {
	d.steps++
	if d.steps%sampled != 1 {
		return d.inner.Step(id)
	}
	start := time.Now()
	text := d.inner.Step(id)
	took := time.Since(start)
	d.timed, d.samples = d.timed+took, d.samples+1
	d.text.micros.Add(took.Seconds() * 1e6 * sampled)
	d.text.tokens.Add(float64(min(d.steps, sampled)))
	return text
}

// Flush implements pipeline.Decoder.
func (d *measuredDecoder) Flush() string {
	if rest := (d.steps - 1) % sampled; d.steps > 0 && rest > 0 {
		d.text.tokens.Add(float64(rest))
	}
	if d.samples > 0 { // once for an answer: the average of its tokens
		d.text.latency.Observe(d.timed.Seconds() * 1000 / float64(d.samples))
	}
	d.steps, d.timed, d.samples = 0, 0, 0
	return d.inner.Flush()
}

// CacheFacts are what a model's tokenizer remembers of prompts.
type CacheFacts struct {
	Model                                      string
	Hits, Misses, CachedTokens, UncachedTokens uint64
}

// TokenizerCaches shows what tokenizers remember to scrapers.
type TokenizerCaches struct {
	facts                          func() []CacheFacts
	hits, misses, cached, uncached *prometheus.Desc
}

// NewTokenizerCaches registers the collector. Of models that share a tokenizer facts names one.
func NewTokenizerCaches(registry prometheus.Registerer, facts func() []CacheFacts) *TokenizerCaches {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(DefaultPrefix+"_tokenizer_cache_"+name, help, labels, nil)
	}
	c := &TokenizerCaches{facts: facts, hits: describe("hits_total", "Prompts of which a part had been tokenised before"),
		misses:   describe("misses_total", "Prompts of which nothing had been tokenised before"),
		cached:   describe("cached_tokens_total", "Tokens that were remembered", "model"),
		uncached: describe("uncached_tokens_total", "Tokens that were computed", "model")}
	registry.MustRegister(c)
	return c
}

// Describe implements prometheus.Collector.
func (c *TokenizerCaches) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.hits, c.misses, c.cached, c.uncached} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *TokenizerCaches) Collect(to chan<- prometheus.Metric) {
	var hits, misses uint64
	for _, f := range c.facts() {
		hits, misses = hits+f.Hits, misses+f.Misses
		to <- prometheus.MustNewConstMetric(c.cached, prometheus.CounterValue, float64(f.CachedTokens), f.Model)
		to <- prometheus.MustNewConstMetric(c.uncached, prometheus.CounterValue, float64(f.UncachedTokens), f.Model)
	}
	to <- prometheus.MustNewConstMetric(c.hits, prometheus.CounterValue, float64(hits))
	to <- prometheus.MustNewConstMetric(c.misses, prometheus.CounterValue, float64(misses))
}
