package frontend

import (
	"context"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/model/card"
	"signalbox/pipeline"
)

// loaderFunc is a function that loads models.
type loaderFunc func(ctx context.Context, c *card.Card) (*pipeline.Model, error)

// Load implements Loader.
func (f loaderFunc) Load(ctx context.Context, c *card.Card) (*pipeline.Model, error) {
	return f(ctx, c)
}

// register makes a worker known that serves the model in the directory; damage is done to the files once the card is made.
func (f *fixture) register(name, dir string, damage func() error) {
	f.t.Helper()
	c, err := card.FromDirectory(dir, name, card.Options{BlockSize: 4})
	if err != nil {
		f.t.Fatal(err)
	}
	if damage != nil {
		if err := damage(); err != nil {
			f.t.Fatal(err)
		}
	}
	f.publish(c, name, "127.0.0.1:1/x")
}

// publish makes a worker known that serves the card's model at the address.
func (f *fixture) publish(c *card.Card, component, address string) uint64 {
	f.t.Helper()
	text, err := c.Marshal()
	if err != nil {
		f.t.Fatal(err)
	}
	backend := f.store.Open(mem.Options{})
	f.backends = append(f.backends, backend)
	id := backend.InstanceID()
	for _, record := range []discovery.Record{
		&discovery.Instance{Namespace: "n", Component: component, Endpoint: "generate", InstanceID: id, Transport: discovery.Transport{TCP: address}, Codec: "msgpack"},
		&discovery.Model{Namespace: "n", Component: component, Endpoint: "generate", InstanceID: id, Card: text},
	} {
		if err := discovery.Publish(context.Background(), backend, record); err != nil {
			f.t.Fatal(err)
		}
	}
	return id
}

func (f *fixture) waitReadyModel(name string) {
	f.t.Helper()
	waitFor(f.t, func() bool { return f.frontend.Ready(name) })
}
