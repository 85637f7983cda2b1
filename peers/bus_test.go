package peers

import (
	"context"
	"sync"
	"testing"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/kvevents"
	"signalbox/router"
	"signalbox/router/affinity"
	"signalbox/router/kv"
)

// bus carries bare envelopes to everybody who listens, as a message bus does.
type bus struct {
	mutex     sync.Mutex
	listeners map[*listening]bool
}

type listening struct {
	topic    string
	receiver kvevents.Receiver
	id       uint64
}

type outlet struct {
	bus   *bus
	topic string
}

func (o outlet) Publish(publisher, _ uint64, frame []byte) {
	o.bus.mutex.Lock()
	defer o.bus.mutex.Unlock()
	for l := range o.bus.listeners {
		if l.topic != o.topic || l.id != publisher {
			continue
		}
		envelope, err := kvevents.ParseEnvelope(frame[EnvelopeHead:], o.topic)
		if err != nil {
			l.receiver.Bad(err)
			continue
		}
		l.receiver.Message(envelope)
	}
}

func (o outlet) Close() error { return nil }

func (b *bus) Receive(ctx context.Context, channel *discovery.EventChannel, receiver kvevents.Receiver) error {
	l := &listening{channel.Topic, receiver, channel.PublisherID}
	b.mutex.Lock()
	b.listeners[l] = true
	b.mutex.Unlock()
	<-ctx.Done()
	b.mutex.Lock()
	delete(b.listeners, l)
	b.mutex.Unlock()
	return nil
}

// Over a message bus each booking is a message of its own; sessions are told as over sockets.
func TestOverABus(t *testing.T) {
	hub := &bus{listeners: make(map[*listening]bool)}
	planes := two(t)
	for _, plane := range planes {
		plane.Receive = hub
		plane.Open = func(scope discovery.EventScope, topic string) (Outlet, discovery.EventTransport, error) {
			return outlet{hub, topic}, discovery.EventTransport{NATSSubjectPrefix: scope.SubjectPrefix()}, nil
		}
	}
	reports, bindings := make(chan kv.Remote, 1024), make(chan affinity.Binding, 1024)
	ours, err := planes[0].Sequences(endpoint, func([]kv.Remote) { t.Error("a router heard itself") })
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := planes[1].Sequences(endpoint, func(list []kv.Remote) {
		for _, report := range list {
			reports <- report
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	told, err := planes[0].Sessions(endpoint, func(affinity.Binding) { t.Error("a router heard itself") })
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	heard, err := planes[1].Sessions(endpoint, func(b affinity.Binding) { bindings <- b })
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	eventually(t, "both listen to both topics", func() bool {
		hub.mutex.Lock()
		defer hub.mutex.Unlock()
		return len(hub.listeners) == 8
	})
	step := kv.Step{RequestID: "r", Rank: inference.Rank{WorkerID: 5, DPRank: 1}}
	ours.Booked(kv.Booked{Step: step, Hashes: []uint64{1, 2}, PrefillTokens: 9})
	ours.PrefillCompleted(step)
	ours.Freed(step)
	for _, want := range []kv.RemoteKind{kv.RemoteBooked, kv.RemotePrefillCompleted, kv.RemoteFreed} {
		if got := <-reports; got.Kind != want || got.Step != step || want == kv.RemoteBooked && (len(got.Hashes) != 2 || got.PrefillTokens != 9) {
			t.Errorf("%+v arrived, want kind %d", got, want)
		}
	}
	binding := affinity.Binding{SessionID: "s", Target: router.Pin{WorkerID: 5}, Version: 1, Writer: 2}
	told.Publish(binding)
	if got := <-bindings; got != binding {
		t.Errorf("%+v arrived, want %+v", got, binding)
	}
}
