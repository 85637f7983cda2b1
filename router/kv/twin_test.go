package kv_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/kv"
)

// active is a request as a slow twin of the router remembers it.
type active struct {
	placement *router.Placement
	rank      inference.Rank
	tokens    []uint32
	prefill   int
}

// worth is the cost of a rank for a prompt, computed from nothing but the list of what is active: prompts are compared block by
// block, nothing is remembered.
func worth(on []active, rank inference.Rank, prompt []uint32, held int) float64 {
	blocks := map[string]bool{}
	prefill := 0
	for _, a := range on {
		if a.rank != rank {
			continue
		}
		prefill += a.prefill
		for n := blockSize; n <= len(a.tokens); n += blockSize {
			blocks[fmt.Sprint(a.tokens[:n])] = true
		}
	}
	decode := len(blocks)
	for n := blockSize; n <= len(prompt); n += blockSize {
		if !blocks[fmt.Sprint(prompt[:n])] {
			decode++
		}
	}
	return math.Max(0, float64(prefill+len(prompt))/blockSize-float64(held)) + float64(decode)
}

// Whatever happened before, the chosen rank is one of the cheapest, and the books agree with the twin's.
func TestTheCheapestWins(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		index := &shelf{}
		workers := []router.Worker{{ID: 1}, {ID: 2, DataParallelSize: 2}, {ID: 3}}
		b := newBench(t, workers, func(o *kv.Options) { o.Index = index })
		ranks := []inference.Rank{{WorkerID: 1}, {WorkerID: 2}, {WorkerID: 2, DPRank: 1}, {WorkerID: 3}}
		var on []active
		prompt := func() []uint32 {
			return rapid.SliceOfN(rapid.Uint32Range(0, 1), 1, 20).Draw(rt, "prompt")
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "op") {
			case 0:
				rank := rapid.SampledFrom(ranks).Draw(rt, "rank")
				index.put(rank.WorkerID, rank.DPRank, locals(t, kvhash.Scope{BlockSize: blockSize}, prompt()))
			case 1, 2:
				tokens := prompt()
				hashes := locals(t, kvhash.Scope{BlockSize: blockSize}, tokens)
				held := map[inference.Rank]int{}
				var matches kvindex.Matches
				index.Find(&matches, kvindex.Query{Locals: hashes})
				for _, match := range matches.Ranks {
					held[inference.Rank(match.Rank)] = int(match.Blocks[kvindex.Device])
				}
				least := math.Inf(1)
				for _, rank := range ranks {
					least = min(least, worth(on, rank, tokens, held[rank]))
				}
				p := b.place(b.request(tokens), router.Attempt{})
				rank := inference.Rank{WorkerID: p.WorkerID, DPRank: p.Rank}
				if got := worth(on, rank, tokens, held[rank]); math.Abs(got-least) > 1e-9 {
					rt.Fatalf("%+v costs %v, the cheapest %v", rank, got, least)
				}
				on = append(on, active{placement: p, rank: rank, tokens: tokens, prefill: len(tokens) - held[rank]*blockSize})
			case 3:
				if len(on) > 0 {
					a := &on[rapid.IntRange(0, len(on)-1).Draw(rt, "which")]
					a.placement.FirstToken()
					a.prefill = 0
				}
			case 4:
				if len(on) > 0 {
					i := rapid.IntRange(0, len(on)-1).Draw(rt, "which")
					on[i].placement.End(nil)
					on = append(on[:i], on[i+1:]...)
				}
			}
		}
		for _, a := range on {
			a.placement.End(nil)
		}
		if stats := b.Stats(); stats.ActiveRequests != 0 || stats.BlockRecords != 0 {
			rt.Fatalf("%+v is left", stats)
		}
	})
}
