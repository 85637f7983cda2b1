package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"signalbox/observe"
)

// startTracing makes the tracer that the environment asks for, nil for none; nil itself where the build tag lean left it out. stop sends
// what waits.
var startTracing func(ctx context.Context, get func(string) string) (tracer observe.Tracer, stop func(context.Context) error, err error)

// exportLogs returns a logger that exports its lines besides writing them, when the environment asks for that; nil itself where the build
// tag lean left it out. stop sends what waits.
var exportLogs func(ctx context.Context, get func(string) string, local *slog.Logger) (logger *slog.Logger, stop func(context.Context) error, err error)

// exporting returns the logger to use instead of the local one, and what ends it.
func exporting(ctx context.Context, local *slog.Logger) (*slog.Logger, func(), error) {
	if exportLogs == nil {
		return local, func() {}, nil // tracing says that this cannot be
	}
	logger, stop, err := exportLogs(ctx, os.Getenv, local)
	if err != nil {
		return nil, nil, err
	}
	return logger, func() { endExport(stop) }, nil
}

// endExport sends what waits, if the collector takes it soon.
func endExport(stop func(context.Context) error) {
	const patience = 3 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = stop(ctx) // the collector is away: nobody is left to tell
}

// truthy is how variables say yes.
func truthy(text string) bool {
	return slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(strings.TrimSpace(text)))
}

// tracing returns the tracer and what ends it.
func tracing(ctx context.Context) (observe.Tracer, func(), error) {
	if startTracing == nil {
		if truthy(os.Getenv("OTEL_EXPORT_ENABLED")) {
			return nil, nil, errors.New("OTEL_EXPORT_ENABLED: tracing is not part of this program: it was built with the tag lean; make build makes one that has it")
		}
		return nil, func() {}, nil
	}
	tracer, stop, err := startTracing(ctx, os.Getenv)
	if err != nil {
		return nil, nil, err
	}
	return tracer, func() { endExport(stop) }, nil
}
