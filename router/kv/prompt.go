package kv

import (
	"time"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/router/cost"
)

// prompt is a request's prompt as routing sees it. Its memory is reused.
type prompt struct {
	tokens   int
	locals   []uint64
	sequence []uint64 // public chain, for recorders and for tracking without a key
	keyed    []uint64
	tracked  []uint64 // one of the above, or nil
	// exclusive is the number of blocks that are tracked without identity: nobody shares them.
	exclusive int
	held      kvindex.Matches // what ranks hold
	expected  kvindex.Matches // and what they are expected to
	objects   [][]kvhash.Object
	shared    []cost.Range // what the shared cache holds
	// report is where to say what was chosen, for [Router.Select]; nil otherwise.
	report *Selection
}

// needs says which parts of a prompt a placement looks at.
type needs struct {
	lookup bool // what is cached where
	record bool // tell recorders about the placement
	track  bool // blocks in use
	reuse  bool // equal prefixes share blocks
}

// read hashes what is needed of the request's prompt. steps is filled when not nil.
func (r *Router) read(into *prompt, request *inference.Request, need needs, steps *Steps) error {
	tokens := routingTokens(request)
	into.tokens, into.exclusive = len(request.TokenIDs), 0
	into.locals, into.sequence, into.tracked = into.locals[:0], into.sequence[:0], nil
	var objects [][]kvhash.Object
	if media := request.MultiModalRouting; media != nil {
		if media.ExpandedPromptLen > 0 {
			into.tokens = media.ExpandedPromptLen
		}
		objects = into.blockObjects(media)
	}
	hasher, err := r.hasher(&request.Routing)
	if err != nil {
		return inference.Errorf(inference.Unroutable, "hash the prompt: %v", err)
	}
	if need.track && !need.reuse {
		into.exclusive, need.track = hasher.Blocks(len(tokens)), false
	}
	publicly := need.track && r.options.TrackingKey == nil
	if !need.lookup && !need.record && !need.track {
		return nil
	}
	var start time.Duration
	if steps != nil {
		start = r.clock.Now()
	}
	if need.lookup || need.record || publicly {
		into.locals = appendBlocks(hasher, into.locals, tokens, objects)
	}
	if steps != nil {
		now := r.clock.Now()
		steps.BlockHashing, start = now-start, now
	}
	if need.record || publicly {
		into.sequence = hasher.AppendSequence(into.sequence, into.locals)
		if publicly {
			into.tracked = into.sequence
		}
	}
	if need.track && !publicly {
		if err := r.trackKeyed(into, request, tokens, objects); err != nil {
			return err
		}
	}
	if steps != nil {
		steps.SequenceHashing = r.clock.Now() - start
	}
	return nil
}

// routingTokens are the tokens that stand for the request's prompt where caches are compared.
func routingTokens(request *inference.Request) []uint32 {
	if media := request.MultiModalRouting; media != nil && len(media.RoutingTokenIDs) > 0 {
		return media.RoutingTokenIDs
	}
	return request.TokenIDs
}

func (r *Router) trackKeyed(into *prompt, request *inference.Request, tokens []uint32, objects [][]kvhash.Object) error {
	scope := r.scope(&request.Routing)
	keyed, err := r.options.TrackingKey.Hasher(r.options.Model, r.options.RoutingGroup, scope)
	if err != nil {
		return inference.Errorf(inference.Unroutable, "hash the prompt: %v", err)
	}
	into.keyed = appendBlocks(keyed, into.keyed[:0], tokens, objects)
	for i := 1; i < len(into.keyed); i++ { // in place: local hashes become the chain
		into.keyed[i] = keyed.Next(into.keyed[i-1], into.keyed[i])
	}
	into.tracked = into.keyed
	return nil
}

func (r *Router) scope(routing *inference.Routing) kvhash.Scope {
	return kvhash.Scope{BlockSize: r.options.BlockSize, LoRA: routing.LoRAName, CacheNamespace: routing.CacheSalt, Eagle: r.options.Eagle}
}

// hasher returns the public hasher of the request's scope.
func (r *Router) hasher(routing *inference.Routing) (kvhash.Hasher, error) {
	if routing.LoRAName == "" && routing.CacheSalt == "" {
		return r.plain, nil
	}
	return kvhash.New(r.scope(routing))
}

func appendBlocks(hasher kvhash.Hasher, locals []uint64, tokens []uint32, objects [][]kvhash.Object) []uint64 {
	if objects == nil {
		return hasher.AppendBlocks(locals, tokens)
	}
	return hasher.AppendBlocksWithObjects(locals, tokens, objects)
}

// blockObjects translates the media of each block; nil when there are none.
func (p *prompt) blockObjects(media *inference.MultiModalRouting) [][]kvhash.Object {
	if len(media.Blocks) == 0 {
		return nil
	}
	p.objects = p.objects[:0]
	for _, spans := range media.Blocks {
		var objects []kvhash.Object
		for _, span := range spans {
			objects = append(objects, kvhash.Object{Hash: span.Hash})
		}
		p.objects = append(p.objects, objects)
	}
	return p.objects
}
