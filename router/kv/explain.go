package kv

import (
	"math"

	"signalbox/router"
	"signalbox/router/cost"
	"signalbox/router/selection"
)

// explain records the choice that was just made in r.table. The caller holds the mutex.
func (r *Router) explain(snapshot *router.Snapshot, how terms, p *prompt, row int, reason string) *router.Decision {
	t := &r.table
	weights := selection.Overridden(t.Weights, t.Override)
	d := &router.Decision{
		Mode: "kv", Policy: r.options.PolicyName, Reason: reason, InputTokens: p.tokens,
		RequestBlocks: cost.Blocks(p.tokens, r.options.BlockSize), Temperature: weights.Temperature,
		Winner: row, Candidates: make([]router.Candidate, 0, len(t.Rows)),
	}
	if reason == "" {
		if reasoner, ok := r.options.Policy.(selection.Reasoner); ok {
			d.Reason = reasoner.Reason()
		}
	}
	explainer, explains := r.options.Policy.(selection.Explainer)
	if reason != "" || !explains {
		// The policy did not choose or has no terms: those of the cost model say what the ranks are worth all the same.
		explainer = &costModel{cost.NewModel(weights, t.Prompt, t.Floor())}
	}
	for i := range t.Rows {
		candidate := r.candidate(&t.Rows[i], explainer.Explain(t, i))
		if reason == "" && !explains {
			candidate.PrefillCost, candidate.Credit, candidate.DecodeCost, candidate.RequestCost, candidate.Cost = 0, 0, 0, 0, 0
		}
		if i < len(t.Costs) && !math.IsNaN(t.Costs[i]) {
			candidate.Cost = t.Costs[i]
		}
		if i < len(t.Probabilities) {
			candidate.Probability = t.Probabilities[i]
		}
		d.Candidates = append(d.Candidates, candidate)
	}
	d.Excluded = r.excluded(snapshot, how)
	return d
}

// costModel explains with the built-in costs.
type costModel struct{ model cost.Model }

// Explain implements selection.Explainer.
func (m *costModel) Explain(table *selection.Table, row int) cost.Terms {
	return m.model.Terms(&table.Rows[row].Candidate)
}

func (r *Router) candidate(row *selection.Row, terms cost.Terms) router.Candidate {
	return router.Candidate{
		WorkerID: row.Rank.WorkerID, Rank: row.Rank.DPRank,
		DeviceBlocks: float64(row.Overlap.Device), HostBlocks: float64(row.Overlap.Host), DiskBlocks: float64(row.Overlap.Disk),
		SharedBlocks: float64(terms.SharedBlocks), CachedTokens: cost.CachedTokens(r.weights.Effective(row.Overlap), r.options.BlockSize),
		ActivePrefillTokens: row.Load.ActivePrefillTokens, ActiveDecodeBlocks: row.Load.ActiveDecodeBlocks,
		AdditionalActiveBlocks: row.Load.AdditionalActiveBlocks, ActiveRequests: row.Load.ActiveRequests,
		PrefillCost: terms.Prefill, Credit: terms.Credit, DecodeCost: terms.Decode, RequestCost: terms.Requests,
		TaintMultiplier: terms.Multiplier, Cost: terms.Total,
	}
}

// excluded lists the workers that were not looked at. With a pin that is everybody else, which goes without saying.
func (r *Router) excluded(snapshot *router.Snapshot, how terms) []router.Exclusion {
	if how.pinned {
		return nil
	}
	var list []router.Exclusion
	considered := 0 // in r.refs, which are in order of the workers
	for i := range snapshot.Workers {
		if considered < len(r.refs) && r.refs[considered].Worker == int32(i) {
			for considered < len(r.refs) && r.refs[considered].Worker == int32(i) {
				considered++
			}
			continue
		}
		list = append(list, router.Exclusion{WorkerID: snapshot.Workers[i].ID, Reason: r.whyNot(snapshot, i)})
	}
	return list
}

func (r *Router) whyNot(snapshot *router.Snapshot, index int) string {
	worker, state := &snapshot.Workers[index], snapshot.State(index)
	request := r.table.Request
	switch _, _, known := worker.Ranks(); {
	case state.Down():
		return "marked down"
	case !known:
		return "its ranks are not known yet"
	case !worker.HasAllTaints(request.Routing.RequiredTaints):
		return "lacks a required taint"
	case state.Overloaded():
		return "overloaded"
	case !allowed(request.Routing.AllowedWorkerIDs, worker.ID):
		return "not in the allowed set"
	}
	return "failed this request before"
}
