package frontend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"signalbox/discovery"
	"signalbox/model/card"
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
