// Package worker makes an engine a Dynamo worker: it registers instance and model card in discovery, serves the request plane,
// and leaves the fleet in order. It knows nothing of frontends.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/model/card"
	"signalbox/transport/tcp"
)

// Engine answers requests.
type Engine interface {
	// Generate starts one request. The stream's first item may take its time.
	Generate(ctx context.Context, request *inference.Request) (inference.Stream, error)
}

// Options describe one worker.
type Options struct {
	Backend  discovery.Backend
	Endpoint discovery.EndpointID
	Card     *card.Card
	Engine   Engine
	// Adapters are names of LoRA adapters that the engine has loaded; each is registered as a model of its own.
	Adapters []string
	// LoadsAdapters lets others load and unload adapters while the worker runs, and refuses requests for those that are not loaded.
	LoadsAdapters bool
	// AdapterSlots bounds the adapters that are loaded at a time; frontends are told. 0 is no bound, and nobody is told.
	AdapterSlots int
	// Server is the process's request-plane listener. Workers of one process share it, each under paths of its own.
	Server *tcp.Server
	// Requests is how requests come to the server; nil for its own connections.
	Requests RequestPlane
	Logger   *slog.Logger
}

// Worker is a registered worker. Stop ends it.
type Worker struct {
	options  Options
	stops    []func() // end the taking of requests
	instance *discovery.Instance
	records  []discovery.Record // in the order of their registration, without those of adapters
	adapters *adapters

	withdrawn bool
}

// ParseEndpoint reads "dyn://namespace.component.endpoint"; the scheme may be left out.
func ParseEndpoint(text string) (discovery.EndpointID, error) {
	parts := strings.Split(strings.TrimPrefix(text, "dyn://"), ".")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return discovery.EndpointID{}, fmt.Errorf("endpoint %q: want dyn://namespace.component.endpoint", text)
	}
	return discovery.EndpointID{Namespace: parts[0], Component: parts[1], Name: parts[2]}, nil
}

// requestPath is where an instance serves an endpoint on the request plane.
func requestPath(instanceID uint64, e discovery.EndpointID) string {
	return fmt.Sprintf("%s/%s/%s/%s", discovery.FormatID(instanceID), e.Namespace, e.Component, e.Name)
}

// Start serves and registers the worker: first the listener, then the instance, then the card, so that whoever sees the card can
// send requests.
func Start(ctx context.Context, options Options) (*Worker, error) {
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	if options.Requests == nil {
		options.Requests = OnTCP(options.Server)
	}
	if options.AdapterSlots > 0 {
		told, slots := *options.Card, uint32(options.AdapterSlots)
		told.Runtime.MaxGPULoRACount = &slots
		options.Card = &told
	}
	id, e := options.Backend.InstanceID(), options.Endpoint
	w := &Worker{options: options, adapters: newAdapters()}
	cardJSON, err := options.Card.Marshal()
	if err != nil {
		return nil, err
	}
	transport, stop, err := options.Requests.Serve(id, e, tcp.Generate(w.generate))
	if err != nil {
		return nil, err
	}
	w.stops = append(w.stops, stop)
	w.instance = &discovery.Instance{Namespace: e.Namespace, Component: e.Component, Endpoint: e.Name, InstanceID: id,
		Transport: transport, DeviceType: "cuda", Codec: inference.MessagePack.String()}
	err = w.register(ctx, w.instance)
	if err == nil && options.LoadsAdapters {
		err = w.serveAdapters(ctx)
	}
	if err == nil {
		err = w.register(ctx, &discovery.Model{Namespace: e.Namespace, Component: e.Component, Endpoint: e.Name, InstanceID: id, Card: cardJSON})
	}
	for _, name := range options.Adapters {
		if err == nil {
			_, err = w.LoadAdapter(ctx, name)
		}
	}
	if err != nil {
		w.end()
		return nil, err
	}
	options.Logger.Info("worker is registered", "model", options.Card.DisplayName, "instance", discovery.FormatID(id), "address", transport.TCP+transport.NATS)
	return w, nil
}

// register publishes a record of the worker's own.
func (w *Worker) register(ctx context.Context, record discovery.Record) error {
	if err := discovery.Publish(ctx, w.options.Backend, record); err != nil {
		return fmt.Errorf("register %s: %w", record.Key(), err)
	}
	w.records = append(w.records, record)
	return nil
}

// end stops the taking of requests.
func (w *Worker) end() {
	for _, stop := range w.stops {
		stop()
	}
}

// InstanceID returns the worker's id.
func (w *Worker) InstanceID() uint64 { return w.instance.InstanceID }

// Withdraw takes the worker out of discovery, the cards first. It still takes requests: frontends learn of it a moment later.
func (w *Worker) Withdraw(ctx context.Context) error {
	if w.withdrawn {
		return nil
	}
	w.withdrawn = true
	err := w.withdrawAdapters(ctx)
	for i := len(w.records) - 1; i >= 0; i-- {
		err = errors.Join(err, discovery.Withdraw(ctx, w.options.Backend, w.records[i]))
	}
	return err
}

// Stop takes the worker out of discovery, unless Withdraw did, and stops taking requests. Those that run are left to the engine.
func (w *Worker) Stop(ctx context.Context) error {
	err := w.Withdraw(ctx)
	w.end()
	return err
}

// Register publishes instance and card of a worker that is reached without the request plane, such as an engine in the
// frontend's own process; address is only shown.
func Register(ctx context.Context, backend discovery.Backend, endpoint discovery.EndpointID, c *card.Card, address string) error {
	text, err := c.Marshal()
	if err != nil {
		return err
	}
	id := backend.InstanceID()
	for _, record := range []discovery.Record{
		&discovery.Instance{Namespace: endpoint.Namespace, Component: endpoint.Component, Endpoint: endpoint.Name, InstanceID: id,
			Transport: discovery.Transport{TCP: address + "/" + discovery.FormatID(id)}, DeviceType: "cuda"},
		&discovery.Model{Namespace: endpoint.Namespace, Component: endpoint.Component, Endpoint: endpoint.Name, InstanceID: id, Card: text},
	} {
		if err := discovery.Publish(ctx, backend, record); err != nil {
			return fmt.Errorf("register %s: %w", record.Key(), err)
		}
	}
	return nil
}
