package frontend

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"signalbox/model/card"
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
