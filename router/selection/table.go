package selection

import (
	"fmt"
	"math/rand/v2"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/cost"
)

// Policy chooses among the eligible candidates of a request. One instance serves one pool and is called serially, so that it
// may keep state without locks. It must neither keep the table nor change its rows.
type Policy interface {
	// Select returns the row of the winner.
	Select(table *Table) (row int, err error)
}

// Explainer is a Policy that can say what it made of a candidate of the table it chose from last.
type Explainer interface {
	// Explain returns the terms of a row's cost.
	Explain(table *Table, row int) cost.Terms
}

// Reasoner is a Policy that can say why its last winner won.
type Reasoner interface {
	Reason() string
}

// Row is one candidate: a rank that the host found eligible.
type Row struct {
	Rank   inference.Rank
	Worker *router.Worker
	cost.Candidate
}

// Table is what a policy chooses from. Rows are in order of worker id and rank; there is at least one. The router reuses it.
type Table struct {
	Rows []Row
	// Prompt is what is to be placed, Request the whole of it.
	Prompt  cost.Prompt
	Request *inference.Request
	// Weights are the router's, Override what the request changes about them.
	Weights  cost.Weights
	Override *inference.RouterOverride
	// Preferred is the row that soft session affinity would like, or -1.
	Preferred int
	// Random is the pool's source of chance.
	Random *rand.Rand
	// Costs is the policy's own memory: what it fills in for a row is shown when the decision is explained.
	Costs         []float64
	Probabilities []float64
}

// Floor returns the least active prefill of all candidates.
func (t *Table) Floor() uint64 {
	if len(t.Rows) == 0 {
		return 0
	}
	floor := t.Rows[0].Load.ActivePrefillTokens
	for i := range t.Rows[1:] {
		floor = min(floor, t.Rows[1+i].Load.ActivePrefillTokens)
	}
	return floor
}

// Overridden returns the weights with a request's changes.
func Overridden(weights cost.Weights, override *inference.RouterOverride) cost.Weights {
	if override == nil {
		return weights
	}
	for _, change := range []struct {
		to   *float64
		from *float64
	}{
		{&weights.OverlapCredit, override.OverlapScoreCredit},
		{&weights.PrefillLoadScale, override.PrefillLoadScale},
		{&weights.Temperature, override.RouterTemperature},
		{&weights.SharedMultiplier, override.SharedCacheMultiplier},
	} {
		if change.from != nil {
			*change.to = *change.from
		}
	}
	return weights
}

// Check returns the error of a policy that answered with a row that is not there.
func (t *Table) Check(row int) error {
	if row >= 0 && row < len(t.Rows) {
		return nil
	}
	return fmt.Errorf("picker returned candidate row %d, but the candidate table contains %d rows", row, len(t.Rows))
}
