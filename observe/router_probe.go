package observe

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/kvindex"
	"signalbox/router/kv"
)

// Probe is where the numbers of a router come from that are looked at when a scraper asks. Members that a pool does not have are
// nil.
type Probe struct {
	// Loads appends what every rank is doing.
	Loads func([]kv.RankLoad) []kv.RankLoad
	Stats func() kv.Stats
	// Classes appends the numbers of every policy class.
	Classes func([]kv.ClassStats) []kv.ClassStats
	// Shadow compares a policy that decides along without effect, called ShadowPolicy, with the one in force, called Policy.
	Shadow               func() (kv.ShadowStats, bool)
	Policy, ShadowPolicy string
	// RemoteFailures counts the questions that a remote index did not answer, and the placements that it was not told.
	RemoteFailures func() (queries, writes uint64)
	// Index describes the index of cached blocks.
	Index func() kvindex.Stats
	// Events describes the stream of KV events that feeds it.
	Events func() EventStats
	// Peers describes how the bookings of other routers are heard; zero where nobody listens.
	Peers func() PeerStats
	// Policies are the rules by which caches are predicted, as configured and as in force: "ttl", "lru" or "disabled".
	ConfiguredPrediction, EffectivePrediction string
	// LRU counts what happened to caches that are predicted by "lru"; nil without them.
	LRU func() kvindex.LRUStats
	// Mismatch is how many workers should publish KV events and do not.
	Mismatch func() int
}

// EventStats count what happened to KV events since the start.
type EventStats struct {
	// Applied counts events by type ("stored", "removed", "cleared") and status ("ok", "parent_block_not_found",
	// "block_not_found", "invalid_block", "capacity_exhausted").
	Applied map[EventOutcome]uint64
	// Stale are events that had been applied already.
	Stale uint64
	// Gaps are holes in the streams that were noticed, Recoveries those that a worker filled, FailedRecoveries those that nobody
	// could.
	Gaps, Recoveries, FailedRecoveries uint64
	// Sources counts the publishers that are listened to by state: "preconnected" until it is known what their ranks hold, then
	// "active".
	Sources map[string]int
	// Batches counts the messages that were taken.
	Batches uint64
	// Lifecycle counts what happened to publishers, connections and messages: "started", "preconnected", "activated", "reconnect",
	// "envelope_decode_error", "identity_mismatch".
	Lifecycle map[string]uint64
}

// EventOutcome is what became of an event.
type EventOutcome struct{ Type, Status string }

// Watch shows the numbers of a pool from now on, until stop is called.
func (r *Router) Watch(probe Probe) (stop func()) {
	m := r.routers
	m.mu.Lock()
	defer m.mu.Unlock()
	r.probe = probe
	m.pools[r] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.pools, r)
	}
}

func (m *Routers) describe() {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	rank := []string{"dp_rank", "worker_id", "worker_type"}
	pool := []string{"model", "worker_type", "target_namespace", "target_component", "target_endpoint"}
	m.decodeBlocks = describe(DefaultPrefix+"_worker_active_decode_blocks", "KV blocks that requests in flight hold on the rank", rank...)
	m.prefillTokens = describe(DefaultPrefix+"_worker_active_prefill_tokens", "Prompt tokens that the rank has yet to compute", rank...)
	m.registered = describe("dynamo_component_router_worker_registered", "1 for every rank that the router knows", process("router_worker_id", "dp_rank", "worker_type")...)
	m.mismatch = describe("dynamo_component_router_kv_event_source_mismatch_workers", "Workers whose KV events are missing", process(pool...)...)
	m.applied = describe("dynamo_component_kv_cache_events_applied", "KV events by what became of them", process("event_type", "status")...)
	m.sources = describe("dynamo_component_router_kv_zmq_ingress_sources", "Publishers of KV events that are listened to", process("state")...)
	m.lifecycle = describe("dynamo_component_router_kv_zmq_ingress_lifecycle_total", "What happened to connections and messages of KV events", process("action")...)
	m.batches = describe("dynamo_component_router_kv_zmq_ingress_batches_total", "Messages with KV events that were taken", process()...)
	m.warnings = describe("dynamo_component_kv_cache_event_warnings", "KV events that look wrong and do no harm", process("warning_kind")...)
	m.mutations = describe("dynamo_component_ckf_mutation_total", "Blocks that the index had no room for, and removals of blocks that it did not have", process("outcome")...)
	m.peers.describe(describe)
	m.approximate.describe(describe)
	m.stale = describe("signalbox_kv_event_stale_total", "KV events that had been applied already", pool...)
	m.gaps = describe("signalbox_kv_event_gaps_total", "Times that KV events were found missing", pool...)
	m.recoveries = describe("signalbox_kv_event_recoveries_total", "Times that a rank's missing events were asked for, by outcome", append(pool, "outcome")...)
	m.indexBlocks = describe("signalbox_kv_index_blocks", "Live blocks in the index, counted for each rank that holds them", append(pool, "tier")...)
	m.indexBytes = describe("signalbox_kv_index_bytes", "Memory of the index", pool...)
	m.indexRanks = describe("signalbox_kv_index_ranks", "Ranks that the index knows", pool...)
	m.indexRefused = describe("signalbox_kv_index_refused_blocks_total", "Blocks that the index had no room for", pool...)
	class := []string{"model", "worker_type", "policy_class"}
	m.waiting = describe(DefaultPrefix+"_router_queue_pending_requests", "Requests that wait for room", class...)
	m.waitingTokens = describe(DefaultPrefix+"_router_queue_pending_isl_tokens", "Prompt tokens of requests that wait", class...)
	m.waitingCached = describe(DefaultPrefix+"_router_queue_pending_cached_tokens", "Prompt tokens of requests that wait, of which some worker had a copy when they came", class...)
	m.refused = describe(DefaultPrefix+"_router_queue_backpressure_total", "Requests that a full class refused", append(class, "reason")...)
	m.admitted = describe(DefaultPrefix+"_router_admission_received_total", "Tries that asked for a place, those after a failure included", class...)
	m.missed = describe(DefaultPrefix+"_router_admission_rejected_total", "Tries that were refused because of their deadline", append(class, "reason")...)
	m.remoteQueries = describe("dynamo_component_router_remote_indexer_query_failures_total", "Questions that a remote index did not answer", component()...)
	m.remoteWrites = describe("dynamo_component_router_remote_indexer_write_failures_total", "Placements that a remote index was not told", component()...)
	compared := []string{"model", "worker_type", "policy", "shadow"}
	m.shadowChoices = describe("signalbox_router_shadow_decisions_total", "Choices of the policy that decides along, by how they compare with those in force", append(compared, "outcome")...)
	m.shadowCached = describe("signalbox_router_shadow_cached_tokens_total", "Prompt tokens in the cache of who was chosen, and of who would have been", append(compared, "choice")...)
	m.shadowRegret = describe("signalbox_router_shadow_regret_blocks_total", "Blocks by which a choice was dearer than the other policy's under the router's cost model", append(compared, "choice")...)
	m.expired = describe("signalbox_router_expired_requests_total", "Requests whose end was lost and that were forgotten", pool...)
}

// Describe implements prometheus.Collector.
func (m *Routers) Describe(to chan<- *prometheus.Desc) {
	m.peers.each(func(d *prometheus.Desc) { to <- d })
	m.approximate.each(func(d *prometheus.Desc) { to <- d })
	for _, d := range []*prometheus.Desc{m.batches, m.warnings, m.mutations, m.admitted, m.missed, m.decodeBlocks, m.prefillTokens, m.registered, m.mismatch, m.applied, m.sources, m.lifecycle, m.stale, m.gaps,
		m.recoveries, m.indexBlocks, m.indexBytes, m.indexRanks, m.indexRefused, m.expired, m.waiting, m.waitingTokens, m.waitingCached, m.refused,
		m.shadowChoices, m.shadowCached, m.shadowRegret, m.remoteQueries, m.remoteWrites} {
		to <- d
	}
}

// series sums what several pools say about the same series: adapters of one model share its workers.
type series struct {
	values map[seriesKey]*sample
	order  []*sample
}

type seriesKey struct {
	desc   *prometheus.Desc
	labels [9]string
}

type sample struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  float64
	labels []string
}

func (s *series) add(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
	key := seriesKey{desc: desc}
	copy(key.labels[:], labels)
	if known := s.values[key]; known != nil {
		known.value += value
		return
	}
	added := &sample{desc: desc, kind: kind, value: value, labels: labels}
	s.values[key] = added
	s.order = append(s.order, added)
}

// Collect implements prometheus.Collector.
func (m *Routers) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	pools := make([]*Router, 0, len(m.pools))
	for pool := range m.pools {
		pools = append(pools, pool)
	}
	m.mu.Unlock()
	s := series{values: make(map[seriesKey]*sample)}
	for _, pool := range pools {
		pool.collect(&s)
	}
	for _, sample := range s.order {
		value := sample.value
		if sample.desc == m.registered || sample.desc == m.approximate.configured || sample.desc == m.approximate.effective {
			value = min(value, 1) // not one for each pool
		}
		to <- prometheus.MustNewConstMetric(sample.desc, sample.kind, value, sample.labels...)
	}
}

func (r *Router) collect(s *series) {
	m, l := r.routers, &r.labels
	process := []string{l.Namespace, l.Component, m.processID}
	pool := []string{l.Model, l.WorkerType, l.Namespace, l.Component, l.Endpoint}
	with := func(base []string, more ...string) []string { return append(append([]string{}, base...), more...) }
	if r.probe.Loads != nil {
		for _, load := range r.probe.Loads(nil) {
			rank, worker := strconv.FormatUint(uint64(load.Rank.DPRank), 10), strconv.FormatUint(load.Rank.WorkerID, 10)
			s.add(m.decodeBlocks, prometheus.GaugeValue, float64(load.ActiveDecodeBlocks), rank, worker, l.WorkerType)
			s.add(m.prefillTokens, prometheus.GaugeValue, float64(load.ActivePrefillTokens), rank, worker, l.WorkerType)
			s.add(m.registered, prometheus.GaugeValue, 1, with(process, worker, rank, l.WorkerType)...)
		}
	}
	if r.probe.Mismatch != nil {
		s.add(m.mismatch, prometheus.GaugeValue, float64(r.probe.Mismatch()), with(process, pool...)...)
	}
	if r.probe.Stats != nil {
		s.add(m.expired, prometheus.CounterValue, float64(r.probe.Stats().Expired), pool...)
	}
	if r.probe.Classes != nil {
		r.collectClasses(s)
	}
	if r.probe.RemoteFailures != nil {
		queries, writes := r.probe.RemoteFailures()
		s.add(m.remoteQueries, prometheus.CounterValue, float64(queries), l.Namespace, l.Component, m.routerID, m.processID)
		s.add(m.remoteWrites, prometheus.CounterValue, float64(writes), l.Namespace, l.Component, m.routerID, m.processID)
	}
	if r.probe.Shadow != nil {
		r.collectShadow(s)
	}
	if r.probe.Peers != nil {
		r.collectPeers(s, process)
	}
	if r.probe.ConfiguredPrediction != "" {
		r.collectApproximate(s, process)
	}
	if r.probe.Index != nil {
		stats := r.probe.Index()
		for tier := range kvindex.Tier(kvindex.Tiers) {
			s.add(m.indexBlocks, prometheus.GaugeValue, float64(stats.Blocks[tier]), with(pool, tier.String())...)
		}
		s.add(m.indexBytes, prometheus.GaugeValue, float64(stats.Bytes), pool...)
		s.add(m.indexRanks, prometheus.GaugeValue, float64(stats.Ranks), pool...)
		s.add(m.indexRefused, prometheus.CounterValue, float64(stats.Refused), pool...)
		s.add(m.mutations, prometheus.CounterValue, float64(stats.Refused), with(process, "capacity_exhausted")...)
		if r.probe.Events != nil {
			s.add(m.warnings, prometheus.CounterValue, float64(stats.Known), with(process, "duplicate_store")...)
		}
	}
	if r.probe.Events != nil {
		r.collectEvents(s, process, pool)
	}
}

// eventStatuses are what dashboards know to become of events; some of it does not happen here.
var eventStatuses = []string{"ok", "parent_block_not_found", "block_not_found", "invalid_block", "capacity_exhausted", "allocation_failed",
	"indexer_invariant_violation", "ownership_degree_overflow", "unsupported_residency_domain"}

func (r *Router) collectEvents(s *series, process, pool []string) {
	m, stats := r.routers, r.probe.Events()
	for _, kind := range []string{"stored", "removed", "cleared"} { // all that may come is there from the start
		for _, status := range eventStatuses {
			s.add(m.applied, prometheus.CounterValue, 0, append(append([]string{}, process...), kind, status)...)
		}
	}
	s.add(m.mutations, prometheus.CounterValue, float64(stats.Applied[EventOutcome{"removed", "block_not_found"}]), append(append([]string{}, process...), "unknown_remove")...)
	s.add(m.batches, prometheus.CounterValue, float64(stats.Batches), process...)
	for outcome, count := range stats.Applied {
		s.add(m.applied, prometheus.CounterValue, float64(count), append(append([]string{}, process...), outcome.Type, outcome.Status)...)
	}
	for state, count := range stats.Sources {
		s.add(m.sources, prometheus.GaugeValue, float64(count), append(append([]string{}, process...), state)...)
	}
	for action, count := range stats.Lifecycle {
		s.add(m.lifecycle, prometheus.CounterValue, float64(count), append(append([]string{}, process...), action)...)
	}
	s.add(m.stale, prometheus.CounterValue, float64(stats.Stale), pool...)
	s.add(m.gaps, prometheus.CounterValue, float64(stats.Gaps), pool...)
	for outcome, count := range map[string]uint64{"success": stats.Recoveries, "failure": stats.FailedRecoveries} {
		s.add(m.recoveries, prometheus.CounterValue, float64(count), append(append([]string{}, pool...), outcome)...)
	}
}

func (r *Router) collectClasses(s *series) {
	m, l := r.routers, &r.labels
	for _, c := range r.probe.Classes(nil) {
		s.add(m.waiting, prometheus.GaugeValue, float64(c.Requests), l.Model, l.WorkerType, c.Class)
		s.add(m.admitted, prometheus.CounterValue, float64(c.Received), l.Model, l.WorkerType, c.Class)
		for _, reason := range []string{"due_time_passed", "predicted_miss"} { // no class has deadlines
			s.add(m.missed, prometheus.CounterValue, 0, l.Model, l.WorkerType, c.Class, reason)
		}
		s.add(m.waitingTokens, prometheus.GaugeValue, float64(c.RawTokens), l.Model, l.WorkerType, c.Class)
		s.add(m.waitingCached, prometheus.GaugeValue, float64(c.CachedTokens), l.Model, l.WorkerType, c.Class)
		for _, refused := range []struct {
			reason string
			count  uint64
		}{{"request_limit", c.Refused.Requests}, {"raw_isl_token_limit", c.Refused.RawTokens}, {"cached_token_limit", c.Refused.CachedTokens}} {
			s.add(m.refused, prometheus.CounterValue, float64(refused.count), l.Model, l.WorkerType, c.Class, refused.reason)
		}
	}
}

func (r *Router) collectShadow(s *series) {
	stats, _ := r.probe.Shadow()
	m, l := r.routers, &r.labels
	add := func(desc *prometheus.Desc, which string, value float64) {
		s.add(desc, prometheus.CounterValue, value, l.Model, l.WorkerType, r.probe.Policy, r.probe.ShadowPolicy, which)
	}
	add(m.shadowChoices, "agree", float64(stats.Agreed))
	add(m.shadowChoices, "differ", float64(stats.Differed))
	add(m.shadowChoices, "error", float64(stats.Failed))
	add(m.shadowCached, "active", float64(stats.ActiveCached))
	add(m.shadowCached, "shadow", float64(stats.ShadowCached))
	add(m.shadowRegret, "active", stats.ActiveRegret)
	add(m.shadowRegret, "shadow", stats.ShadowRegret)
}
