//go:build !lean

package main

import (
	"context"
	"log/slog"

	"signalbox/observe"
	"signalbox/observe/otlp"
)

func init() {
	exportLogs = func(ctx context.Context, get func(string) string, local *slog.Logger) (*slog.Logger, func(context.Context) error, error) {
		logs, err := otlp.LogsFromEnvironment(ctx, get, truthy)
		if err != nil {
			return nil, nil, err
		}
		if logs != nil {
			otlp.Report(local)
		}
		return logs.Beside(local), logs.Close, nil
	}
	startTracing = func(ctx context.Context, get func(string) string) (observe.Tracer, func(context.Context) error, error) {
		tracer, err := otlp.FromEnvironment(ctx, get, truthy)
		if err != nil || tracer == nil {
			return nil, func(context.Context) error { return nil }, err
		}
		return tracer, tracer.Close, nil
	}
}
