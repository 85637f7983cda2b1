package selection

import (
	"fmt"

	"signalbox/router/cost"
)

// Default is the built-in policy: the lowest cost of router/cost, ties with equal chance, or sampling at a temperature.
type Default struct {
	// Weights replace the router's own when set.
	Weights *cost.Weights

	model  cost.Model
	reason outcome
}

// outcome is how a choice came about, kept as numbers: words are made only when somebody asks.
type outcome struct {
	ties        int
	temperature float64
}

// Select implements Policy.
func (d *Default) Select(table *Table) (int, error) {
	weights := table.Weights
	if d.Weights != nil {
		weights = *d.Weights
	}
	weights = Overridden(weights, table.Override)
	floor := uint64(0)
	if weights.OverlapCreditDecay > 0 {
		floor = table.Floor()
	}
	d.model = cost.NewModel(weights, table.Prompt, floor)
	table.Costs = table.Costs[:0]
	for i := range table.Rows {
		table.Costs = append(table.Costs, d.model.Cost(&table.Rows[i].Candidate))
	}
	table.Probabilities = table.Probabilities[:0]
	if weights.Temperature > 0 {
		table.Probabilities = cost.AppendProbabilities(table.Probabilities, table.Costs, weights.Temperature)
		d.reason = outcome{temperature: weights.Temperature}
		return cost.Sample(table.Probabilities, table.Random.Float64()), nil
	}
	row, ties := cost.Lowest(table.Costs, table.Random)
	d.reason = outcome{ties: ties}
	return row, nil
}

// Explain implements Explainer.
func (d *Default) Explain(table *Table, row int) cost.Terms {
	return d.model.Terms(&table.Rows[row].Candidate)
}

// Reason implements Reasoner.
func (d *Default) Reason() string {
	switch {
	case d.reason.temperature > 0:
		return fmt.Sprintf("sampled at temperature %g", d.reason.temperature)
	case d.reason.ties > 1:
		return fmt.Sprintf("lowest cost, one of %d equals", d.reason.ties)
	}
	return "lowest cost"
}
