package frontend

import (
	"context"
	"slices"
	"sync"
	"testing"

	"signalbox/discovery"
	"signalbox/model/card"
)

// farewells is a transport that notes who is gone.
type farewells struct {
	Transport
	mu   sync.Mutex
	gone []uint64
}

// Gone implements Transport.
func (f *farewells) Gone(workerID uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = append(f.gone, workerID)
}

func (f *farewells) has(workerID uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.gone, workerID)
}

// TestAWorkerThatUnloadsAnAdapterIsNotGone: it still serves its base model, and is gone when it has left that, too.
func TestAWorkerThatUnloadsAnAdapterIsNotGone(t *testing.T) {
	transport := &farewells{}
	f := start(t, func(o *Options) {
		transport.Transport = o.Transport
		o.Transport = transport
	})
	id := f.engine(nil)
	f.waitReady(1)
	f.addAdapter(id, "poet")
	f.waitModel("poet")
	adapter := &discovery.Model{Namespace: "n", Component: "backend", Endpoint: "generate", InstanceID: id, Suffix: card.Slug("poet")}
	if err := discovery.Withdraw(context.Background(), f.backends[0], adapter); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		f.frontend.reached.mu.Lock()
		defer f.frontend.reached.mu.Unlock()
		return f.frontend.reached.sets[id] == 1
	})
	if transport.has(id) {
		t.Error("the worker counts as gone with its adapter")
	}
	if status, text := f.post("/v1/completions", heldBody); status != 200 {
		t.Errorf("the base model: status %d, %s", status, text)
	}
	if err := f.backends[0].Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return transport.has(id) })
	f.frontend.reached.mu.Lock()
	defer f.frontend.reached.mu.Unlock()
	if len(f.frontend.reached.sets) != 0 {
		t.Errorf("left behind: %v", f.frontend.reached.sets)
	}
}
