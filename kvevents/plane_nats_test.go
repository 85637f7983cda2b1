package kvevents

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"signalbox/discovery"
)

// fakeBus is a bus of one subscription for each subject, which the test speaks through.
type fakeBus struct {
	mu            sync.Mutex
	subscriptions map[string]*fakeSubscription
	refuse        error
}

type fakeSubscription struct {
	message   func([]byte)
	connected func()
	lost      func(error)
}

func (b *fakeBus) Subscribe(ctx context.Context, subject string, message func([]byte), connected func(), lost func(error)) error {
	b.mu.Lock()
	if b.refuse != nil {
		b.mu.Unlock()
		return b.refuse
	}
	if b.subscriptions[subject] != nil {
		b.mu.Unlock()
		return errors.New("a second subscription for one subject")
	}
	b.subscriptions[subject] = &fakeSubscription{message, connected, lost}
	b.mu.Unlock()
	<-ctx.Done()
	b.mu.Lock()
	delete(b.subscriptions, subject)
	b.mu.Unlock()
	return nil
}

func (b *fakeBus) subject(name string) *fakeSubscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.subscriptions[name]
}

func (b *fakeBus) until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-ticker.C {
		if condition() {
			return
		}
	}
	t.Fatalf("it did not happen: %s", what)
}

// bareEnvelope is a message as NATS carries it.
func bareEnvelope(publisher, sequence uint64, topic, payload string) []byte {
	data := msgp.AppendMapHeader(nil, 5)
	data = msgp.AppendUint64(msgp.AppendString(data, "publisher_id"), publisher)
	data = msgp.AppendUint64(msgp.AppendString(data, "sequence"), sequence)
	data = msgp.AppendUint64(msgp.AppendString(data, "published_at"), 1)
	data = msgp.AppendString(msgp.AppendString(data, "topic"), topic)
	return msgp.AppendBytes(msgp.AppendString(data, "payload"), []byte(payload))
}

// hearing is a channel that is listened to; all that it is told comes in order.
type hearing struct {
	told   chan string
	cancel context.CancelFunc
	done   chan error
}

func hear(plane Plane, publisher uint64) *hearing {
	h := &hearing{told: make(chan string, 10000), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	channel := &discovery.EventChannel{Scope: discovery.EndpointScope(discovery.EndpointID{Namespace: "my.ns", Component: "c", Name: "e"}), Topic: "kv-events",
		PublisherID: publisher, Transport: discovery.EventTransport{NATSSubjectPrefix: "namespace.my.ns.component.c.endpoint.e"}}
	go func() { // ends with ctx
		h.done <- plane.Receive(ctx, channel, Receiver{
			Connected: func() { h.told <- "connected" },
			Lost:      func(error) { h.told <- "lost" },
			Bad:       func(error) { h.told <- "bad" },
			Message: func(e Envelope) {
				h.told <- fmt.Sprintf("%d/%d %s", e.PublisherID, e.Sequence, e.Payload)
			},
		})
	}()
	return h
}

func (h *hearing) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, want := range want {
		select {
		case got := <-h.told:
			if got != want {
				t.Errorf("told %q, want %q", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("not told %q", want)
		}
	}
}

const natsSubject = "namespace.my%2Ens.component.c.endpoint.e.kv-events"

// TestPublishersOfOneSubjectAreSorted: two publishers share a subject and one subscription; each receiver is told of its own, and both of
// the connection.
func TestPublishersOfOneSubjectAreSorted(t *testing.T) {
	bus := &fakeBus{subscriptions: map[string]*fakeSubscription{}}
	plane := Planes{NATS: NewNATS(bus)}
	one := hear(plane, 1)
	bus.until(t, "the first subscribes", func() bool { return bus.subject(natsSubject) != nil })
	s := bus.subject(natsSubject)
	s.connected()
	one.expect(t, "connected")
	two := hear(plane, 2)
	two.expect(t, "connected") // the connection was there before it
	s.message(bareEnvelope(1, 0, "kv-events", "a"))
	s.message(bareEnvelope(2, 0, "kv-events", "b"))
	s.message(bareEnvelope(3, 0, "kv-events", "of nobody"))
	s.message(bareEnvelope(1, 1, "kv-events", "c"))
	s.message([]byte("no envelope"))
	s.message(bareEnvelope(1, 2, "kv_metrics", "another topic"))
	s.lost(errors.New("x"))
	s.connected()
	one.expect(t, "1/0 a", "1/1 c", "bad", "bad", "lost", "connected")
	two.expect(t, "2/0 b", "bad", "bad", "lost", "connected")
	s.lost(errors.New("x"))
	one.expect(t, "lost")
	three := hear(plane, 3) // is told when there is a connection, and not before
	bus.until(t, "it has joined", func() bool {
		plane.NATS.mu.Lock()
		defer plane.NATS.mu.Unlock()
		subject := plane.NATS.subjects[natsSubject]
		subject.mu.Lock()
		defer subject.mu.Unlock()
		return subject.count == 3
	})
	s.connected()
	three.expect(t, "connected")
	for _, h := range []*hearing{one, two, three} {
		if bus.subject(natsSubject) == nil {
			t.Error("the subscription ended before its last receiver")
		}
		h.cancel()
		if err := <-h.done; err != nil {
			t.Error(err)
		}
	}
	if bus.subject(natsSubject) != nil {
		t.Error("the subscription stays without receivers")
	}
	again := hear(plane, 1)
	bus.until(t, "who comes later subscribes again", func() bool { return bus.subject(natsSubject) != nil })
	again.cancel()
	<-again.done
}

// TestAReceiverThatLeavesHoldsNobodyUp: its queue is full, and it goes.
func TestAReceiverThatLeavesHoldsNobodyUp(t *testing.T) {
	bus := &fakeBus{subscriptions: map[string]*fakeSubscription{}}
	plane := NewNATS(bus)
	stuck, release := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	channel := &discovery.EventChannel{Scope: discovery.EndpointScope(discovery.EndpointID{Namespace: "my.ns", Component: "c", Name: "e"}), Topic: "kv-events",
		PublisherID: 1, Transport: discovery.EventTransport{NATSSubjectPrefix: "x"}}
	done := make(chan error, 1)
	go func() { // ends with ctx
		done <- plane.Receive(ctx, channel, Receiver{Connected: func() {}, Lost: func(error) {}, Bad: func(error) {}, Message: func(Envelope) {
			select {
			case stuck <- struct{}{}:
			default:
			}
			<-release
		}})
	}()
	bus.until(t, "it subscribes", func() bool { return bus.subject(natsSubject) != nil })
	s := bus.subject(natsSubject)
	sent := make(chan struct{})
	go func() { // ends when the receiver takes or leaves
		defer close(sent)
		for i := range uint64(busQueue + 10) {
			s.message(bareEnvelope(1, i, "kv-events", "x"))
		}
	}()
	<-stuck
	cancel()
	<-sent
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestABusThatRefusesIsAnError(t *testing.T) {
	bus := &fakeBus{subscriptions: map[string]*fakeSubscription{}, refuse: errors.New("no permission")}
	if err := <-hear(NewNATS(bus), 1).done; err == nil || !strings.Contains(err.Error(), "no permission") {
		t.Errorf("error %v", err)
	}
}

func TestAChannelOfAnotherPlaneIsNamed(t *testing.T) {
	channel := &discovery.EventChannel{Topic: "t", PublisherID: 5, Transport: discovery.EventTransport{ZMQ: "tcp://127.0.0.1:1"}}
	if err := NewNATS(&fakeBus{}).Receive(t.Context(), channel, Receiver{}); err == nil || !strings.Contains(err.Error(), "publisher 5") {
		t.Errorf("error %v", err)
	}
}
