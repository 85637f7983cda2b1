// Package enginefeed follows the KV events that an inference engine (vLLM, SGLang, TensorRT-LLM) publishes over raw ZeroMQ, and keeps an
// index of what one of its ranks holds: gaps in the sequence are noticed and asked for again where the engine has a replay socket, and
// what cannot be had counts as not held. It knows nothing of where engines are found.
package enginefeed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/kvevents/engine"
	"signalbox/kvindex"
	"signalbox/transport/zmq"
)

// Source is where an engine tells what one of its ranks holds.
type Source struct {
	Rank kvindex.Rank
	// BlockSize is the number of tokens in a block; blocks of another size are left out.
	BlockSize int
	// Endpoint is where it publishes its events, over ZMQ ("tcp://host:port").
	Endpoint string
	// ReplayEndpoint is where it tells again what was lost; "" where it does not.
	ReplayEndpoint string
	// CatchUp asks for what was told before with each connection, where it can be told again; else the first batch that is published
	// brings it.
	CatchUp bool
}

// asker asks a ROUTER socket; [zmq.Ask] is the one.
type asker func(ctx context.Context, endpoint string, request [][]byte, more func(parts [][]byte) bool) error

// Follower follows the events of one rank and applies them to an index.
type Follower struct {
	source     Source
	index      *kvindex.Index
	normalizer *engine.Normalizer
	logger     *slog.Logger
	ask        asker
	counts     counts

	// live is the sequence that the engine publishes next, once it has published one; next is the one to apply next, which is
	// further on after a replay that reached ahead of what is published. Both belong to the goroutine of Follow.
	began      bool
	live, next uint64
	// said tells that a connection that failed was told of, odd that blocks of another size were.
	said, odd bool

	mutex  sync.Mutex
	active bool
	ready  chan struct{} // closed with the first connection, and what was told before it
	first  sync.Once
}

// Counters tell what a follower was told. They only grow.
type Counters struct {
	// Batches counts the messages that were taken; Unreadable those in which something could not be read.
	Batches, Unreadable uint64
	// Stored, Removed and Cleared count the events that went to the index, UnknownParent and UnknownBlock those of them that it refused
	// because it does not know a block, Refused those that it refused for other reasons.
	Stored, Removed, Cleared, UnknownParent, UnknownBlock, Refused uint64
	// Gaps counts holes in the sequence, Recovered those that the engine filled.
	Gaps, Recovered uint64
	// Connected and Lost count connections made, and those that failed or could not be made.
	Connected, Lost uint64
}

type counts struct {
	batches, unreadable, stored, removed, cleared, unknownParent, unknownBlock, refused, gaps, recovered, connected, lost atomic.Uint64
}

// New returns a follower that applies the source's events to the index. The error is about the block size.
func New(source Source, index *kvindex.Index, logger *slog.Logger) (*Follower, error) {
	normalizer, err := engine.New(engine.Options{WorkerID: source.Rank.WorkerID, BlockSize: source.BlockSize})
	if err != nil {
		return nil, err
	}
	return &Follower{source: source, index: index, normalizer: normalizer, logger: logger, ask: zmq.Ask, ready: make(chan struct{})}, nil
}

// Source returns what is followed.
func (f *Follower) Source() Source { return f.source }

// Ready is closed once the engine was connected for the first time and what it tells again was taken.
func (f *Follower) Ready() <-chan struct{} { return f.ready }

// Active tells whether the engine is connected.
func (f *Follower) Active() bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.active
}

// Counters returns what the follower was told so far.
func (f *Follower) Counters() Counters {
	c := &f.counts
	return Counters{Batches: c.batches.Load(), Unreadable: c.unreadable.Load(), Stored: c.stored.Load(), Removed: c.removed.Load(), Cleared: c.cleared.Load(),
		UnknownParent: c.unknownParent.Load(), UnknownBlock: c.unknownBlock.Load(), Refused: c.refused.Load(), Gaps: c.gaps.Load(),
		Recovered: c.recovered.Load(), Connected: c.connected.Load(), Lost: c.lost.Load()}
}

const (
	// engineMessage is how many parts an engine's message has: topic, sequence, batch.
	engineMessage = 3
	// replayTimeout bounds how long an engine may take to tell again what was lost.
	replayTimeout = 10 * time.Second
	// replayEnd is the sequence that ends what an engine tells again.
	replayEnd = math.MaxUint64
)

// Follow applies the rank's events until ctx ends.
func (f *Follower) Follow(ctx context.Context) {
	err := zmq.Subscribe(ctx, f.source.Endpoint, "", zmq.Events{
		Connected: func() { f.connected(ctx) },
		Lost:      f.lostConnection,
		Message: func(parts [][]byte) {
			if len(parts) == engineMessage && len(parts[1]) == 8 {
				f.take(ctx, binary.BigEndian.Uint64(parts[1]), parts[2])
			}
		},
	})
	if err != nil {
		f.logger.Error("events of a rank cannot be received", "error", err)
	}
}

// connected is called with each connection, before its messages.
func (f *Follower) connected(ctx context.Context) {
	f.counts.connected.Add(1)
	f.setActive(true)
	if f.source.CatchUp && f.source.ReplayEndpoint != "" {
		if !f.began && f.next > 0 { // another engine may be there by now, and nothing that is published has told
			f.forget("it was connected anew")
			f.next = 0
		}
		if err := f.replay(ctx); err != nil && ctx.Err() == nil {
			f.logger.Warn("what an engine holds is not known until it tells of new blocks", "error", err)
		}
	}
	f.first.Do(func() { close(f.ready) })
}

// lostConnection is called when a connection fails or cannot be made: it is said once, until there is one again.
func (f *Follower) lostConnection(err error) {
	f.counts.lost.Add(1)
	if f.setActive(false) || !f.said {
		f.said = true
		f.logger.Warn("the events of an engine are not heard; it is tried again", "error", err)
	}
}

// setActive notes whether the engine is connected, and tells whether it was.
func (f *Follower) setActive(active bool) (before bool) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	before, f.active = f.active, active
	return before
}

// take is told every batch that the engine publishes.
func (f *Follower) take(ctx context.Context, sequence uint64, batch []byte) {
	switch {
	case f.began && sequence == f.live:
	case f.began && sequence < f.live:
		// The engine counts from the start again: it holds nothing of what it held.
		f.forget(fmt.Sprintf("batch %d came after %d", sequence, f.live-1))
		f.next = 0
		f.recover(ctx, sequence)
	case sequence > f.next:
		f.recover(ctx, sequence)
	}
	f.began, f.live = true, sequence+1
	if sequence < f.next {
		return // it was told again already
	}
	f.next = sequence + 1
	f.apply(batch)
}

// recover asks the engine for the batches from f.next on, before the one that was just published. What the rank holds is not known
// when they cannot be had, and counts as nothing.
func (f *Follower) recover(ctx context.Context, published uint64) {
	if published <= f.next {
		return
	}
	missing := fmt.Sprintf("batches %d to %d", f.next, published-1)
	if f.began {
		f.counts.gaps.Add(1)
	}
	if f.source.ReplayEndpoint == "" {
		if f.began {
			f.forget("lost " + missing)
		}
		return
	}
	asked, told := f.next, f.counts.batches.Load()
	err := f.replay(ctx)
	told = f.counts.batches.Load() - told
	switch {
	case err != nil:
		f.lost(fmt.Sprintf("%s were lost, and asking for them failed: %v", missing, err))
	case f.next < published:
		f.lost(fmt.Sprintf("batches %d to %d cannot be had any more", f.next, published-1))
	default:
		f.counts.recovered.Add(1)
		f.logger.Info("an engine told again what was lost", "from", asked, "batches", told)
	}
}

// replay asks the engine for the batches from f.next on and applies them.
func (f *Follower) replay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	return f.ask(ctx, f.source.ReplayEndpoint, [][]byte{nil, binary.BigEndian.AppendUint64(nil, f.next)}, func(parts [][]byte) bool {
		// Engines put one or two empty parts in front.
		if len(parts) < 2 || len(parts[len(parts)-2]) != 8 {
			return true
		}
		sequence := binary.BigEndian.Uint64(parts[len(parts)-2])
		switch {
		case sequence == replayEnd:
			return false
		case sequence < f.next:
			return true // asked for nothing of the kind
		case sequence > f.next:
			f.lost(fmt.Sprintf("batches %d to %d cannot be had any more", f.next, sequence-1))
		}
		f.next = sequence + 1
		f.apply(parts[len(parts)-1])
		return true
	})
}

// lost notes that batches are missing. Before the first one that was applied there is nothing to forget.
func (f *Follower) lost(why string) {
	if f.began || f.next > 0 {
		f.forget(why)
	}
}

// forget lets the rank hold nothing until it tells of new blocks.
func (f *Follower) forget(why string) {
	f.logger.Warn("events of a rank were lost; its cache counts as empty until it tells of new blocks", "reason", why)
	f.index.RemoveRank(f.source.Rank)
	for rank := range uint32(maxRanks) {
		f.normalizer.Forget(rank)
	}
}

// maxRanks bounds the ranks of a worker whose books a batch may open.
const maxRanks = 4096

// apply applies a batch.
func (f *Follower) apply(batch []byte) {
	f.counts.batches.Add(1)
	events, complete, err := f.normalizer.Batch(batch)
	if err != nil || !complete {
		f.counts.unreadable.Add(1)
		f.forget("a batch cannot be read")
	}
	for _, event := range events {
		event.Rank = f.source.Rank
		if event.Op == kvindex.Stored && len(event.Blocks) == 0 {
			if !f.odd {
				f.odd = true
				f.logger.Error("an engine stores blocks of another size than was said; they cannot be used", "block_size", f.source.BlockSize)
			}
			continue
		}
		f.count(event.Op, f.index.Apply(event)) // what an engine says of blocks that nobody knows cannot be helped
	}
}

// count counts an event, and what the index said.
func (f *Follower) count(op kvindex.Op, err error) {
	switch op {
	case kvindex.Stored:
		f.counts.stored.Add(1)
	case kvindex.Removed:
		f.counts.removed.Add(1)
	case kvindex.Cleared:
		f.counts.cleared.Add(1)
	}
	switch {
	case err == nil:
	case errors.Is(err, kvindex.ErrUnknownParent):
		f.counts.unknownParent.Add(1)
	case errors.Is(err, kvindex.ErrUnknownBlock):
		f.counts.unknownBlock.Add(1)
	default:
		f.counts.refused.Add(1)
	}
}
