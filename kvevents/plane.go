package kvevents

import (
	"context"
	"fmt"

	"signalbox/discovery"
	"signalbox/transport/zmq"
)

// Plane carries the messages of publishers: one implementation per transport.
type Plane interface {
	// Receive hands the messages of one channel to the receiver until ctx ends; then it returns nil. It reconnects by itself. An
	// error tells that the channel can't be received at all.
	Receive(ctx context.Context, channel *discovery.EventChannel, receiver Receiver) error
}

// Receiver is told what comes over a channel. The calls come from one goroutine; a slow one holds the channel back.
type Receiver struct {
	// Connected is called after each (re)connection. What was sent before it may be lost.
	Connected func()
	// Message is called for each message of the channel's publisher; the payload is valid until it returns.
	Message func(Envelope)
	// Bad is called for a message that can't be read.
	Bad func(error)
	// Lost is called when the connection fails or can't be made.
	Lost func(error)
}

// ZMQ receives from publishers that listen themselves.
type ZMQ struct{}

// Receive implements Plane.
func (ZMQ) Receive(ctx context.Context, channel *discovery.EventChannel, receiver Receiver) error {
	if channel.Transport.ZMQ == "" {
		return fmt.Errorf("publisher %d of topic %q cannot be reached: its events don't come over ZeroMQ from the publisher itself, which is what this process uses",
			channel.PublisherID, channel.Topic)
	}
	return zmq.Subscribe(ctx, channel.Transport.ZMQ, channel.Topic, zmq.Events{
		Connected: receiver.Connected,
		Lost:      receiver.Lost,
		Message: func(parts [][]byte) {
			if len(parts) > 0 && string(parts[0]) != channel.Topic {
				return // a topic whose name only begins so
			}
			envelope, err := ParseFrames(parts, channel.Topic)
			if err == nil && envelope.PublisherID != channel.PublisherID {
				err = fmt.Errorf("a message of publisher %d from the socket of publisher %d", envelope.PublisherID, channel.PublisherID)
			}
			if err != nil {
				receiver.Bad(err)
				return
			}
			receiver.Message(envelope)
		},
	})
}
