package kv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"signalbox/kvhash"
	"signalbox/router"
	"signalbox/router/policy"
	"signalbox/router/queue"
	"signalbox/router/selection"
)

// Options describe a router.
type Options struct {
	Config Config
	Pool   *router.Pool
	// BlockSize is the workers' KV block size in tokens; Eagle says that they speculate with overlapping blocks.
	BlockSize int
	Eagle     bool
	// Model and RoutingGroup enter keyed tracking identities; the group defaults to "default".
	Model, RoutingGroup string
	// PrefillPool marks the workers as those that compute prompts for others. Blocks in use do not count there.
	PrefillPool bool
	// Index says what is cached where; nil for nobody knows. It is left out when the configuration gives cached prefixes no
	// credit: then placement is by load alone.
	Index Index
	// Predicted is a second index, of recent placements; the longer prefix of both counts. nil for none.
	Predicted Index
	// Recorder is told every placement, for an index that learns from them; nil for none.
	Recorder Recorder
	// Shared knows what the fleet's shared cache holds; nil where there is none.
	Shared SharedCache
	// Forget is told each worker that left, for what was recorded about it; nil for nobody. It is called without any lock.
	Forget func(workerID uint64)
	// TrackingKey makes the identities of active blocks secret; nil leaves them public.
	TrackingKey *kvhash.TrackingKey
	// Policy chooses among eligible ranks; nil is the built-in one. The router calls it serially and owns it.
	Policy     selection.Policy
	PolicyName string
	// Shadow is a second policy that decides along without effect, for comparison (see [Router.Shadow]); nil for none. It is an instance
	// of its own, never the one in force.
	Shadow selection.Policy
	// Profile is the classes in which requests wait while the ranks are busy; nil is the one class that the configuration's queue
	// threshold and policy describe.
	Profile *policy.Profile
	// OverlapRefreshAfter is how long a request may wait before what is cached for it is looked up again when it goes; 0 never
	// looks again.
	OverlapRefreshAfter time.Duration
	// Predictor estimates prefill durations, so that active prefill decays while it is being computed; nil keeps it until the
	// first token.
	Predictor Predictor
	// Replicas are told of bookings, for other routers of the same workers; nil for nobody.
	Replicas Replicas
	// Observer is told what happens; nil for nobody.
	Observer Observer
	// RequestExpiry is how long a request may make no progress before it can be forgotten; it is gone after twice that. 0 means
	// [DefaultRequestExpiry].
	RequestExpiry time.Duration
	// Random is where chance comes from; nil takes a seed of the process's own.
	Random rand.Source
}

// Predictor estimates how long a rank computes a prompt.
type Predictor interface {
	// PredictPrefill returns the time for a prompt of inputTokens of which cachedTokens are in the cache. A failed estimate makes
	// the request count in full until its first token.
	PredictPrefill(inputTokens, cachedTokens int) (time.Duration, error)
}

// Observer is told what happens to requests, for metrics. Its methods must be quick.
type Observer interface {
	// Decided reports a placement, booked or not, and what it took.
	Decided(placement *router.Placement, steps *Steps)
	// FirstToken reports a request's first token, and how long after the request's arrival it came.
	FirstToken(sinceArrival time.Duration)
	// Transferred reports the time from the end of a prefill elsewhere to the decode's first token.
	Transferred(latency time.Duration)
	// Reused reports the prompt tokens that a worker says it took from its cache.
	Reused(tokens int)
	// OutputBlock reports that a request's output filled another block; interToken is its average time between tokens so far.
	OutputBlock(interToken time.Duration)
	// Ended reports the end of a request that a worker had accepted.
	Ended(outputTokens int)
}

// Steps are the times that the steps of one placement took, and what the choice gave up.
type Steps struct {
	BlockHashing, SequenceHashing, FindMatches, Scheduling, Total time.Duration
	// LostBlocks is by how much the largest effective overlap of the eligible ranks exceeds the winner's.
	LostBlocks float64
	// Shared is what the fleet's shared cache holds of the prompt.
	Shared SharedSteps
	// HitRate is the part of the prompt that was expected in a cache; a decode leg has that of the prefill before it.
	HitRate float64
	// SelectedCached is how many prompt tokens the winner has cached in any tier, BestCached how many the eligible rank with the most
	// of them has.
	SelectedCached, BestCached int
}

func (o *Options) check() error {
	if o.Pool == nil {
		return errors.New("kv router: a pool of workers is needed")
	}
	if o.BlockSize < 1 {
		return fmt.Errorf("kv router: block size %d: a block holds at least 1 token", o.BlockSize)
	}
	if err := o.Config.Validate(); err != nil {
		return fmt.Errorf("kv router: %w", err)
	}
	if o.RequestExpiry == 0 {
		o.RequestExpiry = DefaultRequestExpiry
	}
	if o.RequestExpiry < 0 {
		return fmt.Errorf("kv router: request expiry %s: it must be positive", o.RequestExpiry)
	}
	if o.RoutingGroup == "" {
		o.RoutingGroup = "default"
	}
	if o.PrefillPool {
		// Prompt work is all that a prefill worker does: its blocks are handed over at once.
		o.Config.TrackActiveBlocks, o.Config.TrackOutputBlocks = false, false
	}
	if !o.Config.UsesIndex() {
		o.Index, o.Predicted, o.Recorder = nil, nil, nil
	}
	if o.Profile == nil {
		order := map[string]queue.Order{"wspt": queue.WSPT, "lcfs": queue.LCFS}[o.Config.QueuePolicy]
		o.Profile = policy.Synthetic(order, o.Config.QueueThreshold)
	}
	if o.OverlapRefreshAfter < 0 {
		return fmt.Errorf("kv router: overlap refresh after %s: it must not be negative", o.OverlapRefreshAfter)
	}
	if o.Policy == nil {
		o.Policy = &selection.Default{}
	}
	if o.PolicyName == "" {
		o.PolicyName = selection.DefaultName
	}
	if o.Random == nil {
		o.Random = rand.NewPCG(rand.Uint64(), rand.Uint64())
	}
	return nil
}
