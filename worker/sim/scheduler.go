package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"signalbox/inference"
)

// scheduler runs the steps of one rank. Only its goroutine touches the cache and the running sequences.
type scheduler struct {
	config *Config
	rank   int
	cache  *cache
	events Events

	mu       sync.Mutex // guards arrivals, stopped and current
	arrivals []*sequence
	stopped  bool
	current  Status
	wake     chan struct{}

	waiting  []*sequence // oldest first
	running  []*sequence // in order of admission
	lastLoad int
}

func newScheduler(config *Config, rank int, events Events) *scheduler {
	return &scheduler{config: config, rank: rank, events: events, cache: newCache(rank, config.Blocks, events), wake: make(chan struct{}, 1), lastLoad: -1}
}

// submit hands a sequence over; it is refused when too many wait.
func (s *scheduler) submit(sequence *sequence) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return inference.Errorf(inference.EngineShutdown, "the engine has stopped")
	}
	if s.config.QueueLimit > 0 && s.current.Waiting+len(s.arrivals) >= s.config.QueueLimit {
		return inference.Errorf(inference.WorkerOverloaded, "%d requests wait already", s.config.QueueLimit)
	}
	s.arrivals = append(s.arrivals, sequence)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

func (s *scheduler) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// run steps until ctx ends.
func (s *scheduler) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer s.stop()
	due := time.Now()
	for {
		s.takeArrivals()
		s.dropClosed()
		s.admit()
		if len(s.running) == 0 {
			s.report()
			select {
			case <-s.wake:
				due = time.Now()
				continue
			case <-ctx.Done():
				return
			}
		}
		// A step's time counts from the end of the step before, so that scheduling overhead does not slow the engine down.
		due = due.Add(s.compute())
		if wait := time.Until(due); wait > 0 {
			if !sleep(ctx, timer, wait) {
				return
			}
		} else {
			due = time.Now()
			if ctx.Err() != nil {
				return
			}
		}
		s.emit()
		s.report()
	}
}

func (s *scheduler) stop() {
	s.mu.Lock()
	s.stopped = true
	waiting := append(s.arrivals, s.waiting...)
	s.mu.Unlock()
	for _, sequence := range append(waiting, s.running...) {
		sequence.outbox.end(inference.Errorf(inference.EngineShutdown, "the engine has stopped"))
	}
}

func (s *scheduler) takeArrivals() {
	s.mu.Lock()
	s.waiting = append(s.waiting, s.arrivals...)
	s.arrivals = s.arrivals[:0]
	s.mu.Unlock()
}

func (s *scheduler) dropClosed() {
	s.waiting = slices.DeleteFunc(s.waiting, func(q *sequence) bool { return q.outbox.isClosed() })
	s.running = slices.DeleteFunc(s.running, func(q *sequence) bool {
		if q.outbox.isClosed() {
			s.free(q)
			return true
		}
		return false
	})
}

// admit moves waiting sequences into the batch while there is room.
func (s *scheduler) admit() {
	for len(s.waiting) > 0 && len(s.running) < s.config.MaxSequences {
		q := s.waiting[0]
		if !s.place(q) {
			return
		}
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		s.running = append(s.running, q)
	}
}

// place reserves the blocks of the sequence's tokens so far, reusing what the cache holds.
func (s *scheduler) place(q *sequence) bool {
	matched := 0
	if s.config.PrefixCaching {
		matched = s.cache.matched(q.hashes)
		if matched*s.config.BlockSize >= q.length() {
			matched-- // the last token is always computed: its output is what is wanted
		}
	}
	for _, hash := range q.hashes[:matched] {
		s.cache.hold(hash)
	}
	need := blocksFor(q.length()+1, s.config.BlockSize) - matched
	if !s.cache.reserve(need) {
		s.cache.release(q.hashes[:matched], 0)
		return false
	}
	q.held, q.private = matched, need
	q.computed = matched * s.config.BlockSize
	if !q.preempted {
		q.cached = q.computed
		s.mu.Lock()
		s.current.PromptTokens += uint64(len(q.prompt))
		s.current.Cached += uint64(q.cached)
		s.mu.Unlock()
	}
	return true
}

// compute advances every running sequence by one step and returns the step's duration.
func (s *scheduler) compute() time.Duration {
	budget := s.config.MaxBatchedTokens
	prefillTokens, decoding, decodeKV := 0, 0, 0
	for _, q := range s.running {
		missing := q.length() - q.computed
		if missing <= 1 && q.generated > 0 { // decode: one token for one token
			decoding++
			decodeKV += q.computed
			budget--
			q.computed = q.length()
			continue
		}
		share := min(missing, max(budget, 0))
		if !s.config.ChunkedPrefill && share < missing && prefillTokens > 0 {
			continue
		}
		budget -= share
		prefillTokens += share
		q.computed += share
	}
	return s.config.step(prefillTokens, decoding, decodeKV)
}

// emit sends the tokens of the step that has ended.
func (s *scheduler) emit() {
	for i := 0; i < len(s.running); i++ {
		q := s.running[i]
		if q.computed < q.length() {
			continue // still in prefill
		}
		s.storeComplete(q)
		finished, preempted := s.produce(q, i)
		if preempted {
			i = min(i, len(s.running)) - 1
			continue
		}
		if finished {
			s.free(q)
			s.running = slices.Delete(s.running, i, i+1)
			i--
		}
	}
}

// storeComplete gives every block that is complete its identity and reports the new ones.
func (s *scheduler) storeComplete(q *sequence) {
	complete := min(len(q.hashes), q.computed/s.config.BlockSize)
	var fresh []Block
	first := q.held
	for position := q.held; position < complete; position++ {
		q.private--
		if s.cache.complete(q.hashes[position], position) {
			fresh = append(fresh, Block{q.hashes[position], q.locals[position]})
		} else if len(fresh) > 0 {
			s.stored(q, first, fresh)
			fresh = nil
		}
		if len(fresh) == 0 {
			first = position + 1
		}
	}
	q.held = max(q.held, complete)
	s.stored(q, first, fresh)
}

func (s *scheduler) stored(q *sequence, first int, fresh []Block) {
	if len(fresh) == 0 {
		return
	}
	var parent uint64
	if first > 0 {
		parent = q.hashes[first-1]
	}
	s.events.Stored(s.rank, parent, first > 0, fresh)
}

// produce emits the sequence's next token. preempted tells that the batch changed because memory ran out.
func (s *scheduler) produce(q *sequence, index int) (finished, preempted bool) {
	if blocksFor(q.length()+1, s.config.BlockSize) > q.held+q.private {
		if !s.cache.reserve(1) {
			return false, s.preempt(q)
		}
		q.private++
	}
	output := &inference.Output{}
	if q.replay != nil && q.generated >= len(q.replay) {
		output.Finish = inference.FinishLength
		s.usage(q, output)
		q.outbox.put(output)
		q.outbox.end(errEnd)
		return true, false
	}
	token := q.nextToken(s.config)
	q.generated++
	q.locals, q.hashes = q.hasher.Append(q.locals, q.hashes, token)
	output.TokenIDs = []uint32{token}
	if q.generated == 1 {
		s.usage(q, output)
		if s.config.Prefill {
			output.DisaggregatedParams = inference.Opaque{Codec: inference.JSON, Bytes: []byte(`"dummy"`)}
		}
	}
	q.outbox.put(output)
	s.mu.Lock()
	s.current.OutputTokens++
	s.mu.Unlock()
	reason := s.finishReason(q, token)
	if reason == inference.FinishNone {
		return false, false
	}
	last := &inference.Output{Finish: reason}
	s.usage(q, last)
	q.outbox.put(last)
	q.outbox.end(errEnd)
	return true, false
}

func (s *scheduler) finishReason(q *sequence, token uint32) inference.FinishReason {
	ignoreEOS := q.request.Stop.IgnoreEOS != nil && *q.request.Stop.IgnoreEOS
	if q.generated > q.minTokens && !ignoreEOS {
		if slices.Contains(q.request.EOSTokenIDs, token) {
			return inference.FinishEOS
		}
		if slices.Contains(q.request.Stop.HiddenTokenIDs, token) || slices.Contains(q.request.Stop.VisibleTokenIDs, token) || slices.Contains(q.request.Stop.TokenIDs, token) {
			return inference.FinishStop
		}
	}
	if q.replay != nil {
		return inference.FinishNone // the script ends it
	}
	if q.generated >= q.maxTokens {
		return inference.FinishLength
	}
	return inference.FinishNone
}

func (s *scheduler) usage(q *sequence, output *inference.Output) {
	cached := uint32(min(q.cached, len(q.prompt)))
	output.Usage = &inference.Usage{PromptTokens: uint32(len(q.prompt)), CompletionTokens: uint32(q.generated),
		TotalTokens: uint32(q.length()), CachedTokens: &cached}
}

// preempt puts the newest sequence back to the head of the queue: memory is exhausted. It returns true when the batch changed.
func (s *scheduler) preempt(q *sequence) bool {
	victim := s.running[len(s.running)-1]
	if victim == q && len(s.running) == 1 {
		// Alone and still too long: nothing can ever help.
		s.free(q)
		s.running = s.running[:0]
		q.outbox.end(inference.Errorf(inference.ResourceExhausted, "a sequence of %d tokens does not fit the KV cache", q.length()))
		return true
	}
	s.free(victim)
	victim.preempted = true
	s.running = s.running[:len(s.running)-1]
	s.waiting = slices.Insert(s.waiting, 0, victim)
	return true
}

func (s *scheduler) free(q *sequence) {
	s.cache.release(q.hashes[:q.held], q.private)
	q.held, q.private, q.computed = 0, 0, 0
	if !s.config.PrefixCaching {
		s.cache.forget()
	}
}

func (s *scheduler) report() {
	used := s.cache.inUse()
	s.mu.Lock()
	s.current.Running, s.current.Waiting = len(s.running), len(s.waiting)
	s.current.UsedBlocks, s.current.CachedBlocks = used, len(s.cache.blocks)
	s.mu.Unlock()
	if used != s.lastLoad {
		s.lastLoad = used
		s.events.Load(s.rank, used)
	}
}
