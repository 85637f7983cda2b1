package main

import (
	"signalbox/bench/internal/trace"
)

// vocabulary bounds the token ids; they belong to the built-in model.
const vocabulary = 4000

// tokensOf makes a prompt whose blocks are equal where the trace's are.
func tokensOf(r trace.Request) []uint32 {
	tokens := make([]uint32, 0, len(r.Blocks)*trace.BlockTokens)
	for _, id := range r.Blocks {
		state := id*0x9e3779b97f4a7c15 + 1
		for range trace.BlockTokens {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
			tokens = append(tokens, uint32(state%vocabulary))
		}
	}
	return tokens[:min(len(tokens), r.InputLength)]
}

// bound is the part of all prompt tokens that stand in blocks which came before.
func bound(requests []trace.Request) float64 {
	seen := make(map[uint64]bool)
	known, all := 0, 0
	for _, r := range requests {
		all += r.InputLength
		for i, id := range r.Blocks {
			whole := (i+1)*trace.BlockTokens <= r.InputLength
			if seen[id] && whole {
				known += trace.BlockTokens
			}
			seen[id] = true
		}
	}
	return float64(known) / float64(max(all, 1))
}
