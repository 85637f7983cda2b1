package kvevents

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"signalbox/discovery"
	"signalbox/kvindex"
)

// need is what a feed lacks before it can apply live events again.
type need uint8

const (
	needNothing need = iota
	// needTail: the events after the cursor.
	needTail
	// needAll: everything that the rank holds.
	needAll
)

// feed keeps one rank of the sink equal to what its publisher says. It has two goroutines: one receives messages, the other
// asks for what is missing (recovery.go). While something is missing, live messages are held; then they are applied from where
// the answer ends.
type feed struct {
	*Subscriber
	rank    kvindex.Rank
	channel *discovery.EventChannel
	target  *discovery.Instance // nil: nobody answers queries
	cancel  context.CancelFunc
	done    sync.WaitGroup

	incoming Batch // of the receiving goroutine
	replayed Batch // of the recovering one

	wake chan struct{} // one token: look at lacks

	mu        sync.Mutex
	state     State
	connected bool
	begun     bool   // cursor is meaningful
	cursor    uint64 // id of the last event applied
	// fresh: nothing has ever been published, says a dump that ends with event 0. Publishers begin with event 1; one that begins with
	// 0 is understood, too.
	fresh bool
	lacks need
	// epoch changes when what is being asked for is no longer wanted.
	epoch uint64
	// The newest envelope, by which a publisher that began anew is recognised.
	seen                  bool
	sequence, publishedAt uint64
	bornAt                uint64 // when the publisher began anew, by its clock
	held                  []heldMessage
	heldBytes             int
	complained            bool // about messages that can't be read
	badAt                 time.Time
}

// heldMessage is a live message that waits for a recovery.
type heldMessage struct {
	first   uint64 // id of its first event that was not applied
	from    int    // which one of its events that is
	payload []byte
}

func (s *Subscriber) startFeed(ctx context.Context, rank kvindex.Rank, channel *discovery.EventChannel, target *discovery.Instance) *feed {
	f := &feed{Subscriber: s, rank: rank, channel: channel, target: target, wake: make(chan struct{}, 1)}
	ctx, f.cancel = context.WithCancel(ctx)
	s.counters.started.Add(1)
	if target != nil {
		f.lacks = needAll // before any event arrives
		f.done.Go(func() { f.recoverLoop(ctx) })
	}
	f.done.Go(func() {
		err := s.options.Plane.Receive(ctx, channel, Receiver{Connected: f.connect, Message: f.message, Bad: f.bad, Lost: f.lose})
		if err != nil {
			s.options.Logger.Error("KV events of a rank cannot be received", "worker", rank.WorkerID, "dp_rank", rank.DPRank, "error", err)
			f.mu.Lock()
			f.become(Unreachable)
			f.mu.Unlock()
		}
	})
	return f
}

// stop ends the feed and forgets what the sink knew from it.
func (f *feed) stop() {
	f.cancel()
	f.done.Wait()
	f.options.Sink.RemoveRank(f.rank)
}

// become changes the state that Status shows. The caller holds mu.
func (f *feed) become(state State) {
	if f.state != state {
		if f.state == Joining && (state == Live || state == Degraded) {
			f.counters.activated.Add(1)
		}
		f.state = state
		f.changed.broadcast()
	}
}

// want asks the recovering goroutine for what is missing. The caller holds mu.
func (f *feed) want(what need) {
	f.lacks = max(f.lacks, what)
	if f.state != Joining {
		f.become(Recovering)
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// wantMissing asks for the events after the cursor, or for all when what is known is incomplete anyway. The caller holds mu.
func (f *feed) wantMissing() {
	if f.state == Degraded {
		f.want(needAll)
	} else {
		f.want(needTail)
	}
}

// forget empties the rank and what is known of its publisher's position. The caller holds mu.
func (f *feed) forget() {
	f.epoch++
	f.begun, f.fresh, f.seen, f.bornAt = false, false, false, 0
	f.release()
	f.options.Sink.RemoveRank(f.rank)
}

func (f *feed) release() { f.held, f.heldBytes = nil, 0 }

func (f *feed) connect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.connected = true
	f.counters.connected.Add(1)
	f.forget() // events may have been missed, or the publisher may be another one
	if f.target == nil {
		f.become(Live)
		return
	}
	f.want(needAll)
}

// again starts over with an empty rank, as after a new connection.
func (f *feed) again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.connected {
		f.forget()
		if f.target != nil {
			f.want(needAll)
		}
	}
}

func (f *feed) lose(err error) {
	f.counters.disconnects.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.connected || f.state == Joining { // not at each try to come back
		f.options.Logger.Warn("no connection for KV events; the rank's cache counts as empty until there is one",
			"worker", f.rank.WorkerID, "dp_rank", f.rank.DPRank, "error", err)
	}
	f.connected = false
	f.forget()
	if f.target != nil {
		f.lacks = needAll
	}
	f.become(Unreachable)
}

func (f *feed) bad(err error) {
	f.counters.malformed.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.complained {
		f.complained = true
		f.options.Logger.Warn("a message with KV events cannot be read; further ones of this publisher are only counted",
			"worker", f.rank.WorkerID, "dp_rank", f.rank.DPRank, "error", err)
	}
	// Its events are missing now, and the next message may be far away. A publisher of nothing but such messages is asked now and
	// then.
	if now := time.Now(); f.target != nil && f.begun && now.Sub(f.badAt) >= f.options.pace.settle {
		f.badAt = now
		f.wantMissing()
	}
}

// message takes one live message.
func (f *feed) message(envelope Envelope) {
	if err := f.incoming.Decode(envelope.Payload); err != nil {
		f.bad(err)
		return
	}
	for i := range f.incoming.Events {
		if f.incoming.Events[i].Change.Rank != f.rank {
			f.counters.foreign.Add(1)
			return // its ids are missing now: the next message tells
		}
	}
	f.threads <- struct{}{}
	defer func() { <-f.threads }()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.connected {
		return
	}
	f.counters.batches.Add(1)
	if !f.follow(envelope) {
		f.counters.stale.Add(uint64(len(f.incoming.Events)))
		return
	}
	f.take(&f.incoming, 0, envelope.Payload, true)
}

// follow watches the publisher's own numbering of messages. One that falls back although the message is younger means that the
// publisher began anew; its event ids begin anew too. follow returns false for messages from before. The caller holds mu.
func (f *feed) follow(envelope Envelope) bool {
	if envelope.PublishedAt < f.bornAt {
		return false
	}
	if f.seen && envelope.Sequence <= f.sequence {
		if envelope.PublishedAt <= f.publishedAt { // a duplicate, or a late message
			return true
		}
		f.counters.restarts.Add(1)
		f.options.Logger.Warn("a publisher of KV events began anew", "worker", f.rank.WorkerID, "dp_rank", f.rank.DPRank, "publisher", f.channel.PublisherID)
		f.forget()
		f.bornAt = envelope.PublishedAt
		if f.target != nil {
			f.want(needAll)
		}
	}
	f.seen, f.sequence, f.publishedAt = true, envelope.Sequence, envelope.PublishedAt
	return true
}

// take applies a message's events from the given one on, in order, as far as they follow on the cursor. What can't be applied yet
// is held. live tells that the message has just come, so that its payload is not ours to keep. The caller holds mu.
func (f *feed) take(batch *Batch, from int, payload []byte, live bool) {
	for i := from; i < len(batch.Events); i++ {
		event := &batch.Events[i]
		switch {
		case event.Legacy && (!f.begun || event.ID > f.cursor): // nothing before it matters any more
			f.epoch++
			f.lacks = needNothing
			f.release()
			f.advance(event)
			f.become(Live)
		case f.lacks != needNothing:
			f.hold(heldMessage{event.ID, i, payload}, live)
			return
		case !f.begun || event.ID == f.cursor+1 || f.fresh && event.ID == 0:
			f.advance(event)
		case event.ID <= f.cursor:
			if live { // else the answer of the recovery covered it
				f.counters.stale.Add(1)
			}
		default:
			f.counters.gaps.Add(1)
			if f.target == nil { // nobody to ask: what is known may be wrong from here on
				f.options.Sink.RemoveRank(f.rank)
				f.advance(event)
				continue
			}
			f.wantMissing()
			f.hold(heldMessage{event.ID, i, payload}, live)
			return
		}
	}
}

// advance applies the event and moves the cursor to it. The caller holds mu.
func (f *feed) advance(event *Event) {
	f.begun, f.fresh, f.cursor = true, false, event.ID
	f.apply(event)
}

func (f *feed) apply(event *Event) {
	if event.Change.Op == 0 {
		f.counters.unusable.Add(1)
		return
	}
	f.counters.applied(&event.Change, f.options.Sink.Apply(event.Change))
}

// hold keeps a message for after the recovery. When there are too many the oldest is dropped: the recovery then finds a hole and
// asks again. The caller holds mu.
func (f *feed) hold(message heldMessage, live bool) {
	if live {
		message.payload = bytes.Clone(message.payload)
	}
	f.held = append(f.held, message)
	f.heldBytes += len(message.payload)
	for f.heldBytes > f.options.pace.holdBytes && len(f.held) > 0 {
		f.counters.dropped.Add(1)
		f.heldBytes -= len(f.held[0].payload)
		f.held[0] = heldMessage{}
		f.held = f.held[1:]
	}
}

// replay applies what was held. The caller holds mu.
func (f *feed) replay() {
	held := f.held
	f.release()
	slices.SortStableFunc(held, func(a, b heldMessage) int { return cmp.Compare(a.first, b.first) })
	for _, message := range held {
		if f.replayed.Decode(message.payload) == nil { // it could be read before
			f.take(&f.replayed, message.from, message.payload, false)
		}
	}
}
