package kvevents

import (
	"context"
	"fmt"
	"sync"

	"signalbox/discovery"
)

// Bus is a connection to a message bus: *nats.Conn of package transport/nats is one.
type Bus interface {
	// Subscribe hands on what is published under the subject until ctx ends. connected is called once the bus knows of the
	// subscription, and again after each time that messages may have been lost; lost is called when the connection is. The
	// three may be called at the same time; a message is the callee's to keep.
	Subscribe(ctx context.Context, subject string, message func([]byte), connected func(), lost func(error)) error
}

// NATS receives over a bus that publishers and subscribers share. Publishers of one endpoint share a subject, so that it subscribes to
// each subject once and sorts the messages by publisher.
type NATS struct {
	bus Bus

	mu       sync.Mutex
	subjects map[string]*busSubject
}

// NewNATS returns the plane of a bus.
func NewNATS(bus Bus) *NATS { return &NATS{bus: bus, subjects: make(map[string]*busSubject)} }

// busSubject is one subscription and all who share it. Its mutex is held only to look at the books.
type busSubject struct {
	topic  string
	cancel context.CancelFunc
	ended  chan struct{}

	mu        sync.Mutex
	receivers map[uint64][]*busReceiver // by publisher
	count     int
	connected bool
	failure   error
}

// busReceiver is one channel's receiver. What it is told waits in a queue, so that its calls come one after the other; a full one holds
// up the subject.
type busReceiver struct {
	ctx   context.Context
	queue chan busNews
}

// busNews is one thing to tell a receiver: a message, or that the connection is made or lost.
type busNews struct {
	envelope  Envelope
	connected bool
	lost      error
	bad       error
}

// busQueue is how many messages wait for a slow receiver before it holds up the others of its subject.
const busQueue = 256

// Receive implements Plane.
func (n *NATS) Receive(ctx context.Context, channel *discovery.EventChannel, receiver Receiver) error {
	if channel.Transport.NATSSubjectPrefix == "" {
		return fmt.Errorf("publisher %d of topic %q cannot be reached: its events don't come over NATS, which is what this process uses (DYN_EVENT_PLANE)",
			channel.PublisherID, channel.Topic)
	}
	r := &busReceiver{ctx: ctx, queue: make(chan busNews, busQueue)}
	subject := n.join(channel, r)
	defer n.leave(channel, subject, r)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-subject.ended:
			subject.mu.Lock()
			defer subject.mu.Unlock()
			return subject.failure
		case news := <-r.queue:
			switch {
			case news.connected:
				receiver.Connected()
			case news.lost != nil:
				receiver.Lost(news.lost)
			case news.bad != nil:
				receiver.Bad(news.bad)
			default:
				receiver.Message(news.envelope)
			}
		}
	}
}

// join adds a receiver to its subject; the first one subscribes.
func (n *NATS) join(channel *discovery.EventChannel, r *busReceiver) *busSubject {
	name := channel.Scope.Subject(channel.Topic)
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.subjects[name]
	if s == nil {
		s = &busSubject{topic: channel.Topic, ended: make(chan struct{}), receivers: make(map[uint64][]*busReceiver)}
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(context.Background())
		n.subjects[name] = s
		go func() { // ends when the last receiver leaves
			defer close(s.ended)
			err := n.bus.Subscribe(ctx, name, s.message, func() { s.state(nil) }, s.state)
			s.mu.Lock()
			s.failure = err
			s.mu.Unlock()
		}()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receivers[channel.PublisherID] = append(s.receivers[channel.PublisherID], r)
	s.count++
	if s.connected {
		r.queue <- busNews{connected: true} // it is empty: there is room
	}
	return s
}

// leave takes a receiver away; with the last one the subscription ends.
func (n *NATS) leave(channel *discovery.EventChannel, s *busSubject, r *busReceiver) {
	name := channel.Scope.Subject(channel.Topic)
	n.mu.Lock()
	s.mu.Lock()
	list := s.receivers[channel.PublisherID]
	kept := make([]*busReceiver, 0, len(list))
	for _, other := range list {
		if other != r {
			kept = append(kept, other)
		}
	}
	if s.receivers[channel.PublisherID] = kept; len(kept) == 0 {
		delete(s.receivers, channel.PublisherID)
	}
	s.count--
	last := s.count == 0
	s.mu.Unlock()
	if last && n.subjects[name] == s {
		delete(n.subjects, name)
	}
	n.mu.Unlock()
	if last {
		s.cancel()
		<-s.ended
	}
}

// message sorts one message. Publishers that nobody listens to yet are no news: who begins to asks for all that they hold.
func (s *busSubject) message(data []byte) {
	envelope, err := ParseEnvelope(data, s.topic)
	s.mu.Lock()
	var list []*busReceiver
	if err == nil {
		list = s.receivers[envelope.PublisherID]
	} else { // whose it was cannot be told
		for _, all := range s.receivers {
			list = append(list, all...)
		}
	}
	s.mu.Unlock()
	for _, r := range list {
		r.tell(busNews{envelope: envelope, bad: err})
	}
}

// state tells all receivers that the connection is made, or lost.
func (s *busSubject) state(lost error) {
	s.mu.Lock()
	s.connected = lost == nil
	var list []*busReceiver
	for _, all := range s.receivers {
		list = append(list, all...)
	}
	s.mu.Unlock()
	for _, r := range list {
		r.tell(busNews{connected: lost == nil, lost: lost})
	}
}

func (r *busReceiver) tell(news busNews) {
	select {
	case r.queue <- news:
	case <-r.ctx.Done():
	}
}

// Planes receives from every publisher in the way that its channel names.
type Planes struct {
	ZMQ  ZMQ
	NATS *NATS // nil: there is no bus
}

// Receive implements Plane.
func (p Planes) Receive(ctx context.Context, channel *discovery.EventChannel, receiver Receiver) error {
	if channel.Transport.NATSSubjectPrefix != "" && p.NATS != nil {
		return p.NATS.Receive(ctx, channel, receiver)
	}
	return p.ZMQ.Receive(ctx, channel, receiver)
}
