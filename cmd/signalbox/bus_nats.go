//go:build !lean

package main

import (
	"context"
	"log/slog"

	"signalbox/settings"
	"signalbox/transport/nats"
)

func init() {
	connectBus = func(ctx context.Context, planes *settings.Planes, logger *slog.Logger) (bus, error) {
		options, err := nats.OptionsFromEnvironment()
		if err != nil {
			return nil, err
		}
		if planes != nil {
			options.CAPath, options.Insecure = planes.NATSTLSCAPath, planes.NATSTLSInsecure
			options.ClientCertPath, options.ClientKeyPath = planes.NATSTLSClientCert, planes.NATSTLSClientKey
		}
		options.Name, options.Version, options.Logger = "signalbox", version(), logger
		return nats.Connect(ctx, options)
	}
}
