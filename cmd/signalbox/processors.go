package main

import (
	"context"
	"os"
	"sync"

	"signalbox/frontend"
	"signalbox/internal/processors"
)

// adaptProcessors uses as many processors as the load needs, unless GOMAXPROCS says how many. The result ends it.
func adaptProcessors(ctx context.Context, options *frontend.HTTPOptions) (stop func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	governor := processors.New()
	options.OnLargeBody = governor.Raise
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() { governor.Run(ctx) })
	return func() {
		cancel()
		wait.Wait()
	}
}
