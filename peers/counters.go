package peers

import (
	"context"
	"sync"
	"sync/atomic"

	"signalbox/discovery"
	"signalbox/kvevents"
)

// Counters tell how well the other publishers of a topic are heard. But for Sources they only grow.
type Counters struct {
	// Sources are the other publishers that are listened to now, Replacements the times that one was found at another address.
	Sources      int
	Replacements uint64
	// Messages were taken, with Events in them.
	Messages, Events uint64
	// Missing messages were noticed by holes in a publisher's numbers; Late ones have a number that is not larger than the one before.
	Missing, Late uint64
	// BadEnvelopes and BadPayloads could not be read.
	BadEnvelopes, BadPayloads uint64
	// Lost counts connections that broke or could not be made.
	Lost uint64
}

// counters are the live Counters.
type counters struct {
	sources                                                                atomic.Int64
	replacements, messages, missing, late, badEnvelopes, badPayloads, lost atomic.Uint64
}

func (c *counters) snapshot() Counters {
	return Counters{
		Sources: int(c.sources.Load()), Replacements: c.replacements.Load(), Messages: c.messages.Load(),
		Missing: c.missing.Load(), Late: c.late.Load(), BadEnvelopes: c.badEnvelopes.Load(), BadPayloads: c.badPayloads.Load(), Lost: c.lost.Load(),
	}
}

// order compares a message's number with the largest before it.
func (c *counters) order(last, sequence uint64) {
	switch {
	case sequence <= last:
		c.late.Add(1)
	case sequence > last+1:
		c.missing.Add(sequence - last - 1)
	}
}

// countedPlane counts the publishers that are listened to.
type countedPlane struct {
	kvevents.Plane
	channel *channel

	mutex sync.Mutex
	known map[uint64]bool
}

// Receive implements kvevents.Plane.
func (p *countedPlane) Receive(ctx context.Context, from *discovery.EventChannel, receiver kvevents.Receiver) error {
	if from.PublisherID != p.channel.record.PublisherID {
		c := &p.channel.counters
		p.mutex.Lock()
		if p.known[from.PublisherID] {
			c.replacements.Add(1)
		}
		p.known[from.PublisherID] = true
		p.mutex.Unlock()
		c.sources.Add(1)
		defer c.sources.Add(-1)
	}
	return p.Plane.Receive(ctx, from, receiver)
}
