package kvevents

import (
	"context"
	"fmt"
	"log/slog"
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

// FollowLoad hands on the load reports of an endpoint's workers until ctx ends. load is called from several goroutines. plane nil
// means ZMQ.
func FollowLoad(ctx context.Context, backend discovery.Backend, plane Plane, endpoint discovery.EndpointID, logger *slog.Logger, load func(Load)) {
	if plane == nil {
		plane = ZMQ{}
	}
	followLoad(ctx, backend, plane, endpoint, logger.With("endpoint", endpoint.String()), load, &counters{})
}

// followLoad hands load reports on, and counts.
func followLoad(ctx context.Context, backend discovery.Backend, plane Plane, endpoint discovery.EndpointID, logger *slog.Logger, load func(Load), counters *counters) {
	warn := func(err error) { logger.Warn("load reports of a worker cannot be received", "error", err) }
	receiver := func(channel *discovery.EventChannel) Receiver {
		complained := false
		bad := func(err error) {
			counters.malformed.Add(1)
			if !complained {
				complained = true
				logger.Warn("a load report cannot be read; further ones of this publisher are only counted", "publisher", channel.PublisherID, "error", err)
			}
		}
		return Receiver{
			Connected: func() {},
			Lost:      func(error) { counters.disconnects.Add(1) },
			Bad:       bad,
			Message: func(envelope Envelope) {
				report, err := ParseLoad(envelope.Payload)
				if err != nil {
					bad(err)
					return
				}
				counters.loads.Add(1)
				load(report)
			},
		}
	}
	if err := Follow(ctx, backend, plane, discovery.EndpointScope(endpoint), LoadTopic, receiver, warn); err != nil && ctx.Err() == nil {
		logger.Error("load reports are not received", "error", err)
	}
}
