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
	text, err := c.Marshal()
	if err != nil {
		f.t.Fatal(err)
	}
	backend := f.store.Open(mem.Options{})
	f.backends = append(f.backends, backend)
	for _, record := range []discovery.Record{
		&discovery.Instance{Namespace: "n", Component: name, Endpoint: "generate", InstanceID: backend.InstanceID(), Transport: discovery.Transport{TCP: "127.0.0.1:1/x"}},
		&discovery.Model{Namespace: "n", Component: name, Endpoint: "generate", InstanceID: backend.InstanceID(), Card: text},
	} {
		if err := discovery.Publish(context.Background(), backend, record); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fixture) waitReadyModel(name string) {
	f.t.Helper()
	waitFor(f.t, func() bool { return f.frontend.Ready(name) })
}
