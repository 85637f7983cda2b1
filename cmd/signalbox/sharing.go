package main

import (
	"fmt"
	"log/slog"

	"signalbox/discovery"
	"signalbox/frontend"
	"signalbox/peers"
	"signalbox/remoteindex"
	"signalbox/settings"
	"signalbox/transport/tcp"
	"signalbox/worker"
)

// shareRouters lets the routers of this process talk with those of others: of sessions and bookings over the event plane, of what is
// cached where over the request plane. end closes what it opened.
func shareRouters(s *settings.Frontend, route *frontend.Routing, backend discovery.Backend, queries *tcp.Client, messages bus, logger *slog.Logger) (end func(), err error) {
	host := tcp.MachineAddress()
	if s.Planes.ResponseHost != "" {
		if host, err = tcp.InterfaceAddress(s.Planes.ResponseHost); err != nil {
			return nil, fmt.Errorf("DYN_TCP_RESPONSE_STREAM_HOST: %w", err)
		}
	}
	route.Peers = &peers.Plane{Backend: backend, Host: host, Receive: receivePlane(messages, s.Planes.Event), Logger: logger}
	if s.Planes.Event == "nats" {
		plane := worker.EventsOn(messages)
		route.Peers.Open = func(scope discovery.EventScope, topic string) (peers.Outlet, discovery.EventTransport, error) {
			return plane.Open(scope, topic)
		}
	}
	route.RemoteIndexes = func(workers discovery.EndpointID, model string, logger *slog.Logger) (*remoteindex.Client, error) {
		return remoteindex.NewClient(remoteindex.Options{Backend: backend, Queries: queries, Workers: workers, Model: model, Logger: logger})
	}
	if !route.KV.ServeIndexer {
		return func() {}, nil
	}
	server, err := tcp.NewServer(tcp.Options{Host: host}, logger)
	if err != nil {
		return nil, fmt.Errorf("--serve-indexer: %w", err)
	}
	route.IndexServer = remoteindex.NewServer(backend, servePlane(s.Planes.Request, messages, server))
	return func() {
		if err := server.Close(); err != nil {
			logger.Warn("the index's listener did not close cleanly", "error", err)
		}
	}, nil
}
