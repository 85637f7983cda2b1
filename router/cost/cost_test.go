package cost_test

import (
	"testing"

	"pgregory.net/rapid"

	"signalbox/router/cost"
)

// The short way to a cost ends at the same bits as the long one: a difference would break ties that the explanation shows.
func TestCostIsTheTotalOfItsTerms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) float64 { return rapid.Float64Range(0, 3).Draw(t, name) }
		weights := cost.Weights{OverlapCredit: number("credit"), OverlapCreditDecay: rapid.SampledFrom([]float64{0, 0.7}).Draw(t, "decay"),
			PrefillLoadScale: number("scale"), ActiveRequestWeight: number("request"), HostWeight: 0.75, DiskWeight: 0.25, SharedMultiplier: 0.5}
		prompt := cost.Prompt{InputTokens: rapid.IntRange(1, 100000).Draw(t, "input"), BlockSize: rapid.IntRange(1, 128).Draw(t, "block"),
			TrackPrefill: rapid.Bool().Draw(t, "track"), DecodePool: rapid.Bool().Draw(t, "decode")}
		if rapid.Bool().Draw(t, "shared") {
			prompt.Shared = []cost.Range{{Start: 1, End: 5}}
		}
		model := cost.NewModel(weights, prompt, rapid.Uint64Range(0, 100).Draw(t, "floor"))
		blocks := func(name string) uint32 {
			return rapid.SampledFrom([]uint32{0, 0, 3, 2000}).Draw(t, name)
		}
		candidate := cost.Candidate{
			Overlap: cost.Overlap{Device: blocks("device"), Host: blocks("host"), Disk: blocks("disk")}, HasLoad: rapid.Bool().Draw(t, "known"),
			Load: cost.Load{ActivePrefillTokens: rapid.Uint64Range(0, 1<<40).Draw(t, "prefill"), ActiveDecodeBlocks: rapid.Uint64Range(0, 1<<40).Draw(t, "blocks"),
				AdditionalActiveBlocks: rapid.Uint64Range(0, 5000).Draw(t, "new"), ActiveRequests: rapid.Uint64Range(0, 5000).Draw(t, "requests")},
			TaintMultiplier: rapid.SampledFrom([]float64{0, 0.5, 2}).Draw(t, "taint"),
		}
		terms := model.Terms(&candidate)
		if got := model.Cost(&candidate); got != terms.Total {
			t.Fatalf("cost %v, total of the terms %v (%+v)", got, terms.Total, terms)
		}
		sum := terms.Prefill + terms.Decode + terms.Requests
		if prompt.DecodePool && !prompt.TrackPrefill && weights.OverlapCredit > 0 {
			sum = max(0, terms.Decode-terms.Credit) + terms.Requests
		}
		if want := sum * terms.Multiplier; terms.Total != want {
			t.Fatalf("the total of %+v is %v, want %v", terms, terms.Total, want)
		}
	})
}
