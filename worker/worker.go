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
	// Server is the process's request-plane listener. Workers of one process share it, each under paths of its own.
	Server *tcp.Server
	// Requests is how requests come to the server; nil for its own connections.
	Requests RequestPlane
	Logger   *slog.Logger
}

// Worker is a registered worker. Stop ends it.
type Worker struct {
	options  Options
	stop     func() // ends the taking of requests
	instance *discovery.Instance
	models   []*discovery.Model // the base model's first

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
	id, e := options.Backend.InstanceID(), options.Endpoint
	w := &Worker{options: options}
	cardJSON, err := options.Card.Marshal()
	if err != nil {
		return nil, err
	}
	adapters, err := adapterCards(options.Card, options.Adapters)
	if err != nil {
		return nil, err
	}
	transport, stop, err := options.Requests.Serve(id, e, tcp.Generate(options.Engine.Generate))
	if err != nil {
		return nil, err
	}
	w.stop = stop
	w.instance = &discovery.Instance{Namespace: e.Namespace, Component: e.Component, Endpoint: e.Name, InstanceID: id,
		Transport: transport, DeviceType: "cuda", Codec: inference.MessagePack.String()}
	records := []discovery.Record{w.instance}
	for _, record := range modelRecords(id, e, cardJSON, adapters) {
		w.models = append(w.models, record)
		records = append(records, record)
	}
	for _, record := range records {
		if err := discovery.Publish(ctx, options.Backend, record); err != nil {
			stop()
			return nil, fmt.Errorf("register %s: %w", record.Key(), err)
		}
	}
	options.Logger.Info("worker is registered", "model", options.Card.DisplayName, "instance", discovery.FormatID(id), "address", transport.TCP+transport.NATS)
	return w, nil
}

// InstanceID returns the worker's id.
func (w *Worker) InstanceID() uint64 { return w.instance.InstanceID }

// Withdraw takes the worker out of discovery, the cards first. It still takes requests: frontends learn of it a moment later.
func (w *Worker) Withdraw(ctx context.Context) error {
	if w.withdrawn {
		return nil
	}
	w.withdrawn = true
	var err error
	for _, record := range w.models {
		err = errors.Join(err, discovery.Withdraw(ctx, w.options.Backend, record))
	}
	return errors.Join(err, discovery.Withdraw(ctx, w.options.Backend, w.instance))
}

// Stop takes the worker out of discovery, unless Withdraw did, and stops taking requests. Those that run are left to the engine.
func (w *Worker) Stop(ctx context.Context) error {
	err := w.Withdraw(ctx)
	w.stop()
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
