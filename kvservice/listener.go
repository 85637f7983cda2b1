package kvservice

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"signalbox/kvevents/engine"
	"signalbox/kvindex"
	"signalbox/transport/zmq"
)

// asker asks a ROUTER socket; [zmq.Ask] is the one.
type asker func(ctx context.Context, endpoint string, request [][]byte, more func(parts [][]byte) bool) error

// listener follows the events of one rank and applies them to an index.
type listener struct {
	source     Source
	index      *kvindex.Index
	normalizer *engine.Normalizer
	logger     *slog.Logger
	ask        asker
	cancel     context.CancelFunc
	done       chan struct{}

	// live is the sequence that the engine publishes next, once it has published one; next is the one to apply next, which is
	// further on after a replay that reached ahead of what is published.
	began      bool
	live, next uint64

	mutex  sync.Mutex
	active bool
}

const (
	// engineMessage is how many parts an engine's message has: topic, sequence, batch.
	engineMessage = 3
	// replayTimeout bounds how long an engine may take to tell again what was lost.
	replayTimeout = 10 * time.Second
	// replayEnd is the sequence that ends what an engine tells again.
	replayEnd = math.MaxUint64
)

// follow applies the rank's events until ctx ends.
func (l *listener) follow(ctx context.Context) {
	err := zmq.Subscribe(ctx, l.source.Endpoint, "", zmq.Events{
		Connected: func() { l.setActive(true) },
		Lost:      func(error) { l.setActive(false) },
		Message: func(parts [][]byte) {
			if len(parts) == engineMessage && len(parts[1]) == 8 {
				l.take(ctx, binary.BigEndian.Uint64(parts[1]), parts[2])
			}
		},
	})
	if err != nil {
		l.logger.Error("events of a rank cannot be received", "error", err)
	}
}

func (l *listener) setActive(active bool) {
	l.mutex.Lock()
	l.active = active
	l.mutex.Unlock()
}

// take is told every batch that the engine publishes.
func (l *listener) take(ctx context.Context, sequence uint64, batch []byte) {
	switch {
	case l.began && sequence == l.live:
	case l.began && sequence < l.live:
		// The engine counts from the start again: it holds nothing of what it held.
		l.forget(fmt.Sprintf("batch %d came after %d", sequence, l.live-1))
		l.next = 0
		l.recover(ctx, sequence)
	case sequence > l.next:
		l.recover(ctx, sequence)
	}
	l.began, l.live = true, sequence+1
	if sequence < l.next {
		return // it was told again already
	}
	l.next = sequence + 1
	l.apply(batch)
}

// recover asks the engine for the batches from l.next on, before the one that was just published. What the rank holds is not known
// when they cannot be had, and counts as nothing.
func (l *listener) recover(ctx context.Context, published uint64) {
	if published <= l.next {
		return
	}
	missing := fmt.Sprintf("batches %d to %d", l.next, published-1)
	if l.source.ReplayEndpoint == "" {
		if l.began {
			l.forget("lost " + missing)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	asked, told := l.next, 0
	err := l.ask(ctx, l.source.ReplayEndpoint, [][]byte{nil, binary.BigEndian.AppendUint64(nil, l.next)}, func(parts [][]byte) bool {
		// Engines put one or two empty parts in front.
		if len(parts) < 2 || len(parts[len(parts)-2]) != 8 {
			return true
		}
		sequence := binary.BigEndian.Uint64(parts[len(parts)-2])
		switch {
		case sequence == replayEnd:
			return false
		case sequence < l.next:
			return true // asked for nothing of the kind
		case sequence > l.next:
			l.lost(fmt.Sprintf("batches %d to %d cannot be had any more", l.next, sequence-1))
		}
		l.next, told = sequence+1, told+1
		l.apply(parts[len(parts)-1])
		return true
	})
	switch {
	case err != nil:
		l.lost(fmt.Sprintf("%s were lost, and asking for them failed: %v", missing, err))
	case l.next < published:
		l.lost(fmt.Sprintf("batches %d to %d cannot be had any more", l.next, published-1))
	default:
		l.logger.Info("an engine told again what was lost", "from", asked, "batches", told)
	}
}

// lost notes that batches are missing. Before the first one that was applied there is nothing to forget.
func (l *listener) lost(why string) {
	if l.began || l.next > 0 {
		l.forget(why)
	}
}

// forget lets the rank hold nothing until it tells of new blocks.
func (l *listener) forget(why string) {
	l.logger.Warn("events of a rank were lost; its cache counts as empty until it tells of new blocks", "reason", why)
	l.index.RemoveRank(l.source.Rank)
	for rank := range uint32(maxWorkerRanks) {
		l.normalizer.Forget(rank)
	}
}

// apply applies a batch.
func (l *listener) apply(batch []byte) {
	events, complete, err := l.normalizer.Batch(batch)
	if err != nil || !complete {
		l.forget("a batch cannot be read")
	}
	for _, event := range events {
		event.Rank = l.source.Rank
		_ = l.index.Apply(event) // what an engine says of blocks that nobody knows cannot be helped
	}
}
