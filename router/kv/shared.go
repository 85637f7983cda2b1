package kv

import (
	"time"

	"signalbox/inference"
	"signalbox/router/cost"
)

// SharedCache knows which blocks of a prompt the fleet's shared cache holds, from which every worker can take them. It is safe for
// concurrent use, and a look-up waits for nobody.
type SharedCache interface {
	// AppendRuns appends the runs of the prompt's complete blocks that are there, in ascending order.
	AppendRuns(list []cost.Range, tokens []uint32) []cost.Range
}

// SharedSteps are what asking the shared cache took and brought.
type SharedSteps struct {
	// Asked is false where there is no shared cache.
	Asked bool
	Query time.Duration
	// Blocks are those of the prompt that it holds, Of the complete blocks of the prompt.
	Blocks, Of uint32
	// Beyond are those of Blocks that the winner does not hold by itself.
	Beyond uint32
}

// askShared looks the prompt up in the fleet's shared cache. Prompts of a tenant with a namespace of its own are not shared.
func (r *Router) askShared(into *prompt, request *inference.Request, steps *Steps) {
	into.shared = into.shared[:0]
	if r.options.Shared == nil {
		return
	}
	var start time.Duration
	if steps != nil {
		start = r.clock.Now()
	}
	tokens := routingTokens(request)
	if request.Routing.CacheSalt == "" {
		into.shared = r.options.Shared.AppendRuns(into.shared, tokens)
	}
	if steps != nil {
		steps.Shared = SharedSteps{Asked: true, Query: r.clock.Now() - start, Blocks: cost.SharedBeyond(into.shared, 0), Of: uint32(len(tokens) / r.options.BlockSize)}
	}
}
