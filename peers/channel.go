package peers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tinylib/msgp/msgp"

	"signalbox/discovery"
	"signalbox/kvevents"
	"signalbox/transport/zmq"
)

// Plane is a process's place on the event plane.
type Plane struct {
	Backend discovery.Backend
	// Host is the address that others connect to.
	Host string
	// Open makes the way out of one publisher, and returns how others find it; nil opens a ZMQ socket. Receive carries others'
	// messages; nil means ZMQ.
	Open    func(scope discovery.EventScope, topic string) (Outlet, discovery.EventTransport, error)
	Receive kvevents.Plane
	Logger  *slog.Logger
}

// Outlet is one publisher's way out.
type Outlet interface {
	// Publish sends an envelope; frame has [EnvelopeHead] bytes of room before it. Calls come one after the other.
	Publish(publisher, sequence uint64, frame []byte)
	Close() error
}

// EnvelopeHead is the room before an envelope for what a plane writes there, in bytes.
const EnvelopeHead = 5

// socket is an outlet of its own, as ZMQ publishers are.
type socket struct {
	*zmq.Publisher
	topic []byte
}

// Publish implements Outlet: topic, publisher, sequence, and the envelope behind a version and its length.
func (s socket) Publish(publisher, sequence uint64, frame []byte) {
	frame[0] = 1
	binary.BigEndian.PutUint32(frame[1:], uint32(len(frame)-EnvelopeHead))
	s.Publisher.Publish(s.topic, binary.BigEndian.AppendUint64(nil, publisher), binary.BigEndian.AppendUint64(nil, sequence), frame)
}

func (p *Plane) outlet(scope discovery.EventScope, topic string) (Outlet, discovery.EventTransport, error) {
	if p.Open != nil {
		return p.Open(scope, topic)
	}
	publisher, err := zmq.Listen("0.0.0.0:0")
	if err != nil {
		return nil, discovery.EventTransport{}, err
	}
	return socket{publisher, []byte(topic)}, discovery.EventTransport{ZMQ: "tcp://" + net.JoinHostPort(p.Host, strconv.Itoa(publisher.Port()))}, nil
}

// publisherIDMask keeps publisher ids within 53 bits, so that they survive JSON numbers.
const publisherIDMask = 1<<53 - 1

// withdrawTimeout bounds how long a record's removal may take.
const withdrawTimeout = 3 * time.Second

// channel is this process's voice in one topic of an endpoint.
type channel struct {
	plane    *Plane
	record   *discovery.EventChannel
	outlet   Outlet
	sequence uint64
	dropped  atomic.Uint64
	counters counters
	cancel   context.CancelFunc
	wait     sync.WaitGroup
}

// open listens, announces the channel, and hands what others publish in the topic to hear, from several goroutines.
func (p *Plane) open(endpoint discovery.EndpointID, topic string, hear func(payload []byte) error) (*channel, context.Context, error) {
	scope := discovery.EndpointScope(endpoint)
	outlet, transport, err := p.outlet(scope, topic)
	if err != nil {
		return nil, nil, fmt.Errorf("events of topic %s: %w", topic, err)
	}
	c := &channel{plane: p, outlet: outlet, record: &discovery.EventChannel{Scope: scope, Topic: topic, PublisherID: rand.Uint64() & publisherIDMask, Transport: transport}}
	ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
	err = discovery.Publish(ctx, p.Backend, c.record)
	cancel()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("register the channel of topic %s: %w", topic, err), outlet.Close())
	}
	ctx, c.cancel = context.WithCancel(context.Background())
	c.wait.Go(func() { c.follow(ctx, scope, topic, hear) }) // ends with ctx
	return c, ctx, nil
}

func (c *channel) follow(ctx context.Context, scope discovery.EventScope, topic string, hear func(payload []byte) error) {
	logger := c.plane.Logger.With("topic", topic)
	receive := c.plane.Receive
	if receive == nil {
		receive = kvevents.ZMQ{}
	}
	receiver := func(from *discovery.EventChannel) kvevents.Receiver {
		own, complained := from.PublisherID == c.record.PublisherID, false
		var last uint64 // sequence of the newest message
		heard := false
		bad := func(err error) {
			if !complained {
				complained = true
				logger.Warn("a message of another router cannot be read; further ones of this publisher are left out silently", "publisher", from.PublisherID, "error", err)
			}
		}
		return kvevents.Receiver{
			Connected: func() { heard = false },
			Lost:      func(error) { c.counters.lost.Add(1) },
			Bad: func(err error) {
				c.counters.badEnvelopes.Add(1)
				bad(err)
			},
			Message: func(envelope kvevents.Envelope) {
				if own {
					return
				}
				if heard {
					c.counters.order(last, envelope.Sequence)
				}
				heard, last = true, max(last, envelope.Sequence)
				c.counters.messages.Add(1)
				if err := hear(envelope.Payload); err != nil {
					c.counters.badPayloads.Add(1)
					bad(err)
				}
			},
		}
	}
	broken := func(err error) { logger.Warn("another router cannot be heard", "error", err) }
	if err := kvevents.Follow(ctx, c.plane.Backend, &countedPlane{Plane: receive, channel: c, known: make(map[uint64]bool)}, scope, topic, receiver, broken); err != nil && ctx.Err() == nil {
		logger.Error("other routers cannot be heard", "error", err)
	}
}

// send publishes a payload in the event plane's envelope. Only one goroutine may call it.
func (c *channel) send(payload []byte) {
	envelope := msgp.AppendMapHeader(make([]byte, EnvelopeHead, len(payload)+128), 5)
	envelope = msgp.AppendString(envelope, "publisher_id")
	envelope = msgp.AppendUint64(envelope, c.record.PublisherID)
	envelope = msgp.AppendString(envelope, "sequence")
	envelope = msgp.AppendUint64(envelope, c.sequence)
	envelope = msgp.AppendString(envelope, "published_at")
	envelope = msgp.AppendUint64(envelope, uint64(time.Now().UnixMilli()))
	envelope = msgp.AppendString(envelope, "topic")
	envelope = msgp.AppendString(envelope, c.record.Topic)
	envelope = msgp.AppendString(envelope, "payload")
	envelope = msgp.AppendBytes(envelope, payload)
	c.outlet.Publish(c.record.PublisherID, c.sequence, envelope)
	c.sequence++
}

// close withdraws the channel and ends what open started.
func (c *channel) close() {
	c.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
	defer cancel()
	err := discovery.Withdraw(ctx, c.plane.Backend, c.record)
	c.wait.Wait()
	if err = errors.Join(err, c.outlet.Close()); err != nil && !errors.Is(err, discovery.ErrClosed) {
		c.plane.Logger.Warn("an event channel did not close cleanly", "topic", c.record.Topic, "error", err)
	}
}

// optional reads a value or nil.
func optional[T any](data []byte, read func([]byte) (T, []byte, error)) (value T, known bool, rest []byte, err error) {
	if msgp.IsNil(data) {
		rest, err = msgp.ReadNilBytes(data)
		return value, false, rest, err
	}
	value, rest, err = read(data)
	return value, true, rest, err
}
