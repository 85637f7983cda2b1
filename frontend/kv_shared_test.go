package frontend

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"signalbox/model/card"
	"signalbox/router/sharedcache"
	"signalbox/transport/zmq"
	"signalbox/worker/sim"
)

// fakeMaster publishes objects as the master of a Mooncake store does. It is a fake.
type fakeMaster struct {
	*zmq.Publisher
	sequence uint64
}

func (m *fakeMaster) say(kind string, keys []string) {
	payload := msgp.AppendInt64(msgp.AppendArrayHeader(nil, 3), 1)
	payload = msgp.AppendArrayHeader(payload, uint32(len(keys)))
	for _, key := range keys {
		payload = msgp.AppendMapHeader(payload, 3)
		payload = msgp.AppendString(msgp.AppendString(payload, "event_type"), kind)
		payload = msgp.AppendString(msgp.AppendString(payload, "object_key"), key)
		payload = msgp.AppendString(msgp.AppendString(payload, "tenant_id"), "default")
	}
	m.Publish(nil, binary.BigEndian.AppendUint64(nil, m.sequence), msgp.AppendUint32(payload, 0))
	m.sequence++
}

// sumOf adds up what a histogram has observed.
func (k *kvFixture) sumOf(name string) (sum float64) {
	k.t.Helper()
	families, err := k.registry.Gather()
	if err != nil {
		k.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.Metric {
				sum += metric.Histogram.GetSampleSum()
			}
		}
	}
	return sum
}

// A model whose workers keep blocks in a shared store: what the store's master tells enters decisions and metrics, and a master that
// goes away is counted.
func TestTheSharedCacheEntersDecisions(t *testing.T) {
	publisher, err := zmq.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	master := &fakeMaster{Publisher: publisher}
	defer publisher.Close()
	layout := sharedcache.Layout{Backend: sharedcache.Backend, PageSize: 4, TensorParallel: 2, PipelineParallel: 1}
	told, err := json.Marshal(struct {
		sharedcache.Layout
		Endpoint string `json:"kv_events_endpoint"`
	}{layout, fmt.Sprintf("tcp://127.0.0.1:%d", publisher.Port())})
	if err != nil {
		t.Fatal(err)
	}
	k := startKV(t, func(r *Routing) {
		r.KV.SharedCacheType, r.KV.SharedCacheMultiplier, r.KV.UseKVEvents, r.KV.OverlapScoreCredit = "hicache", 0.5, false, 0
	})
	config := sim.DefaultConfig()
	config.BlockSize, config.SpeedupRatio, config.Vocabulary = 4, 0, [2]uint32{'a', 'z' + 1}
	for range 2 {
		engine, err := sim.New(config, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close()
		k.addWorker(engine, func(c *card.Card) {
			c.Runtime.RuntimeData = map[string]json.RawMessage{sharedcache.RuntimeKey: told}
		})
	}
	k.waitReady(2)
	waitFor(t, func() bool { return publisher.Subscribers() == 1 })

	prompt := "a prompt of 24 characters"[:24]
	var tokens []uint32
	for _, c := range []byte(prompt) {
		tokens = append(tokens, uint32(c))
	}
	var keys []string
	for _, page := range sharedcache.AppendPages(nil, tokens, 4, false)[:3] {
		keys = layout.AppendKeys(keys, page)
	}
	k.ask(prompt)
	if rate := k.sumOf("dynamo_component_router_shared_cache_hit_rate"); rate != 0 {
		t.Errorf("an empty store has a hit rate of %v", rate)
	}
	master.say("stored", keys)
	waitFor(t, func() bool { return strings.Contains(k.log.String(), "following the shared cache") })
	asked := 1.0
	waitFor(t, func() bool {
		k.ask(prompt)
		asked++
		return k.sumOf("dynamo_component_router_shared_cache_hit_rate") > 0
	})
	if rate, beyond := k.sumOf("dynamo_component_router_shared_cache_hit_rate"), k.sumOf("dynamo_component_router_shared_cache_beyond_blocks"); rate != 0.5 || beyond != 3 {
		t.Errorf("hit rate %v, %v blocks beyond, want 0.5 and 3", rate, beyond)
	}
	for _, name := range []string{"dynamo_router_overhead_shared_cache_query_ms", "dynamo_component_router_shared_cache_hit_rate", "dynamo_component_router_shared_cache_beyond_blocks"} {
		if count := k.metric(name); count != asked {
			t.Errorf("%s counts %v, want %v", name, count, asked)
		}
	}
	if !strings.Contains(k.log.String(), `\"shared_blocks\":3`) && !strings.Contains(k.log.String(), `"shared_blocks":3`) {
		t.Errorf("no decision tells of the shared cache: %s", k.log)
	}
	if failures := k.metric("dynamo_router_shared_cache_errors_total"); failures != 0 {
		t.Errorf("%v failures", failures)
	}
	_ = publisher.Close()
	waitFor(t, func() bool { return k.metric("dynamo_router_shared_cache_errors_total") > 0 })
}
