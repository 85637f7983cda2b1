package main

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"

	"signalbox/bench/internal/trace"
	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/worker/sim"
)

// oracle places requests with the KV router's cost, but sees the caches and the work of all engines as they are at that moment: no
// event is under way and no estimate is involved.
type oracle struct {
	hasher  kvhash.Hasher
	engines []*watched

	mu sync.Mutex // one choice at a time; guards the pending work
}

// watched is an engine whose cache is written down as it changes.
type watched struct {
	engine *sim.Engine
	// pending are the uncached prompt tokens of requests without a first token.
	pending int

	mu   sync.Mutex
	held map[uint64]bool // by sequence hash
}

func (w *watched) Stored(_ int, _ uint64, _ bool, blocks []sim.Block) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, block := range blocks {
		w.held[block.Hash] = true
	}
}

func (w *watched) Removed(_ int, hashes []uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, hash := range hashes {
		delete(w.held, hash)
	}
}

func (w *watched) Load(int, int) {}

// overlap counts the leading blocks that the engine holds.
func (w *watched) overlap(sequence []uint64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, hash := range sequence {
		if !w.held[hash] {
			return i
		}
	}
	return len(sequence)
}

func runAllKnowing(ctx context.Context, o options, requests []trace.Request) ([]outcome, error) {
	hasher, err := kvhash.New(kvhash.Scope{BlockSize: trace.BlockTokens})
	if err != nil {
		return nil, err
	}
	all := &oracle{hasher: hasher}
	for range o.workers {
		w := &watched{held: make(map[uint64]bool)}
		config := sim.DefaultConfig()
		config.BlockSize, config.Blocks, config.SpeedupRatio = trace.BlockTokens, o.blocks, o.speedup
		if w.engine, err = sim.New(config, w); err != nil {
			return nil, err
		}
		defer w.engine.Close()
		all.engines = append(all.engines, w)
	}
	return replay(ctx, o, requests, all.serve), nil
}

func (a *oracle) serve(ctx context.Context, r trace.Request) (outcome, error) {
	tokens := tokensOf(r)
	index, cached := a.choose(tokens)
	w := a.engines[index]
	uncached := len(tokens) - cached
	first := sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		w.pending -= uncached
	})
	defer first()
	length, always := uint32(max(r.OutputLength, 1)), true
	stream, err := w.engine.Generate(ctx, &inference.Request{TokenIDs: tokens, Stop: inference.StopConditions{MaxTokens: &length, IgnoreEOS: &always}})
	if err != nil {
		return outcome{}, err
	}
	defer stream.Close()
	result := outcome{worker: uint64(index), prompt: len(tokens)}
	for {
		item, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			return result, nil
		}
		if err != nil {
			return result, err
		}
		first()
		result.output += len(item.TokenIDs)
		if item.Usage != nil && item.Usage.CachedTokens != nil {
			result.cached = int(*item.Usage.CachedTokens)
		}
	}
}

// choose takes the engine with the least work ahead: prompt tokens to compute, as blocks, and blocks in use.
func (a *oracle) choose(tokens []uint32) (index, cached int) {
	locals := a.hasher.AppendBlocks(nil, tokens)
	sequence := a.hasher.AppendSequence(nil, locals)
	a.mu.Lock()
	defer a.mu.Unlock()
	best := math.Inf(1)
	for i, w := range a.engines {
		found := w.overlap(sequence) * trace.BlockTokens
		cost := float64(w.pending+len(tokens)-found)/trace.BlockTokens + float64(w.engine.Status().UsedBlocks)
		if cost < best {
			best, index, cached = cost, i, found
		}
	}
	a.engines[index].pending += len(tokens) - cached
	return index, cached
}
