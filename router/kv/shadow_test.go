package kv_test

import (
	"errors"
	"testing"

	"signalbox/kvhash"
	"signalbox/router"
	"signalbox/router/kv"
	"signalbox/router/selection"
)

// last chooses the last row; refuses chooses none.
type last struct{}

func (last) Select(table *selection.Table) (int, error) {
	table.Costs = append(table.Costs, make([]float64, len(table.Rows))...)
	return len(table.Rows) - 1, nil
}

type refuses struct{}

func (refuses) Select(*selection.Table) (int, error) { return 0, errors.New("no") }

// A policy that decides along is compared with the one in force, and changes nothing.
func TestShadowPolicies(t *testing.T) {
	index := &shelf{}
	run := func(shadow selection.Policy) (placed []uint64, stats kv.ShadowStats, there bool) {
		b := newBench(t, numbered(3), func(o *kv.Options) { o.Index, o.Shadow = index, shadow })
		warm := words(1, 40)
		index.put(1, 0, locals(t, kvhash.Scope{BlockSize: blockSize}, warm))
		for i := range 6 {
			request := b.request(warm)
			if i == 5 {
				pinned := uint64(2) // nobody chooses here
				request.Routing.BackendInstanceID = &pinned
			}
			p := b.place(request, router.Attempt{Explain: true})
			placed = append(placed, p.WorkerID)
			p.End(nil)
		}
		stats, there = b.Shadow()
		return placed, stats, there
	}
	alone, _, there := run(nil)
	if there {
		t.Error("there is a comparison without a second policy")
	}
	along, stats, _ := run(last{})
	for i := range alone {
		if alone[i] != along[i] {
			t.Errorf("request %d went to %d instead of %d because of a policy that decides along", i, along[i], alone[i])
		}
	}
	// Worker 1 holds all 40 tokens, worker 3 nothing: ten blocks each time.
	if want := (kv.ShadowStats{Differed: 5, ActiveCached: 200, ShadowRegret: 50}); stats != want {
		t.Errorf("%+v, want %+v", stats, want)
	}
	if _, stats, _ = run(&selection.Default{}); stats != (kv.ShadowStats{Agreed: 5, ActiveCached: 200, ShadowCached: 200}) {
		t.Errorf("the same policy: %+v", stats)
	}
	if _, stats, _ = run(refuses{}); stats != (kv.ShadowStats{Failed: 5}) {
		t.Errorf("one that refuses: %+v", stats)
	}
}
