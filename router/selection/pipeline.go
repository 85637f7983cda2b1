package selection

import (
	"math"

	"signalbox/inference"
	"signalbox/router/cost"
)

// Filter removes candidates.
type Filter interface {
	// Keep tells whether the row stays.
	Keep(table *Table, row *Row) bool
}

// Scorer prices candidates; lower is better.
type Scorer interface {
	// Score returns the row's cost. It must be finite, and so must its sum with the other scorers'.
	Score(table *Table, row *Row) float64
}

// Picker chooses by cost.
type Picker interface {
	// Pick returns an index of table.Rows; table.Costs holds a cost for each.
	Pick(table *Table) int
}

// Pipeline is a policy put together from parts: filters first, then the sum of all scorers, then the picker.
type Pipeline struct {
	Filters []Filter
	Scorers []Scorer
	// Picker nil takes the lowest cost, ties with equal chance.
	Picker Picker

	kept Table
	from []int
}

// Select implements Policy.
func (p *Pipeline) Select(table *Table) (int, error) {
	rows, from := p.kept.Rows[:0], p.from[:0]
	costs, probabilities := p.kept.Costs[:0], p.kept.Probabilities[:0]
	p.kept = *table
	p.kept.Preferred = -1
	for i := range table.Rows {
		if !p.keep(table, &table.Rows[i]) {
			continue
		}
		if i == table.Preferred {
			p.kept.Preferred = len(rows)
		}
		rows, from = append(rows, table.Rows[i]), append(from, i)
	}
	p.kept.Rows, p.from, p.kept.Probabilities = rows, from, probabilities
	if len(rows) == 0 {
		return 0, inference.Errorf(inference.Unavailable, "all eligible workers were rejected by policy filters")
	}
	for i := range rows {
		sum := 0.0
		for s, scorer := range p.Scorers {
			sum += scorer.Score(&p.kept, &rows[i])
			if math.IsNaN(sum) || math.IsInf(sum, 0) {
				return 0, inference.Errorf(inference.Unroutable, "scorer %d produced a non-finite cost for candidate row %d", s, i)
			}
		}
		costs = append(costs, sum)
	}
	p.kept.Costs = costs
	row := 0
	if p.Picker != nil {
		row = p.Picker.Pick(&p.kept)
	} else {
		row, _ = cost.Lowest(costs, table.Random)
	}
	if err := p.kept.Check(row); err != nil {
		return 0, inference.Errorf(inference.Unroutable, "%v", err)
	}
	table.Costs, table.Probabilities = table.Costs[:0], table.Probabilities[:0]
	for range table.Rows {
		table.Costs = append(table.Costs, math.NaN())
	}
	for i, original := range from {
		table.Costs[original] = costs[i]
	}
	return from[row], nil
}

func (p *Pipeline) keep(table *Table, row *Row) bool {
	for _, filter := range p.Filters {
		if !filter.Keep(table, row) {
			return false
		}
	}
	return true
}
