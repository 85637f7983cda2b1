package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"signalbox/discovery"
	"signalbox/discovery/file"
	"signalbox/discovery/mem"
)

// stores opens each kind of store that a fleet can share. Those with large client libraries are in files of their own, which the
// build tag lean leaves out.
var stores = map[string]func(ctx context.Context, bad func(discovery.BadRecord)) (discovery.Backend, error){
	"file": func(_ context.Context, bad func(discovery.BadRecord)) (discovery.Backend, error) {
		return file.Open(file.Options{OnBadRecord: bad})
	},
	"mem": func(_ context.Context, bad func(discovery.BadRecord)) (discovery.Backend, error) {
		return (&mem.Store{}).Open(mem.Options{OnBadRecord: bad}), nil
	},
}

// openDiscovery connects to the store that the fleet shares.
func openDiscovery(ctx context.Context, kind string, logger *slog.Logger) (discovery.Backend, error) {
	open := stores[kind]
	if open == nil {
		return nil, fmt.Errorf("discovery through %s is not part of this program: it was built with the tag lean; make build makes one that has it", kind)
	}
	return open(ctx, func(record discovery.BadRecord) { logger.Error("a discovery record cannot be used", "error", record) })
}

func closeBackend(backend discovery.Backend, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := backend.Close(ctx); err != nil {
		logger.Warn("discovery did not close cleanly", "error", err)
	}
}
