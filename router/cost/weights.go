package cost

import (
	"fmt"
	"math"
)

// Weights tune the cost. [DefaultWeights] are the real router's.
type Weights struct {
	// OverlapCredit is the credit per block that a rank holds on the device. At least 0.
	OverlapCredit float64
	// OverlapCreditDecay reduces that credit on ranks with more prompt work than the idlest candidate; 0 turns it off.
	OverlapCreditDecay float64
	// PrefillLoadScale weighs prompt work against decode blocks. At least 0.
	PrefillLoadScale float64
	// ActiveRequestWeight is the cost of each active request, in blocks. At least 0.
	ActiveRequestWeight float64
	// HostWeight, DiskWeight and SharedMultiplier are the credit per block found in host memory, on disk or beyond, and in the
	// fleet's shared cache. 0 to 1.
	HostWeight, DiskWeight, SharedMultiplier float64
	// Temperature 0 takes the lowest cost; above, costs become odds. At least 0.
	Temperature float64
}

// DefaultWeights returns the defaults of the router library.
func DefaultWeights() Weights {
	return Weights{OverlapCredit: 1, PrefillLoadScale: 1, HostWeight: 0.75, DiskWeight: 0.25}
}

// Validate checks the ranges. Messages begin with the setting's name in configuration files.
func (w *Weights) Validate() error {
	if w.OverlapCredit < 0 || math.IsInf(w.OverlapCredit, 0) || math.IsNaN(w.OverlapCredit) {
		return fmt.Errorf("overlap_score_credit must be a finite, non-negative number")
	}
	for _, setting := range []struct {
		name  string
		value float64
		most  float64
	}{
		{"overlap_score_credit_decay", w.OverlapCreditDecay, math.Inf(1)},
		{"prefill_load_scale", w.PrefillLoadScale, math.Inf(1)},
		{"decode_active_request_weight", w.ActiveRequestWeight, math.MaxFloat64},
		{"host_cache_hit_weight", w.HostWeight, 1},
		{"disk_cache_hit_weight", w.DiskWeight, 1},
		{"shared_cache_multiplier", w.SharedMultiplier, 1},
		{"router_temperature", w.Temperature, math.Inf(1)},
	} {
		if setting.value >= 0 && setting.value <= setting.most {
			continue
		}
		switch {
		case setting.most == 1:
			return fmt.Errorf("%s must be between 0 and 1", setting.name)
		case setting.most == math.MaxFloat64:
			return fmt.Errorf("%s must be a finite number greater than or equal to 0", setting.name)
		}
		return fmt.Errorf("%s must be greater than or equal to 0", setting.name)
	}
	return nil
}
