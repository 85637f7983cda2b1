package worker

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"lukechampine.com/blake3"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/model/card"
)

// adapterCard makes the card of a LoRA adapter: the base model's, under the adapter's name. slots is how many adapters the worker holds
// at a time, 0 for a number that nobody is told.
func adapterCard(base *card.Card, name string, slots int) (suffix string, text []byte, err error) {
	adapter := *base
	adapter.DisplayName, adapter.Slug, adapter.Aliases = name, card.Slug(name), nil
	adapter.SourcePath = base.Source()
	adapter.LoRA = &card.LoRA{Name: name}
	if slots > 0 {
		count := uint32(slots)
		adapter.LoRA.MaxGPUCount = &count
	}
	if adapter.Slug == "" {
		return "", nil, fmt.Errorf("LoRA adapter %q: the name needs a letter or a digit", name)
	}
	text, err = adapter.Marshal()
	return adapter.Slug, text, err
}

// AdapterID returns the number that the fleet gives to a LoRA adapter of the name: 31 bits of the name's BLAKE3 hash, never 0.
func AdapterID(name string) uint64 {
	hash := blake3.Sum256([]byte(name))
	return max(1, binary.BigEndian.Uint64(hash[:])&0x7FFFFFFF)
}

// adapters are the LoRA adapters that a worker has loaded. Loading and unloading come one after the other; requests are let in
// meanwhile.
type adapters struct {
	changing chan struct{} // held by who loads or unloads

	mu     sync.Mutex
	loaded map[string]*loadedAdapter
}

// loadedAdapter is one of them. It is leaving once it has been taken out of discovery.
type loadedAdapter struct {
	record  *discovery.Model
	users   int
	leaving bool
	idle    chan struct{} // closed when it is leaving and its last user has gone
}

func newAdapters() *adapters {
	return &adapters{changing: make(chan struct{}, 1), loaded: make(map[string]*loadedAdapter)}
}

// enter lets a request for the adapter in; leave ends its use. It is false when the adapter is not loaded.
func (a *adapters) enter(name string) (leave func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	adapter := a.loaded[name]
	if adapter == nil {
		return nil, false
	}
	adapter.users++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		adapter.users--
		adapter.settle()
	}), true
}

// settle tells who waits for the last user. The caller holds the lock.
func (l *loadedAdapter) settle() {
	if l.leaving && l.users == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

func (a *adapters) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.loaded))
}

// change waits for the turn to load or unload.
func (a *adapters) change(ctx context.Context) (done func(), err error) {
	select {
	case a.changing <- struct{}{}:
		return func() { <-a.changing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// AdapterError is a wish about LoRA adapters that cannot be fulfilled. Its text is for who wished.
type AdapterError struct{ Message string }

// Error implements error.
func (e *AdapterError) Error() string { return e.Message }

func adapterError(format string, args ...any) error {
	return &AdapterError{fmt.Sprintf(format, args...)}
}

// LoadAdapter loads a LoRA adapter and registers it as a model. One that is loaded already is no mistake.
func (w *Worker) LoadAdapter(ctx context.Context, name string) (already bool, err error) {
	done, err := w.adapters.change(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	w.adapters.mu.Lock()
	known := w.adapters.loaded[name]
	count := len(w.adapters.loaded)
	w.adapters.mu.Unlock()
	switch {
	case known != nil && !known.leaving:
		return true, nil
	case known == nil && w.options.AdapterSlots > 0 && count >= w.options.AdapterSlots:
		return false, adapterError("LoRA capacity exceeded: at most %d adapter(s) may be loaded", w.options.AdapterSlots)
	}
	suffix, text, err := adapterCard(w.options.Card, name, w.options.AdapterSlots)
	if err != nil {
		return false, err
	}
	e := w.options.Endpoint
	adapter := &loadedAdapter{record: &discovery.Model{Namespace: e.Namespace, Component: e.Component, Endpoint: e.Name,
		InstanceID: w.instance.InstanceID, Card: text, Suffix: suffix}}
	w.adapters.mu.Lock()
	for other, loaded := range w.adapters.loaded {
		if other != name && loaded.record.Suffix == suffix {
			w.adapters.mu.Unlock()
			return false, adapterError("LoRA adapter '%s' cannot be told from '%s' in discovery", name, other)
		}
	}
	if known != nil { // it was leaving, and somebody still uses it
		known.leaving = false
		adapter = known
	}
	w.adapters.loaded[name] = adapter // before the first request can come
	w.adapters.mu.Unlock()
	if err := discovery.Publish(ctx, w.options.Backend, adapter.record); err != nil {
		w.adapters.mu.Lock()
		delete(w.adapters.loaded, name)
		w.adapters.mu.Unlock()
		return false, adapterError("Failed to register LoRA '%s' in discovery registry: %v", name, err)
	}
	w.options.Logger.Info("LoRA adapter is loaded", "adapter", name, "instance", discovery.FormatID(w.instance.InstanceID))
	return false, nil
}

// UnloadAdapter takes a LoRA adapter out of discovery, waits until no request uses it, and unloads it. When ctx ends before that, the
// adapter stays loaded without being registered, and may be unloaded or loaded again.
func (w *Worker) UnloadAdapter(ctx context.Context, name string) error {
	done, err := w.adapters.change(ctx)
	if err != nil {
		return err
	}
	defer done()
	w.adapters.mu.Lock()
	adapter := w.adapters.loaded[name]
	w.adapters.mu.Unlock()
	if adapter == nil {
		return adapterError("LoRA adapter '%s' not found. Available LoRAs: [%s]", name, strings.Join(w.adapters.names(), ", "))
	}
	if !adapter.leaving { // else by an unload that nobody waited for
		if err := discovery.Withdraw(ctx, w.options.Backend, adapter.record); err != nil {
			return adapterError("Failed to unregister LoRA '%s' from discovery registry: %v", name, err)
		}
	}
	idle := make(chan struct{})
	w.adapters.mu.Lock()
	adapter.leaving, adapter.idle = true, idle
	adapter.settle()
	w.adapters.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
		return adapterError("LoRA adapter '%s' is still in use", name)
	}
	w.adapters.mu.Lock()
	defer w.adapters.mu.Unlock()
	if adapter.users > 0 { // somebody came in the last moment: the worker's last word, as an engine would have it
		w.options.Logger.Warn("a LoRA adapter is unloaded while it is used", "adapter", name)
	}
	delete(w.adapters.loaded, name)
	w.options.Logger.Info("LoRA adapter is unloaded", "adapter", name, "instance", discovery.FormatID(w.instance.InstanceID))
	return nil
}

// Adapters returns the ids of the loaded LoRA adapters by name.
func (w *Worker) Adapters() map[string]uint64 {
	list := make(map[string]uint64)
	for _, name := range w.adapters.names() {
		list[name] = AdapterID(name)
	}
	return list
}

// generate gives a request to the engine; one for an adapter that is not loaded is refused.
func (w *Worker) generate(ctx context.Context, request *inference.Request) (inference.Stream, error) {
	name := request.Routing.LoRAName
	if name == "" && !slices.Contains(w.options.Card.Names(), request.Model) {
		name = request.Model // engines go by this one
	}
	if name == "" || !w.options.LoadsAdapters {
		return w.options.Engine.Generate(ctx, request)
	}
	leave, ok := w.adapters.enter(name)
	if !ok {
		return nil, inference.Errorf(inference.InvalidArgument, "unknown model or LoRA adapter: '%s'", name)
	}
	stream, err := w.options.Engine.Generate(ctx, request)
	if err != nil {
		leave()
		return nil, err
	}
	return &adapterStream{stream, leave}, nil
}

// adapterStream ends the use of an adapter with the answer.
type adapterStream struct {
	inference.Stream
	leave func()
}

// Close implements inference.Stream.
func (s *adapterStream) Close() error {
	defer s.leave()
	return s.Stream.Close()
}
