// Package disagg decides whether a request of a disaggregated model needs a prefill worker of its own, or whether a decode worker
// that holds most of the prompt had better compute the rest itself.
//
// All comparisons are strict, and what is not known speaks for the normal path over the prefill worker.
package disagg

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Policy says which observations may send a request past the prefill workers.
type Policy string

// The policies.
const (
	// ISLBounding looks at what the decode worker would have to compute.
	ISLBounding Policy = "isl_bounding"
	// PrefillLoad looks at how busy the prefill worker is that the request would go to.
	PrefillLoad Policy = "prefill_load"
	// ISLOrLoad takes either reason.
	ISLOrLoad Policy = "isl_or_load"
)

// Config tunes the decision. The zero Config never bypasses.
type Config struct {
	Enabled bool
	Policy  Policy
	// UncachedTokens and UncachedRatio bound what the decode worker may have to compute: fewer tokens than that, and less than that
	// part of the prompt.
	UncachedTokens uint64
	UncachedRatio  float64
	// PrefillBusy is the fraction of its tokens per step above which a prefill worker is busy; nil where no policy asks.
	PrefillBusy *float64
	// DecodeBusy is the fraction of its KV blocks above which a decode worker must not take the prompt too; nil for no such guard.
	DecodeBusy *float64
}

// Default returns the configuration of a router that switches the decision on and says nothing else.
func Default() Config {
	return Config{Enabled: true, Policy: ISLBounding, UncachedTokens: 2048, UncachedRatio: 0.7}
}

// settings are the members of the JSON form.
type settings struct {
	Policy      *Policy  `json:"policy"`
	Tokens      *uint64  `json:"eff_isl_threshold"`
	Ratio       *float64 `json:"eff_isl_ratio_threshold"`
	PrefillBusy *float64 `json:"prefill_busy_threshold"`
	DecodeBusy  *float64 `json:"decode_busy_threshold"`
}

// Parse reads the JSON form over the defaults. The error continues a sentence that begins with the setting's name.
func Parse(text []byte) (Config, error) {
	config := Default()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return config, fmt.Errorf("must be a JSON object")
	}
	var unknown []string
	for name := range members {
		if !slices.Contains([]string{"policy", "eff_isl_threshold", "eff_isl_ratio_threshold", "prefill_busy_threshold", "decode_busy_threshold"}, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return config, fmt.Errorf("has unknown field(s): %s", strings.Join(unknown, ", "))
	}
	var read settings
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&read); err != nil {
		return config, fmt.Errorf("cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if read.Policy != nil {
		config.Policy = *read.Policy
	}
	if read.Tokens != nil {
		config.UncachedTokens = *read.Tokens
	}
	if read.Ratio != nil {
		config.UncachedRatio = *read.Ratio
	}
	config.PrefillBusy, config.DecodeBusy = read.PrefillBusy, read.DecodeBusy
	return config, config.ranges()
}

// ranges checks values that make no sense.
func (c *Config) ranges() error {
	if !slices.Contains([]Policy{ISLBounding, PrefillLoad, ISLOrLoad}, c.Policy) {
		return fmt.Errorf("policy %q must be one of %s, %s, %s", c.Policy, ISLBounding, PrefillLoad, ISLOrLoad)
	}
	if !(c.UncachedRatio >= 0 && c.UncachedRatio <= 1) {
		return fmt.Errorf("eff_isl_ratio_threshold must be between 0 and 1")
	}
	for name, value := range map[string]*float64{"prefill_busy_threshold": c.PrefillBusy, "decode_busy_threshold": c.DecodeBusy} {
		if value != nil && (!(*value >= 0) || math.IsInf(*value, 0)) {
			return fmt.Errorf("%s must be a finite number of at least 0", name)
		}
	}
	return nil
}

// Check tells what the configuration lacks. queueThreshold stands in for a missing PrefillBusy.
func (c *Config) Check(queueThreshold *float64) error {
	if c.PrefillBusy == nil {
		c.PrefillBusy = queueThreshold
	}
	if c.Enabled && c.NeedsPrefillLoad() && c.PrefillBusy == nil {
		return fmt.Errorf("conditional_disagg policy='%s' needs prefill_busy_threshold, but neither prefill_busy_threshold nor --router-queue-threshold is set", c.Policy)
	}
	return nil
}

// NeedsPrefillLoad tells whether the decision depends on the prefill worker.
func (c *Config) NeedsPrefillLoad() bool { return c.Policy == PrefillLoad || c.Policy == ISLOrLoad }

// Prompt is the request, seen from the decode worker that would serve it.
type Prompt struct {
	// Tokens is the prompt's length, CachedTokens the part of it that the decode worker has cached.
	Tokens, CachedTokens uint64
}

// Uncached returns the tokens that the decode worker would have to compute.
func (p Prompt) Uncached() uint64 { return p.Tokens - min(p.CachedTokens, p.Tokens) }

// Bypasses tells whether the request may skip the prefill workers. prefillBusy is whether the prefill worker that it would go to is
// busy; false where that is not known.
func (c *Config) Bypasses(prompt Prompt, prefillBusy bool) bool {
	if !c.Enabled {
		return false
	}
	uncached := prompt.Uncached()
	short := uncached < c.UncachedTokens && float64(uncached)/float64(max(1, prompt.Tokens)) < c.UncachedRatio
	switch c.Policy {
	case PrefillLoad:
		return prefillBusy
	case ISLOrLoad:
		return short || prefillBusy
	}
	return short
}

// PrefillIsBusy tells whether a prefill worker's active tokens exceed its share of the tokens per step.
func (c *Config) PrefillIsBusy(active, perStep uint64) bool {
	return c.PrefillBusy != nil && float64(active) > *c.PrefillBusy*float64(perStep)
}

// DecodeAllows tells whether the decode worker has room for the prompt as well. blocks are those that it would have in use, total is its
// capacity, 0 when it is not known: then nothing is allowed.
func (c *Config) DecodeAllows(blocks, total uint64) bool {
	if c.DecodeBusy == nil {
		return true
	}
	return total > 0 && float64(blocks) <= *c.DecodeBusy*float64(total)
}
