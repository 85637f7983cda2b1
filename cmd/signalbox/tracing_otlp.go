//go:build !lean

package main

import (
	"context"

	"signalbox/observe"
	"signalbox/observe/otlp"
)

func init() {
	startTracing = func(ctx context.Context, get func(string) string) (observe.Tracer, func(context.Context) error, error) {
		tracer, err := otlp.FromEnvironment(ctx, get, truthy)
		if err != nil || tracer == nil {
			return nil, func(context.Context) error { return nil }, err
		}
		return tracer, tracer.Close, nil
	}
}
