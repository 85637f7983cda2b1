package kvevents

import (
	"context"
	"fmt"
	"sync"

	"signalbox/discovery"
)

// Follow receives everything that is published under a topic in a scope, until ctx ends or the backend closes: it watches
// discovery for channels and listens to each. receiver makes what is told of one channel; those of different channels are called
// at the same time. It returns an error when discovery can't be watched; broken is told of channels that can't be received.
func Follow(ctx context.Context, backend discovery.Backend, plane Plane, scope discovery.EventScope, topic string,
	receiver func(*discovery.EventChannel) Receiver, broken func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	watch, err := backend.Watch(ctx, discovery.EventChannels, discovery.EventPrefix(scope, topic))
	if err != nil {
		cancel()
		return fmt.Errorf("watch the channels of topic %s: %w", topic, err)
	}
	type reception struct {
		channel *discovery.EventChannel
		cancel  context.CancelFunc
		done    chan struct{}
	}
	receptions := make(map[uint64]reception) // by publisher
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for event := range watch {
		channel, ok := event.Record.(*discovery.EventChannel)
		if !ok {
			continue
		}
		if old, found := receptions[channel.PublisherID]; found {
			if event.Kind == discovery.Put && equalTransports(old.channel.Transport, channel.Transport) {
				continue
			}
			old.cancel()
			<-old.done
			delete(receptions, channel.PublisherID)
		}
		if event.Kind != discovery.Put {
			continue
		}
		channelContext, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		receptions[channel.PublisherID] = reception{channel, stop, done}
		all.Go(func() {
			defer close(done)
			defer stop()
			if err := plane.Receive(channelContext, channel, receiver(channel)); err != nil {
				broken(err)
			}
		})
	}
	return nil
}

// followLoad hands load reports on.
func (s *Subscriber) followLoad(ctx context.Context) {
	warn := func(err error) { s.options.Logger.Warn("load reports of a worker cannot be received", "error", err) }
	receiver := func(channel *discovery.EventChannel) Receiver {
		complained := false
		bad := func(err error) {
			s.counters.malformed.Add(1)
			if !complained {
				complained = true
				s.options.Logger.Warn("a load report cannot be read; further ones of this publisher are only counted", "publisher", channel.PublisherID, "error", err)
			}
		}
		return Receiver{
			Connected: func() {},
			Lost:      func(error) { s.counters.disconnects.Add(1) },
			Bad:       bad,
			Message: func(envelope Envelope) {
				load, err := ParseLoad(envelope.Payload)
				if err != nil {
					bad(err)
					return
				}
				s.counters.loads.Add(1)
				s.options.Load(load)
			},
		}
	}
	if err := Follow(ctx, s.options.Backend, s.options.Plane, discovery.EndpointScope(s.options.Endpoint), LoadTopic, receiver, warn); err != nil {
		s.options.Logger.Error("load reports are not received", "error", err)
	}
}
