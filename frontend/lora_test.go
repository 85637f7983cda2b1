package frontend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/model/card"
	"signalbox/router"
)

// addAdapter registers an adapter at a worker that is there.
func (f *fixture) addAdapter(worker uint64, name string) {
	f.t.Helper()
	c := card.Card{DisplayName: name, Slug: card.Slug(name), BlockSize: 4, ModelType: card.Chat | card.Completions, ModelInput: card.TokensInput,
		WorkerType: card.AggregatedWorker, Runtime: card.DefaultRuntimeConfig(), LoRA: &card.LoRA{Name: name}}
	text, err := c.Marshal()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, backend := range f.backends {
		if backend.InstanceID() == worker {
			err = discovery.Publish(context.Background(), backend, &discovery.Model{Namespace: "n", Component: "backend", Endpoint: "generate", InstanceID: worker,
				Card: text, Suffix: card.Slug(name)})
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) waitModel(name string) {
	f.t.Helper()
	waitFor(f.t, func() bool { return f.frontend.Ready(name) })
}

// TestAdaptersAreRoutedWhereTheyAreLoaded: of three workers one has the adapter. Its requests all go there, with the adapter's name;
// the base model's go to all.
func TestAdaptersAreRoutedWhereTheyAreLoaded(t *testing.T) {
	f := start(t, nil)
	var ids []uint64
	for range 3 {
		ids = append(ids, f.engine(nil))
	}
	f.addAdapter(ids[1], "poet")
	f.waitModel("poet")
	f.waitReady(3)
	if names := (catalog{f.frontend}).List(); len(names) != 2 || names[0].Name != "m" || names[1].Name != "poet" {
		t.Errorf("listed: %v", names)
	}
	workers := func(model string) (seen []uint64) {
		for range 6 {
			status, text := f.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"where","max_tokens":2,"nvext":{"extra_fields":["worker_id"]}}`, model))
			if status != 200 || !strings.Contains(text, fmt.Sprintf(`"model":%q`, model)) {
				t.Fatalf("status %d, %s", status, text)
			}
			for _, id := range ids {
				if strings.Contains(text, discoveryID(id)) && !slices.Contains(seen, id) {
					seen = append(seen, id)
				}
			}
		}
		return seen
	}
	if seen := workers("poet"); !slices.Equal(seen, ids[1:2]) {
		t.Errorf("the adapter was served by %v, want %v", seen, ids[1:2])
	}
	if seen := workers("m"); len(seen) != 3 {
		t.Errorf("the base model was served by %v", seen)
	}
}

// TestAdaptersHaveIdentitiesOfTheirOwn: what the base model has cached of a prompt is nothing to the adapter, and the other way round.
func TestAdaptersHaveIdentitiesOfTheirOwn(t *testing.T) {
	k := startKV(t, nil)
	id := k.kvEngine(nil)
	k.addAdapter(id, "poet")
	k.waitModel("m")
	k.waitModel("poet")
	rate := func(model string) float64 {
		status, text := k.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":1,"nvext":{"extra_fields":["timing"]}}`, model, prefix("the train")))
		at := strings.Index(text, `"kv_hit_rate":`)
		if status != 200 || at < 0 {
			t.Fatalf("status %d, %s", status, text)
		}
		var value float64
		if _, err := fmt.Sscanf(text[at+len(`"kv_hit_rate":`):], "%g", &value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	for _, model := range []string{"m", "poet"} {
		if first := rate(model); first != 0 {
			t.Errorf("%s: a prompt that it has never seen has a hit rate of %v", model, first)
		}
		if again := rate(model); again < 0.9 {
			t.Errorf("%s: the same prompt again has a hit rate of %v", model, again)
		}
	}
}

// A worker serves its base model and its adapters with one engine: each counts what the others keep busy, from one index that is fed
// once, and what an adapter's worker holds is not given to others.
func TestAdaptersShareTheLoadOfTheirBaseModel(t *testing.T) {
	k := startKV(t, nil)
	ids := []uint64{k.kvEngine(nil), k.kvEngine(nil), k.kvEngine(nil)}
	k.waitModel("m")
	for _, id := range ids[:2] {
		k.addAdapter(id, "poet")
	}
	k.addAdapter(ids[2], "critic")
	k.waitModel("poet")
	k.waitModel("critic")
	routers := make(map[string]router.Router)
	waitFor(t, func() bool {
		for _, entry := range k.frontend.manager.Served() {
			if want := map[string]int{"m": 3, "poet": 2, "critic": 1}[entry.Set.Key.Model]; len(entry.Set.Members) == want {
				routers[entry.Set.Key.Model] = entry.Server.router
			}
		}
		return len(routers) == 3
	})
	place := func(model, id string, change func(*inference.Request)) *router.Placement {
		t.Helper()
		request := &inference.Request{ID: id, TokenIDs: make([]uint32, 4096)}
		if model != "m" {
			request.Routing.LoRAName = model
		}
		if change != nil {
			change(request)
		}
		placement, err := routers[model].Place(t.Context(), request, router.Attempt{})
		if err != nil {
			t.Fatal(err)
		}
		if request.Routing.AllowedWorkerIDs != nil && change == nil {
			t.Error("the request was changed")
		}
		return placement
	}
	// One big request of each model keeps one worker busy: together they take all three.
	critic := place("critic", "1", nil)
	base := place("m", "2", nil)
	poet := place("poet", "3", nil)
	busy := []uint64{critic.WorkerID, base.WorkerID, poet.WorkerID}
	if critic.WorkerID != ids[2] {
		t.Errorf("the critic went to %d, want %d", critic.WorkerID, ids[2])
	}
	slices.Sort(busy)
	if len(slices.Compact(busy)) != 3 {
		t.Errorf("three requests went to %v", busy)
	}
	k.wires.mu.Lock()
	feeds := len(k.wires.feeds)
	k.wires.mu.Unlock()
	if feeds != 1 {
		t.Errorf("%d indexes are fed, want 1", feeds)
	}
	poet.End(nil)
	for i := range 4 {
		if at := place("m", fmt.Sprint("next ", i), nil); at.WorkerID != poet.WorkerID {
			t.Errorf("the idle worker is %d, and the base model's request went to %d", poet.WorkerID, at.WorkerID)
		} else {
			at.End(nil)
		}
	}
	base.End(nil)
	critic.End(nil)
	// A client's pin is stronger than the list of who has the adapter, a list of the client's is not.
	pinned := place("poet", "pinned", func(r *inference.Request) { r.Routing.DecodeWorkerID = &ids[2] })
	if pinned.WorkerID != ids[2] {
		t.Errorf("a request for %d went to %d", ids[2], pinned.WorkerID)
	}
	pinned.End(nil)
	listed := place("poet", "listed", func(r *inference.Request) { r.Routing.AllowedWorkerIDs = ids[1:] })
	if listed.WorkerID != ids[1] {
		t.Errorf("of %v, the one with the adapter is %d, and %d was chosen", ids[1:], ids[1], listed.WorkerID)
	}
	listed.End(nil)
	for _, load := range routers["m"].(*kvRouting).AppendLoads(nil) {
		if load.ActiveRequests != 0 || load.ActivePrefillTokens != 0 {
			t.Errorf("left behind: %+v", load)
		}
	}
}
