package main

import (
	"context"
	"os"
	"runtime/debug"
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

// garbagePercent is how much garbage may lie about beside what is in use. Go's own 100 would double the memory; most of what a frontend
// keeps are tables without pointers, which cost nothing to go through, so that half of it takes no CPU time that can be measured.
const garbagePercent = 50

// collectSooner trades nothing measurable for a good part of the memory, unless GOGC says how much.
func collectSooner() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}
