package main

import (
	"context"
	"log/slog"
	"slices"

	"signalbox/discovery"
	"signalbox/frontend"
	"signalbox/settings"
	"signalbox/transport/tcp"
)

// links are what a program that routes has to do with the rest of the fleet: discovery, the planes, and the routers on top of them.
type links struct {
	backend   discovery.Backend
	messages  bus // nil when no plane uses one
	transport *tcp.Client
	route     frontend.Routing
	events    frontend.WorkerEvents

	closers []func() // in the order in which the links were made
}

// openLinks makes all links; close ends them.
func openLinks(ctx context.Context, s *settings.Frontend, logger *slog.Logger) (opened *links, err error) {
	l := &links{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.backend, err = openDiscovery(ctx, s.Discovery.Backend, logger); err != nil {
		return nil, err
	}
	l.closers = append(l.closers, func() { closeBackend(l.backend, logger) })
	if l.messages, err = openBus(ctx, s.Planes.Request, s.Planes.Event, &s.Planes, logger); err != nil {
		return nil, err
	}
	l.closers = append(l.closers, func() { closeBus(l.messages, logger) })
	if l.transport, err = openTransport(s, l.messages); err != nil {
		return nil, err
	}
	l.closers = append(l.closers, func() { _ = l.transport.Close() }) // what runs then has been told already
	if l.route, err = routing(s, logger); err != nil {
		return nil, err
	}
	closeShared, err := shareRouters(s, &l.route, l.backend, l.transport, l.messages, logger)
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, closeShared)
	l.events = frontend.WorkerEvents{Backend: l.backend, Queries: l.transport, Plane: receivePlane(l.messages, s.Planes.Event), Logger: logger}
	l.route.Events = l.events
	return l, nil
}

// close ends the links, the last one first.
func (l *links) close() {
	for _, end := range slices.Backward(l.closers) {
		end()
	}
}
