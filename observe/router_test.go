package observe

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"signalbox/inference"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/kv"
	"signalbox/router/load"
)

// gather returns every series as name{label=value,…} with its value, and the bounds of each histogram by name.
func gather(t *testing.T, registry *prometheus.Registry) (values map[string]float64, bounds map[string][]float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values, bounds = map[string]float64{}, map[string][]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			var labels []string
			for _, label := range metric.Label {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			slices.Sort(labels)
			name := family.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch {
			case metric.Histogram != nil:
				values[name] = float64(metric.Histogram.GetSampleCount())
				bounds[family.GetName()] = nil
				for _, bucket := range metric.Histogram.Bucket {
					bounds[family.GetName()] = append(bounds[family.GetName()], bucket.GetUpperBound())
				}
			case metric.Counter != nil:
				values[name] = metric.Counter.GetValue()
			default:
				values[name] = metric.Gauge.GetValue()
			}
		}
	}
	return values, bounds
}

func TestRouterMetricsAreThoseOfTheBoards(t *testing.T) {
	registry := prometheus.NewRegistry()
	routers := NewRouters(registry, 255)
	decode := routers.Pool(PoolLabels{Namespace: "ns", Component: "backend", Endpoint: "generate", Model: "m", WorkerType: "decode"})
	prefill := routers.Pool(PoolLabels{Namespace: "ns", Component: "prefill", Endpoint: "generate", Model: "m", WorkerType: "prefill"})
	loads := func(list []kv.RankLoad) []kv.RankLoad {
		return append(list, kv.RankLoad{Rank: inference.Rank{WorkerID: 7, DPRank: 1}, Projection: load.Projection{ActivePrefillTokens: 30, ActiveDecodeBlocks: 4}})
	}
	stop := decode.Watch(Probe{
		Loads: loads, Stats: func() kv.Stats { return kv.Stats{Expired: 2} },
		Index: func() kvindex.Stats { return kvindex.Stats{Ranks: 3, Bytes: 100, Blocks: [kvindex.Tiers]int{5, 6}} },
		Events: func() EventStats {
			return EventStats{Applied: map[EventOutcome]uint64{{"stored", "ok"}: 9}, Gaps: 1, Sources: map[string]int{"active": 4}}
		},
		Mismatch:             func() int { return 1 },
		Peers:                func() PeerStats { return PeerStats{Sources: 2, Messages: 3, Events: 8, Missing: 1, BadPayloads: 4} },
		ConfiguredPrediction: "lru", EffectivePrediction: "lru",
		LRU: func() kvindex.LRUStats { return kvindex.LRUStats{Evicted: 6, Holds: 2} },
		Classes: func(list []kv.ClassStats) []kv.ClassStats {
			return append(list, kv.ClassStats{Class: "default", Received: 5})
		},
	})
	// An adapter's set has the same workers: its share of their load adds up, the workers are registered once.
	stopAdapter := routers.Pool(PoolLabels{Namespace: "ns", Component: "backend", Endpoint: "generate", Model: "adapter", WorkerType: "decode"}).Watch(Probe{Loads: loads})
	steps := &kv.Steps{Scheduling: time.Millisecond, LostBlocks: 2}
	placement := &router.Placement{InputTokens: 100, InputBlocks: 10, OverlapBlocks: 5}
	decode.Decided(placement, steps)
	prefill.Decided(placement, steps)
	prefill.Decided(&router.Placement{QueryOnly: true}, steps)
	decode.Ended(30)
	decode.Ended(0)
	decode.Transferred(time.Second)
	decode.FirstToken(time.Second)
	decode.Reused(7)

	values, bounds := gather(t, registry)
	process := "router_id=255,worker_id=ff"
	for name, want := range map[string]float64{
		"dynamo_component_router_requests_started_total{dynamo_component=backend,dynamo_namespace=ns," + process + "}":                                                                                                         1,
		"dynamo_component_router_requests_started_total{dynamo_component=prefill,dynamo_namespace=ns," + process + "}":                                                                                                         1,
		"dynamo_component_router_requests_total{dynamo_component=backend,dynamo_namespace=ns," + process + "}":                                                                                                                 2,
		"dynamo_component_router_output_sequence_tokens{dynamo_component=backend,dynamo_namespace=ns," + process + "}":                                                                                                         1,
		"dynamo_component_router_non_max_overlap_selections_total{dynamo_component=prefill,dynamo_namespace=ns," + process + ",worker_type=prefill}":                                                                           1,
		"dynamo_component_router_non_max_overlap_selections_total{dynamo_component=backend,dynamo_namespace=ns," + process + ",worker_type=prefill}":                                                                           0,
		"dynamo_component_router_worker_registered{dp_rank=1,dynamo_component=backend,dynamo_namespace=ns,router_worker_id=7,worker_id=ff,worker_type=decode}":                                                                 1,
		"dynamo_component_router_kv_event_source_mismatch_workers{dynamo_component=backend,dynamo_namespace=ns,model=m,target_component=backend,target_endpoint=generate,target_namespace=ns,worker_id=ff,worker_type=decode}": 1,
		"dynamo_component_kv_cache_events_applied{dynamo_component=backend,dynamo_namespace=ns,event_type=stored,status=ok,worker_id=ff}":                                                                                      9,
		"dynamo_component_router_kv_zmq_ingress_sources{dynamo_component=backend,dynamo_namespace=ns,state=active,worker_id=ff}":                                                                                               4,
		"dynamo_component_router_kv_transfer_estimated_latency_seconds{dynamo_component=backend,dynamo_namespace=ns," + process + "}":                                                                                          1,
		"dynamo_component_router_time_to_first_token_seconds{dynamo_component=backend,dynamo_namespace=ns," + process + "}":                                                                                                    1,
		"dynamo_component_router_kv_worker_reused_tokens_total{dynamo_component=backend,dynamo_namespace=ns,model=m,phase=," + process + "}":                                                                                   7,
		"dynamo_component_kv_cache_events_applied{dynamo_component=backend,dynamo_namespace=ns,event_type=cleared,status=invalid_block,worker_id=ff}":                                                                          0,
		"dynamo_component_router_active_sequence_zmq_ingress_sources{dynamo_component=backend,dynamo_namespace=ns,worker_id=ff}":                                                                                               2,
		"dynamo_component_router_active_sequence_zmq_ingress_sequence_gaps_total{dynamo_component=backend,dynamo_namespace=ns,worker_id=ff}":                                                                                   1,
		"dynamo_component_router_active_sequence_zmq_ingress_payload_decode_errors_total{dynamo_component=backend,dynamo_namespace=ns,worker_id=ff}":                                                                           4,
		"dynamo_component_router_active_sequence_ingress_events_applied_total{dynamo_component=backend,dynamo_namespace=ns,model=m,routing_group=default,worker_id=ff,worker_type=decode}":                                     8,
		"dynamo_component_router_approximate_cache_effective_policy{dynamo_component=backend,dynamo_namespace=ns,policy=lru,worker_id=ff}":                                                                                     1,
		"dynamo_component_router_approximate_cache_effective_policy{dynamo_component=backend,dynamo_namespace=ns,policy=ttl,worker_id=ff}":                                                                                     0,
		"dynamo_component_router_approximate_lru_evicted_blocks_total{dynamo_component=backend,dynamo_namespace=ns,worker_id=ff}":                                                                                              6,
		"dynamo_frontend_router_admission_received_total{model=m,policy_class=default,worker_type=decode}":                                                                                                                     5,
		"dynamo_frontend_router_admission_rejected_total{model=m,policy_class=default,reason=predicted_miss,worker_type=decode}":                                                                                               0,
		"dynamo_router_overhead_scheduling_ms{router_id=255}":                                                                                                                                                                  3,
		"dynamo_router_shared_cache_errors_total{router_id=255}":                                                                                                                                                               0,
		"dynamo_frontend_worker_active_decode_blocks{dp_rank=1,worker_id=7,worker_type=decode}":                                                                                                                                8,
		"dynamo_frontend_worker_active_prefill_tokens{dp_rank=1,worker_id=7,worker_type=decode}":                                                                                                                               60,
		"signalbox_kv_index_blocks{model=m,target_component=backend,target_endpoint=generate,target_namespace=ns,tier=host_pinned,worker_type=decode}":                                                                         6,
		"signalbox_kv_event_gaps_total{model=m,target_component=backend,target_endpoint=generate,target_namespace=ns,worker_type=decode}":                                                                                      1,
		"signalbox_router_expired_requests_total{model=m,target_component=backend,target_endpoint=generate,target_namespace=ns,worker_type=decode}":                                                                            2,
	} {
		if got, there := values[name]; !there || got != want {
			t.Errorf("%s is %v (there: %v), want %v", name, got, there, want)
		}
	}
	for name, want := range map[string][]float64{
		"dynamo_component_router_inter_token_latency_seconds":           {0, .0019, .0035, .0067, .013, .024, .045, .084, .16, .3, .56, 1.1, 2},
		"dynamo_component_router_shared_cache_beyond_blocks":            {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048},
		"dynamo_router_overhead_block_hashing_ms":                       doubling(0.001, 15),
		"dynamo_router_overhead_total_ms":                               growing(0.01, 3, 17),
		"dynamo_component_router_overlap_blocks_lost":                   doubling(0.25, 16),
		"dynamo_component_router_time_to_first_token_seconds":           logBuckets(0.001, 480, 18),
		"dynamo_component_router_kv_transfer_estimated_latency_seconds": logBuckets(0.001, 10, 15),
	} {
		if diff := cmp.Diff(want, bounds[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if hit := bounds["dynamo_component_router_kv_hit_rate"]; len(hit) != 21 || hit[0] != 0 || hit[20] != 1 {
		t.Errorf("bounds of the hit rate: %v", hit)
	}
	stop()
	stopAdapter()
	if values, _ := gather(t, registry); values["dynamo_frontend_worker_active_decode_blocks{dp_rank=1,worker_id=7,worker_type=decode}"] != 0 {
		t.Error("gauges of a pool that has gone are still there")
	}
}
