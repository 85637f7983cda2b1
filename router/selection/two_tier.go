package selection

import (
	"fmt"
	"math"

	"signalbox/router/cost"
)

// TwoTier looks at load first and at the cache second, instead of adding both up: when the ranks' active requests are far apart
// it takes the idlest; otherwise, when some rank holds enough of the prompt, the one that holds most; otherwise the idlest.
type TwoTier struct {
	TwoTierParameters
	tier string
}

// TwoTierParameters tune the gates between the tiers; all comparisons are strict.
type TwoTierParameters struct {
	// CacheThreshold is the share of the prompt's blocks that a rank must hold for the cache to decide; 0 to 1.
	CacheThreshold float64
	// BalanceAbsThreshold and BalanceRelThreshold are the spread of active requests, and the ratio of the largest to the
	// smallest, that together make load decide. The ratio is at least 1.
	BalanceAbsThreshold uint64
	BalanceRelThreshold float64
}

// DefaultTwoTier returns the parameters of a policy that configures none.
func DefaultTwoTier() TwoTierParameters {
	return TwoTierParameters{CacheThreshold: 0.5, BalanceAbsThreshold: 32, BalanceRelThreshold: 1.1}
}

// Validate checks the ranges.
func (p *TwoTierParameters) Validate() error {
	if !(p.CacheThreshold >= 0 && p.CacheThreshold <= 1) {
		return fmt.Errorf("cache_threshold must be a finite number between 0.0 and 1.0")
	}
	if !(p.BalanceRelThreshold >= 1) || math.IsInf(p.BalanceRelThreshold, 0) {
		return fmt.Errorf("balance_rel_threshold must be a finite number greater than or equal to 1.0")
	}
	return nil
}

// Select implements Policy.
func (p *TwoTier) Select(table *Table) (int, error) {
	most, least, overlap := uint64(0), uint64(math.MaxUint64), uint32(0)
	for i := range table.Rows {
		row := &table.Rows[i]
		most, least = max(most, row.Load.ActiveRequests), min(least, row.Load.ActiveRequests)
		overlap = max(overlap, row.Overlap.Device)
	}
	table.Costs, table.Probabilities = table.Costs[:0], table.Probabilities[:0]
	if most-least > p.BalanceAbsThreshold && float64(most) > p.BalanceRelThreshold*float64(least) {
		p.tier = "load is uneven: fewest active requests"
		return p.first(table, func(row *Row) (uint64, uint64) { return row.Load.ActiveRequests, 0 }), nil
	}
	blocks := cost.Blocks(table.Prompt.InputTokens, table.Prompt.BlockSize)
	if float64(overlap)/float64(blocks) > p.CacheThreshold {
		p.tier = "largest cached prefix"
		return p.first(table, func(row *Row) (uint64, uint64) {
			return math.MaxUint64 - uint64(row.Overlap.Device), row.Load.ActiveRequests
		}), nil
	}
	p.tier = "too little cached: fewest active requests"
	return p.first(table, func(row *Row) (uint64, uint64) { return row.Load.ActiveRequests, 0 }), nil
}

// first returns the row with the least key; equals have equal chance.
func (p *TwoTier) first(table *Table, key func(*Row) (uint64, uint64)) int {
	best, ties := 0, 1
	major, minor := key(&table.Rows[0])
	for i := 1; i < len(table.Rows); i++ {
		a, b := key(&table.Rows[i])
		switch {
		case a < major || a == major && b < minor:
			best, ties, major, minor = i, 1, a, b
		case a == major && b == minor:
			ties++
			if table.Random.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return best
}

// Reason implements Reasoner.
func (p *TwoTier) Reason() string { return p.tier }
