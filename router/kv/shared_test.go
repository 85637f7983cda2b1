package kv_test

import (
	"slices"
	"testing"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/router"
	"signalbox/router/cost"
	"signalbox/router/kv"
)

// warehouse is a shared cache that holds the same blocks of every prompt.
type warehouse struct {
	runs  []cost.Range
	asked [][]uint32
}

func (w *warehouse) AppendRuns(list []cost.Range, tokens []uint32) []cost.Range {
	w.asked = append(w.asked, slices.Clone(tokens))
	return append(list, w.runs...)
}

// stepper keeps the steps of the last placement.
type stepper struct {
	kv.Observer
	last kv.Steps
}

func (s *stepper) Decided(_ *router.Placement, steps *kv.Steps) { s.last = *steps }

// What the shared cache holds counts for every worker, but only where it does not have it by itself.
func TestSharedBlocksCountBeyondTheWorkersOwn(t *testing.T) {
	index, store, steps := &shelf{}, &warehouse{runs: []cost.Range{{Start: 0, End: 3}, {Start: 5, End: 7}}}, &stepper{}
	b := newBench(t, numbered(2), func(o *kv.Options) {
		o.Index, o.Shared, o.Observer = index, store, steps
		o.Config.SharedCacheMultiplier = 0.5
	})
	prompt := words(1, 8*blockSize+1)
	index.put(1, 0, locals(t, kvhash.Scope{BlockSize: blockSize}, prompt)[:2])
	request := b.request(prompt)
	request.Routing.QueryOnly = true
	p := b.place(request, router.Attempt{Explain: true})
	want := []struct {
		shared, credit float64
	}{{3, 2 + 0.5*3}, {5, 0.5 * 5}}
	for i, candidate := range p.Decision.Candidates {
		if candidate.SharedBlocks != want[i].shared || candidate.Credit != want[i].credit {
			t.Errorf("worker %d: %v shared blocks, credit %v; want %v, %v", candidate.WorkerID, candidate.SharedBlocks, candidate.Credit, want[i].shared, want[i].credit)
		}
	}
	if p.WorkerID != 1 || p.CachedTokens != 2*blockSize {
		t.Errorf("worker %d with %d tokens cached, want 1 with %d", p.WorkerID, p.CachedTokens, 2*blockSize)
	}
	if s := steps.last.Shared; !s.Asked || s.Blocks != 5 || s.Of != 8 || s.Beyond != 3 {
		t.Errorf("steps: %+v", s)
	}
	if !slices.Equal(store.asked[0], prompt) {
		t.Errorf("asked about %v", store.asked[0])
	}
}

// A request may weigh the shared cache differently.
func TestSharedMultiplierOfARequest(t *testing.T) {
	store := &warehouse{runs: []cost.Range{{Start: 0, End: 4}}}
	b := newBench(t, numbered(1), func(o *kv.Options) { o.Shared = store })
	request, none := b.request(words(1, 4*blockSize)), 0.25
	request.RouterOverride = &inference.RouterOverride{SharedCacheMultiplier: &none}
	if p := b.place(request, router.Attempt{Explain: true}); p.Decision.Candidates[0].Credit != 1 {
		t.Errorf("credit %v, want 1", p.Decision.Candidates[0].Credit)
	}
}

// A tenant's prompts are its own.
func TestSaltedPromptsAreNotShared(t *testing.T) {
	store, steps := &warehouse{runs: []cost.Range{{Start: 0, End: 4}}}, &stepper{}
	b := newBench(t, numbered(1), func(o *kv.Options) { o.Shared, o.Observer, o.Config.SharedCacheMultiplier = store, steps, 1 })
	request := b.request(words(1, 4*blockSize))
	request.Routing.CacheSalt, request.Routing.QueryOnly = "tenant", true
	p := b.place(request, router.Attempt{Explain: true})
	if len(store.asked) != 0 || p.Decision.Candidates[0].SharedBlocks != 0 || steps.last.Shared.Blocks != 0 || !steps.last.Shared.Asked {
		t.Errorf("asked %d times, %v shared blocks", len(store.asked), p.Decision.Candidates[0].SharedBlocks)
	}
	request.Routing.CacheSalt = ""
	if b.place(request, router.Attempt{Explain: true}).Decision.Candidates[0].SharedBlocks != 4 {
		t.Error("the next prompt is not shared either")
	}
}

// Cards of 1.6 leave the multiplier out or null, and mean a half where there is a shared cache.
func TestSharedMultiplierOfACard(t *testing.T) {
	for text, want := range map[string]float64{
		`{}`: 0, `{"shared_cache_type":"none","shared_cache_multiplier":null}`: 0,
		`{"shared_cache_type":"hicache"}`: 0.5, `{"shared_cache_type":"hicache","shared_cache_multiplier":null}`: 0.5,
		`{"shared_cache_type":"hicache","shared_cache_multiplier":0}`: 0, `{"shared_cache_type":"hicache","shared_cache_multiplier":0.75}`: 0.75,
	} {
		config, err := kv.ParseConfig([]byte(text))
		if err != nil || config.SharedCacheMultiplier != want {
			t.Errorf("%s: multiplier %v, %v; want %v", text, config.SharedCacheMultiplier, err, want)
		}
	}
}
