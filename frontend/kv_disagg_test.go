package frontend

import (
	"context"
	"strings"
	"testing"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/model/card"
	"signalbox/worker/sim"
)

// leg adds an engine that plays one part of a disaggregated model.
func (k *kvFixture) leg(role card.WorkerType) uint64 {
	k.t.Helper()
	config := sim.DefaultConfig()
	config.BlockSize, config.SpeedupRatio, config.Vocabulary = 4, 0, [2]uint32{'a', 'z' + 1}
	config.Prefill = role == card.PrefillWorker
	speaker := &mouth{wires: k.wires}
	e, err := sim.New(config, speaker)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(e.Close)
	backend := k.store.Open(mem.Options{})
	k.backends = append(k.backends, backend)
	id := backend.InstanceID()
	speaker.id.Store(id)
	k.engines.byID[id] = e
	c := card.Card{DisplayName: "m", Slug: "m", BlockSize: 4, ModelInput: card.TokensInput, WorkerType: role, Runtime: card.DefaultRuntimeConfig()}
	component := "prefill"
	if role == card.DecodeWorker {
		component = "backend"
		c.ModelType, c.Needs = card.Chat|card.Completions, []card.WorkerPool{{card.PrefillWorker}}
	}
	text, err := c.Marshal()
	if err != nil {
		k.t.Fatal(err)
	}
	for _, record := range []discovery.Record{
		&discovery.Instance{Namespace: "n", Component: component, Endpoint: "generate", InstanceID: id, Transport: discovery.Transport{TCP: "127.0.0.1:1/x"}},
		&discovery.Model{Namespace: "n", Component: component, Endpoint: "generate", InstanceID: id, Card: text},
	} {
		if err := discovery.Publish(context.Background(), backend, record); err != nil {
			k.t.Fatal(err)
		}
	}
	return id
}

// The prefill leg follows the cache, the decode leg the load; both book and both free.
func TestBothLegsInModeKV(t *testing.T) {
	k := startKV(t, nil)
	prefills := []uint64{k.leg(card.PrefillWorker), k.leg(card.PrefillWorker)}
	decodes := []uint64{k.leg(card.DecodeWorker), k.leg(card.DecodeWorker)}
	waitFor(t, func() bool {
		return k.frontend.Ready("m") && k.metric("dynamo_component_router_worker_registered") == 4
	})
	const requests = 6
	first := k.ask(prefix("ann"))
	for range requests - 1 {
		again := k.ask(prefix("ann"))
		w := again.NVExt.WorkerID
		if rate := again.NVExt.Timing.HitRate; rate == nil || *rate < 0.7 {
			t.Errorf("the prefill leg's hit rate is %v", rate)
		}
		if w.Prefill != first.NVExt.WorkerID.Prefill || w.PrefillRank == nil || w.DecodeRank == nil {
			t.Errorf("prefill went to %+v after %+v", w, first.NVExt.WorkerID)
		}
		if w.Prefill != prefills[0] && w.Prefill != prefills[1] || w.Decode != decodes[0] && w.Decode != decodes[1] {
			t.Errorf("the legs went to %+v", w)
		}
	}
	for name, want := range map[string]float64{
		"dynamo_component_router_requests_started_total": 2 * requests,
		"dynamo_component_router_requests_total":         2 * requests,
		"dynamo_frontend_worker_active_decode_blocks":    0,
		"dynamo_frontend_worker_active_prefill_tokens":   0,
	} {
		waitFor(t, func() bool { return k.metric(name) == want })
	}
	if legs := strings.Count(k.log.String(), `\"phase\":\"prefill\"`); legs != requests {
		t.Errorf("%d decisions about prefill legs in the log", legs)
	}
	if activated := strings.Count(k.log.String(), "Activating prefill router"); activated != 1 {
		t.Errorf("the prefill router was activated %d times", activated)
	}
}
