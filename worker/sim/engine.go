package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/inference"
	"signalbox/kvhash"
)

// Engine is one simulated worker: a scheduler goroutine per rank. Close ends them.
type Engine struct {
	config Config
	ranks  []*scheduler
	cancel context.CancelFunc
	wait   sync.WaitGroup
	next   atomic.Uint32 // rank for requests that name none
}

// New starts an engine; events may be nil.
func New(config Config, events Events) (*Engine, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("simulated engine: %w", err)
	}
	if config.Timing == (Timing{}) {
		config.Timing = DefaultTiming()
	}
	if events == nil {
		events = noEvents{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{config: config, cancel: cancel}
	for rank := range config.Ranks {
		s := newScheduler(&e.config, rank, events)
		e.ranks = append(e.ranks, s)
		e.wait.Add(1)
		go func() { // ends with ctx
			defer e.wait.Done()
			s.run(ctx)
		}()
	}
	return e, nil
}

// Close ends the engine; running sequences fail with EngineShutdown.
func (e *Engine) Close() {
	e.cancel()
	e.wait.Wait()
}

// Config returns the engine's configuration.
func (e *Engine) Config() Config { return e.config }

// Status is a rank's state at one moment.
type Status struct {
	Running, Waiting     int
	UsedBlocks           int
	CachedBlocks         int // in use or kept for reuse
	PromptTokens, Cached uint64
	OutputTokens         uint64
}

// Status returns the state of all ranks together.
func (e *Engine) Status() Status {
	var total Status
	for _, s := range e.ranks {
		status := s.status()
		total.Running += status.Running
		total.Waiting += status.Waiting
		total.UsedBlocks += status.UsedBlocks
		total.CachedBlocks += status.CachedBlocks
		total.PromptTokens += status.PromptTokens
		total.Cached += status.Cached
		total.OutputTokens += status.OutputTokens
	}
	return total
}

// Generate starts a request. The stream's first item comes when the engine has computed it.
func (e *Engine) Generate(ctx context.Context, request *inference.Request) (inference.Stream, error) {
	rank, err := e.rankOf(request)
	if err != nil {
		return nil, err
	}
	if script, ok := e.config.Scripts.find(request); ok && script.items != nil {
		return playScript(ctx, script.items), nil
	}
	maxTokens := e.config.DefaultMaxTokens
	switch {
	case request.Stop.MaxTokens != nil:
		maxTokens = int(*request.Stop.MaxTokens)
	case request.HealthCheck:
		maxTokens = 1
	case maxTokens == 0:
		const text = "`max_output_tokens` (or `max_tokens`) is required by the mocker worker"
		return nil, &inference.Error{Kind: inference.InvalidArgument, Message: text, Public: text}
	}
	if len(request.TokenIDs) == 0 {
		const text = "the prompt has no tokens"
		return nil, &inference.Error{Kind: inference.InvalidArgument, Message: text, Public: text}
	}
	if limit := e.config.MaxModelLength; limit > 0 {
		if len(request.TokenIDs) >= limit {
			return nil, inference.Errorf(inference.Unknown, "prompt of %d tokens does not fit the model length of %d", len(request.TokenIDs), limit)
		}
		maxTokens = min(maxTokens, limit-len(request.TokenIDs))
	}
	if e.config.Prefill {
		maxTokens = 1
	}
	hasher, err := kvhash.New(kvhash.Scope{BlockSize: e.config.BlockSize, LoRA: request.Routing.LoRAName, CacheNamespace: request.Routing.CacheSalt})
	if err != nil {
		return nil, inference.Errorf(inference.Unknown, "hash the prompt: %v", err)
	}
	s := newSequence(request, hasher, maxTokens)
	if script, ok := e.config.Scripts.find(request); ok {
		s.replay = script.tokens
	}
	if need := blocksFor(len(s.prompt)+1, e.config.BlockSize); need > e.config.Blocks {
		return nil, inference.Errorf(inference.ResourceExhausted, "prompt needs %d KV blocks, the worker has %d", need, e.config.Blocks)
	}
	if err := e.ranks[rank].submit(s); err != nil {
		return nil, err
	}
	return s.outbox, nil
}

func (e *Engine) rankOf(request *inference.Request) (int, error) {
	given := request.Routing.DPRank
	if given == nil {
		return int(e.next.Add(1)-1) % e.config.Ranks, nil
	}
	if int(*given) >= e.config.Ranks {
		text := fmt.Sprintf("dp_rank %d is out of bounds for dp_size %d", *given, e.config.Ranks)
		return 0, &inference.Error{Kind: inference.InvalidArgument, Message: text, Public: text}
	}
	return int(*given), nil
}

func blocksFor(tokens, blockSize int) int { return (tokens + blockSize - 1) / blockSize }

// Send implements inference.Sender for an engine in the same process; the target is not looked at.
func (e *Engine) Send(ctx context.Context, _ inference.Target, request *inference.Request) (inference.Stream, error) {
	return e.Generate(ctx, request)
}

var _ inference.Sender = (*Engine)(nil)

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, timer *time.Timer, d time.Duration) bool {
	timer.Reset(d)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		timer.Stop()
		return false
	}
}
