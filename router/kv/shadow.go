package kv

import (
	"math/rand/v2"

	"signalbox/router/cost"
	"signalbox/router/selection"
)

// shadow is a policy that decides along without effect. The router's mutex guards it.
type shadow struct {
	policy selection.Policy
	table  selection.Table // memory of its own, so that it changes nothing
	stats  ShadowStats
}

// ShadowStats compare a policy that decides along with the one in force, over the requests that the latter chose for.
type ShadowStats struct {
	// Agreed and Differed count choices, Failed those where the shadow returned an error.
	Agreed, Differed, Failed uint64
	// ActiveCached and ShadowCached sum the prompt tokens that each one's choice holds in its cache.
	ActiveCached, ShadowCached uint64
	// ActiveRegret and ShadowRegret sum, in blocks, by how much each one's choice is dearer than the other's under the router's own
	// cost model.
	ActiveRegret, ShadowRegret float64
}

func newShadow(policy selection.Policy, random rand.Source) *shadow {
	s := &shadow{policy: policy}
	s.table.Random = rand.New(random)
	return s
}

// consult lets the shadow choose from the table from which row was just chosen.
func (s *shadow) consult(r *Router, row int) {
	t := &r.table
	random, costs, probabilities := s.table.Random, s.table.Costs, s.table.Probabilities
	s.table = *t
	s.table.Random, s.table.Costs, s.table.Probabilities = random, costs[:0], probabilities[:0]
	chosen, err := s.policy.Select(&s.table)
	if err != nil || s.table.Check(chosen) != nil {
		s.stats.Failed++
		return
	}
	cached := func(row int) uint64 {
		return uint64(min(cost.CachedTokens(r.weights.Effective(t.Rows[row].Overlap), r.options.BlockSize), t.Prompt.InputTokens))
	}
	s.stats.ActiveCached += cached(row)
	s.stats.ShadowCached += cached(chosen)
	if chosen == row {
		s.stats.Agreed++
		return
	}
	s.stats.Differed++
	model := cost.NewModel(selection.Overridden(t.Weights, t.Override), t.Prompt, t.Floor())
	dearer := model.Cost(&t.Rows[chosen].Candidate) - model.Cost(&t.Rows[row].Candidate)
	s.stats.ShadowRegret += max(0, dearer)
	s.stats.ActiveRegret += max(0, -dearer)
}

// Shadow returns the comparison with the policy that decides along; false without one.
func (r *Router) Shadow() (ShadowStats, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.shadow == nil {
		return ShadowStats{}, false
	}
	return r.shadow.stats, true
}
