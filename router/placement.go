package router

import (
	"sync"
	"time"
)

// Placement is a lease on one rank of one worker. The router counts the request there until [Placement.End]; on the way the
// holder reports what the router's load model lives on. All methods may be called from any goroutine, repeatedly and in any
// order: only the first report of each kind counts, and none counts after the end.
type Placement struct {
	WorkerID uint64
	// Rank is the data-parallel rank to ask for, where HasRank; modes without ranks leave it to the worker.
	Rank    uint32
	HasRank bool

	// InputTokens is the prompt length that was routed (ISL), CachedTokens the part of it that the router expects in the
	// worker's cache. InputBlocks and OverlapBlocks are the same in KV blocks, the latter weighted by tier; both are 0 in modes
	// that know no blocks.
	InputTokens   int
	CachedTokens  int
	InputBlocks   int
	OverlapBlocks float64
	// QueueDepth is how many requests waited in the pool when this one was placed.
	QueueDepth int
	// Queued tells whether the request itself had to wait.
	Queued bool
	// QueryOnly marks an answer to a question: nothing is booked and nothing may be sent.
	QueryOnly bool
	// FollowsOutput asks the holder to report the ids of generated tokens, see [Placement.Output].
	FollowsOutput bool
	// Decision explains the choice; nil unless [Attempt].Explain asked for it.
	Decision *Decision

	// Reuse is told what the worker reports about its cache; nil for nobody.
	Reuse ReuseObserver

	mutex    sync.Mutex
	reached  progress
	lease    Lease
	computed time.Time // when the first token came
}

// ReuseObserver is told what workers report about their caches. It must be quick.
type ReuseObserver interface {
	// Reused reports the prompt tokens that a worker says it took from its cache.
	Reused(tokens int)
}

// progress is how far a placement has come; it only grows.
type progress uint8

const (
	placed progress = iota
	dispatched
	firstToken
	ended
)

// Lease is what a router keeps for a placement. The calls come in order and not concurrently: Dispatched at most once, then
// FirstToken at most once, Progress any number of times, End exactly once and last.
type Lease interface {
	// Dispatched reports that the worker accepted the request.
	Dispatched()
	// FirstToken reports the first item that carries a token: the prompt is computed.
	FirstToken()
	// Progress reports further generated tokens; newTokens ≥ 1. The first token is reported here too, after FirstToken.
	Progress(newTokens int)
	// End returns the lease; outcome is nil after a complete answer.
	End(outcome error)
}

// OutputLease is a lease that follows what a worker generates.
type OutputLease interface {
	Lease
	// Output reports further tokens of the first choice; it must not keep the slice. Like Progress it comes before End.
	Output(tokens []uint32)
}

// NewPlacement returns a placement at pin that reports to lease, for implementations of [Router].
func NewPlacement(pin Pin, lease Lease) *Placement {
	placement := &Placement{}
	placement.Init(pin, lease)
	return placement
}

// Init is [NewPlacement] for a placement that is part of a larger allocation. lease may be nil: then nobody is told.
func (p *Placement) Init(pin Pin, lease Lease) {
	p.WorkerID, p.Rank, p.HasRank, p.lease = pin.WorkerID, pin.Rank, pin.HasRank, lease
}

// Wrap puts another lease around the placement's own. The outer one hears every report first and passes it on to the inner
// one that it is given. It must be called before the placement is handed out.
func (p *Placement) Wrap(around func(inner Lease) Lease) {
	p.lease = around(p.lease)
}

// Dispatched reports that the worker accepted the request. Reports of tokens imply it.
func (p *Placement) Dispatched() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.advance(dispatched)
}

// FirstToken reports that the first token arrived: the worker has computed the prompt.
func (p *Placement) FirstToken() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.advance(firstToken)
}

// Progress reports newTokens more generated tokens, once per item of the answer. It implies the first token.
func (p *Placement) Progress(newTokens int) {
	if newTokens < 1 {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.reached == ended {
		return
	}
	p.advance(firstToken)
	if p.lease != nil {
		p.lease.Progress(newTokens)
	}
}

// Output reports generated tokens of the first choice. Only placements with FollowsOutput need it.
func (p *Placement) Output(tokens []uint32) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.reached == ended {
		return
	}
	if follower, follows := p.lease.(OutputLease); follows {
		follower.Output(tokens)
	}
}

// End returns the lease. outcome is nil after a complete answer, else how the request failed: a failure that speaks against the
// worker (see [inference.Kind.MarksDown]) sets it aside.
func (p *Placement) End(outcome error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.reached == ended {
		return
	}
	if outcome == nil {
		p.advance(dispatched)
	}
	p.reached = ended
	if p.lease != nil {
		p.lease.End(outcome)
		p.lease = nil
	}
}

// Reused reports how many prompt tokens the worker says it took from its cache.
func (p *Placement) Reused(tokens int) {
	if p.Reuse != nil && tokens > 0 {
		p.Reuse.Reused(tokens)
	}
}

// Computed returns when the first token was reported; false before that.
func (p *Placement) Computed() (time.Time, bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.computed, !p.computed.IsZero()
}

// advance reports the steps between what was reached and to. The caller holds the mutex.
func (p *Placement) advance(to progress) {
	if p.reached >= to || p.reached == ended {
		return
	}
	from := p.reached
	p.reached = to
	if to == firstToken {
		p.computed = time.Now()
	}
	if p.lease == nil {
		return
	}
	if from < dispatched {
		p.lease.Dispatched()
	}
	if from < firstToken && to >= firstToken {
		p.lease.FirstToken()
	}
}

// Pin returns where the placement is.
func (p *Placement) Pin() Pin { return Pin{WorkerID: p.WorkerID, Rank: p.Rank, HasRank: p.HasRank} }

// HitRate returns which part of the prompt is expected in the worker's cache, 0 to 1.
func (p *Placement) HitRate() float64 {
	if p.InputBlocks > 0 {
		return min(1, p.OverlapBlocks/float64(p.InputBlocks))
	}
	if p.InputTokens < 1 {
		return 0
	}
	return min(1, float64(p.CachedTokens)/float64(p.InputTokens))
}
