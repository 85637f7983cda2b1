package feed

import (
	"bytes"
	"context"

	"signalbox/discovery"
)

// item is something that a watcher has to look at: a key whose state may differ from what was delivered, or the mark behind
// the initial content.
type item struct {
	key    string
	synced bool
}

// watcher compares what its receiver was told with what the feed holds now. It queues keys, not events: the queue can't
// outgrow the number of keys, however slow the receiver.
type watcher struct {
	feed   *Feed
	prefix string
	wake   chan struct{}        // one slot: "look at the queue or at feed.closed"
	out    chan discovery.Event // closed by pump

	// Guarded by feed.mu.
	queue  []item
	queued map[string]struct{}

	// Only pump uses it.
	delivered map[string]*entry
}

func (w *watcher) enqueueLocked(next item) {
	if !next.synced {
		if _, waiting := w.queued[next.key]; waiting {
			return
		}
		w.queued[next.key] = struct{}{}
	}
	w.queue = append(w.queue, next)
	w.signal()
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// pump runs until ctx ends or the feed closes.
func (w *watcher) pump(ctx context.Context) {
	defer close(w.out)
	defer func() {
		w.feed.mu.Lock()
		delete(w.feed.watchers, w)
		w.feed.mu.Unlock()
	}()
	for {
		event, state := w.next()
		switch state {
		case closed:
			return
		case idle:
			select {
			case <-w.wake:
			case <-ctx.Done():
				return
			}
		case ready:
			for sent := false; !sent; {
				select {
				case w.out <- event:
					sent = true
				case <-ctx.Done():
					return
				case <-w.wake:
					if w.isClosed() {
						return
					}
					// Something else was queued; the receiver is still busy with this one.
				}
			}
			// A signal may have been taken above, so the queue is looked at again before waiting.
		}
	}
}

func (w *watcher) isClosed() bool {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	return w.feed.closed
}

type pumpState uint8

const (
	idle pumpState = iota
	ready
	closed
)

// next takes items from the queue until one of them is news for the receiver.
func (w *watcher) next() (discovery.Event, pumpState) {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	for {
		if w.feed.closed {
			return discovery.Event{}, closed
		}
		if len(w.queue) == 0 {
			w.queue = nil // give the snapshot's memory back
			return discovery.Event{}, idle
		}
		first := w.queue[0]
		w.queue = w.queue[1:]
		if first.synced {
			return discovery.Event{Kind: discovery.Synced}, ready
		}
		delete(w.queued, first.key)
		last, now := w.delivered[first.key], w.feed.entries[first.key]
		switch {
		case now == nil && last == nil:
			continue
		case now == nil:
			delete(w.delivered, first.key)
			return discovery.Event{Kind: discovery.Delete, Key: first.key, Value: last.value, Record: last.record}, ready
		case last != nil && bytes.Equal(last.value, now.value):
			continue
		}
		w.delivered[first.key] = now
		return discovery.Event{Kind: discovery.Put, Key: first.key, Value: now.value, Record: now.record}, ready
	}
}
