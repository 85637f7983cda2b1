package frontend

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"signalbox/inference"
	"signalbox/model/card"
	"signalbox/router"
)

// A request whose prompt a decode worker holds for the most part skips the prefill workers; one that is new, or asks for a prefill worker
// by name, does not.
func TestKnownPromptsSkipThePrefillWorkers(t *testing.T) {
	for _, on := range []bool{false, true} {
		k := startKV(t, func(r *Routing) { r.KV.ConditionalDisagg = on })
		prefills := map[uint64]bool{k.leg(card.PrefillWorker): true}
		k.leg(card.DecodeWorker)
		waitFor(t, func() bool {
			return k.frontend.Ready("m") && k.metric("dynamo_component_router_worker_registered") == 2
		})
		ask := func(prompt, more string) (answer kvAnswer, text string) {
			_, text = k.post("/v1/completions", fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":4,"nvext":{"extra_fields":["worker_id"]%s}}`, prompt, more))
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				t.Fatal(err, text)
			}
			return answer, text
		}
		prompt := strings.Repeat("what a long prompt ", 20)
		first, _ := ask(prompt, "")
		if !prefills[first.NVExt.WorkerID.Prefill] {
			t.Errorf("on %v: a new prompt was not prefilled by a prefill worker: %+v", on, first.NVExt)
		}
		// The decode worker tells what it holds a moment after it has answered.
		bypassed := false
		waitFor(t, func() bool {
			again, _ := ask(prompt+"and then?", "")
			bypassed = !prefills[again.NVExt.WorkerID.Prefill]
			return bypassed == on
		})
		if bypassed != on {
			t.Errorf("on %v: bypassed %v", on, bypassed)
		}
		var worker uint64
		for worker = range prefills {
		}
		if named, text := ask(prompt+"and then?", fmt.Sprintf(`,"prefill_worker_id":%d`, worker)); named.NVExt.WorkerID.Prefill != worker {
			t.Errorf("on %v: a request that names its prefill worker: %s", on, text)
		}
		if other, _ := ask(strings.Repeat("something else ", 20), ""); !prefills[other.NVExt.WorkerID.Prefill] {
			t.Errorf("on %v: a new prompt skipped the prefill workers", on)
		}
	}
}

// With the policy for it, what decides is how much prompt work waits at the prefill worker.
func TestBusyPrefillWorkersAreSkipped(t *testing.T) {
	k := startKV(t, func(r *Routing) {
		threshold := 0.0
		r.KV.ConditionalDisagg, r.KV.ConditionalPolicy, r.KV.PrefillBusyThreshold = true, "prefill_load", &threshold
	})
	worker := k.leg(card.PrefillWorker)
	k.leg(card.DecodeWorker)
	waitFor(t, func() bool {
		return k.frontend.Ready("m") && k.metric("dynamo_component_router_worker_registered") == 2
	})
	if at := k.ask("idle").NVExt.WorkerID.Prefill; at != worker {
		t.Errorf("with an idle prefill worker the prompt was computed by %d", at)
	}
	var prefill *kvRouting
	for _, entry := range k.frontend.manager.Served() {
		if entry.Set.Key.Role == card.PrefillWorker {
			prefill = entry.Server.router.(*kvRouting)
		}
	}
	waiting, err := prefill.Place(t.Context(), &inference.Request{ID: "waits", TokenIDs: make([]uint32, 100)}, router.Attempt{Phase: router.Prefill})
	if err != nil {
		t.Fatal(err)
	}
	if at := k.ask("busy").NVExt.WorkerID.Prefill; at == worker {
		t.Error("a busy prefill worker was not skipped")
	}
	waiting.End(nil)
	if at := k.ask("idle again").NVExt.WorkerID.Prefill; at != worker {
		t.Errorf("with a prefill worker that is idle again the prompt was computed by %d", at)
	}
}
