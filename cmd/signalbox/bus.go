package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"signalbox/kvevents"
	"signalbox/settings"
	"signalbox/transport/tcp"
	"signalbox/worker"
)

// bus is a connection to a message bus, as the planes of both sides want it.
type bus interface {
	tcp.Courier
	kvevents.Bus
	worker.Bus
	io.Closer
}

// connectBus connects to NATS. It is nil in programs that were built with the tag lean.
var connectBus func(ctx context.Context, planes *settings.Planes, logger *slog.Logger) (bus, error)

// openBus connects to NATS when a plane uses it; else it returns nil. planes are the frontend's flags, nil for none.
func openBus(ctx context.Context, requestPlane, eventPlane string, planes *settings.Planes, logger *slog.Logger) (bus, error) {
	if requestPlane != "nats" && eventPlane != "nats" {
		return nil, nil
	}
	if connectBus == nil {
		return nil, errors.New("the NATS planes are not part of this program: it was built with the tag lean; make build makes one that has them")
	}
	return connectBus(ctx, planes, logger)
}

func closeBus(b bus, logger *slog.Logger) {
	if b == nil {
		return
	}
	if err := b.Close(); err != nil {
		logger.Warn("the connection to NATS did not close cleanly", "error", err)
	}
}

// receivePlane is how events are received: nil for ZeroMQ alone.
func receivePlane(b bus, eventPlane string) kvevents.Plane {
	if b == nil || eventPlane != "nats" {
		return nil
	}
	return kvevents.Planes{NATS: kvevents.NewNATS(b)}
}

// servePlane is how requests to the server's endpoints come: over the bus when they are to, else to the server's own port.
func servePlane(requestPlane string, b bus, server *tcp.Server) worker.RequestPlane {
	if requestPlane == "nats" {
		return worker.RequestsOn(b, server)
	}
	return worker.OnTCP(server)
}
