package observe

import (
	"github.com/prometheus/client_golang/prometheus"
)

// PeerStats count how the bookings of other routers are heard. But for Sources they only grow.
type PeerStats struct {
	// Sources are the publishers that are listened to, Replacements the times that one was found at another address.
	Sources      int
	Replacements uint64
	// Messages were taken, with Events in them.
	Messages, Events uint64
	// Missing messages were noticed by holes in a publisher's numbers; Late ones came after younger ones.
	Missing, Late uint64
	// BadEnvelopes and BadPayloads could not be read; Reconnects counts connections that had to be made again.
	BadEnvelopes, BadPayloads, Reconnects uint64
}

// peerDescs describe how the bookings of other routers are heard.
type peerDescs struct {
	drained, applied, depth                                               *prometheus.Desc
	sources, gaps, late, reconnects, replacements                         *prometheus.Desc
	badEnvelopes, badPayloads, badIdentities, forcedAborts, droppedEvents *prometheus.Desc
}

func (p *peerDescs) describe(describe func(name, help string, labels ...string) *prometheus.Desc) {
	pool := func(name, help string) *prometheus.Desc {
		return describe("dynamo_component_router_active_sequence_ingress_"+name, help, process("model", "routing_group", "worker_type")...)
	}
	p.drained = pool("drain_batches_total", "Messages with bookings of other routers that were applied")
	p.applied = pool("events_applied_total", "Bookings and their ends that other routers told of")
	p.depth = pool("queue_depth", "Events that wait to be applied; they are applied as they come")
	zmq := func(name, help string) *prometheus.Desc {
		return describe("dynamo_component_router_active_sequence_zmq_ingress_"+name, help, process()...)
	}
	p.sources = zmq("sources", "Publishers of bookings that are listened to")
	p.gaps = zmq("sequence_gaps_total", "Messages that a publisher sent and that did not come")
	p.late = zmq("out_of_order_total", "Messages that came after younger ones, or twice")
	p.reconnects = zmq("reconnects_total", "Connections to publishers that had to be made again")
	p.replacements = zmq("replacements_total", "Publishers that were found at another address")
	p.badEnvelopes = zmq("envelope_decode_errors_total", "Messages whose envelope could not be read")
	p.badPayloads = zmq("payload_decode_errors_total", "Messages whose content could not be read")
	p.badIdentities = zmq("identity_errors_total", "Messages whose frames name another publisher than the envelope; they count as unreadable envelopes here")
	p.forcedAborts = zmq("forced_aborts_total", "Publishers that could not be left in time; nobody has to be forced here")
	p.droppedEvents = zmq("dropped_events_total", "Events for which there was no room; they are applied as they come")
}

func (p *peerDescs) each(visit func(*prometheus.Desc)) {
	for _, d := range []*prometheus.Desc{p.drained, p.applied, p.depth, p.sources, p.gaps, p.late, p.reconnects, p.replacements, p.badEnvelopes,
		p.badPayloads, p.badIdentities, p.forcedAborts, p.droppedEvents} {
		visit(d)
	}
}

// routingGroup is the only one that there is.
const routingGroup = "default"

func (r *Router) collectPeers(s *series, process []string) {
	d, stats, l := &r.routers.peers, r.probe.Peers(), &r.labels
	pool := append(append([]string{}, process...), l.Model, routingGroup, l.WorkerType)
	s.add(d.drained, prometheus.CounterValue, float64(stats.Messages), pool...)
	s.add(d.applied, prometheus.CounterValue, float64(stats.Events), pool...)
	s.add(d.depth, prometheus.GaugeValue, 0, pool...)
	s.add(d.sources, prometheus.GaugeValue, float64(stats.Sources), process...)
	for _, row := range []struct {
		desc  *prometheus.Desc
		count uint64
	}{{d.gaps, stats.Missing}, {d.late, stats.Late}, {d.reconnects, stats.Reconnects}, {d.replacements, stats.Replacements},
		{d.badEnvelopes, stats.BadEnvelopes}, {d.badPayloads, stats.BadPayloads}, {d.badIdentities, 0}, {d.forcedAborts, 0}, {d.droppedEvents, 0}} {
		s.add(row.desc, prometheus.CounterValue, float64(row.count), process...)
	}
}

// approximateDescs describe caches that are predicted.
type approximateDescs struct {
	configured, effective                                          *prometheus.Desc
	evicted, evictions, unsized, holds, extended, waitingMutations *prometheus.Desc
}

func (a *approximateDescs) describe(describe func(name, help string, labels ...string) *prometheus.Desc) {
	policy := func(name, help string) *prometheus.Desc {
		return describe("dynamo_component_router_approximate_cache_"+name+"_policy", help, process("policy")...)
	}
	a.configured = policy("configured", "1 for the rule by which caches are to be predicted where no events tell")
	a.effective = policy("effective", "1 for the rule by which they are")
	lru := func(name, help string) *prometheus.Desc {
		return describe("dynamo_component_router_approximate_lru_"+name, help, process()...)
	}
	a.evicted = lru("evicted_blocks_total", "Predicted blocks that had to go for others")
	a.evictions = lru("eviction_batches_total", "Times that predicted blocks had to go for others")
	a.unsized = lru("fallback_activations_total", "Ranks of unknown size, whose blocks age instead")
	a.holds = lru("leases", "Requests in flight whose blocks are kept")
	a.extended = lru("output_batches_total", "Times that output was added to a request's blocks")
	a.waitingMutations = lru("mutation_queue_depth", "Changes that wait; they are made at once")
}

func (a *approximateDescs) each(visit func(*prometheus.Desc)) {
	for _, d := range []*prometheus.Desc{a.configured, a.effective, a.evicted, a.evictions, a.unsized, a.holds, a.extended, a.waitingMutations} {
		visit(d)
	}
}

func (r *Router) collectApproximate(s *series, process []string) {
	d := &r.routers.approximate
	for _, policy := range []string{"disabled", "lru", "ttl"} {
		labels := append(append([]string{}, process...), policy)
		for _, row := range []struct {
			desc *prometheus.Desc
			name string
		}{{d.configured, r.probe.ConfiguredPrediction}, {d.effective, r.probe.EffectivePrediction}} {
			value := 0.0
			if row.name == policy {
				value = 1
			}
			s.add(row.desc, prometheus.GaugeValue, value, labels...)
		}
	}
	var evicted, evictions, unsized, extended uint64
	holds := 0
	if r.probe.LRU != nil {
		stats := r.probe.LRU()
		evicted, evictions, unsized, extended, holds = stats.Evicted, stats.Evictions, stats.Unsized, stats.Extended, stats.Holds
	}
	s.add(d.evicted, prometheus.CounterValue, float64(evicted), process...)
	s.add(d.evictions, prometheus.CounterValue, float64(evictions), process...)
	s.add(d.unsized, prometheus.CounterValue, float64(unsized), process...)
	s.add(d.extended, prometheus.CounterValue, float64(extended), process...)
	s.add(d.holds, prometheus.GaugeValue, float64(holds), process...)
	s.add(d.waitingMutations, prometheus.GaugeValue, 0, process...)
}
