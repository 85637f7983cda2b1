package kv

import (
	"context"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/cost"
	"signalbox/router/policy"
)

// Advice is where a request would go now, and what that rank is like.
type Advice struct {
	Pin router.Pin
	// CachedTokens is the part of the prompt that the rank has cached.
	CachedTokens int
	// ActivePrefillTokens are the prompt tokens that the rank has yet to compute, of which it computes PerStep at a time.
	ActivePrefillTokens, PerStep uint64
	// PotentialDecodeBlocks are the blocks that it would have in use with the request; TotalBlocks is its capacity, 0 when it is not
	// known.
	PotentialDecodeBlocks, TotalBlocks uint64
}

// Advise chooses a rank for the request as if it were placed now: nothing is booked, and nobody waits.
func (r *Router) Advise(ctx context.Context, request *inference.Request, attempt router.Attempt) (Advice, error) {
	if err := ctx.Err(); err != nil {
		return Advice{}, router.Gone(err)
	}
	how := r.terms(request, &attempt)
	p := r.prompts.Get().(*prompt)
	defer r.prompts.Put(p)
	if err := r.read(p, request, how.needs, nil); err != nil {
		return Advice{}, err
	}
	r.find(p, how, nil)
	r.askShared(p, request, nil)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	snapshot := r.options.Pool.Snapshot()
	r.alignTo(snapshot)
	if err := r.tabulate(snapshot, request, &attempt, how, p, r.clock.Now(), false); err != nil {
		return Advice{}, err
	}
	row, _, err := r.pick(&attempt, how)
	if err != nil {
		return Advice{}, err
	}
	chosen := &r.table.Rows[row]
	advice := Advice{
		Pin:                   router.Pin{WorkerID: chosen.Rank.WorkerID, Rank: chosen.Rank.DPRank, HasRank: true},
		CachedTokens:          min(cost.CachedTokens(r.weights.Effective(chosen.Overlap), r.options.BlockSize), p.tokens),
		ActivePrefillTokens:   chosen.Load.ActivePrefillTokens,
		PerStep:               chosen.Worker.MaxNumBatchedTokens,
		PotentialDecodeBlocks: PotentialDecodeBlocks(chosen.Load, cost.Blocks(p.tokens, r.options.BlockSize), trackedBlocks(p)),
		TotalBlocks:           chosen.Worker.TotalKVBlocks,
	}
	if advice.PerStep == 0 {
		advice.PerStep = policy.UnknownBatch
	}
	return advice, nil
}

// trackedBlocks returns how many of the prompt's blocks the load model counts.
func trackedBlocks(p *prompt) int {
	if p.exclusive > 0 {
		return p.exclusive
	}
	return len(p.tracked)
}
