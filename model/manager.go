package model

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/discovery"
	"signalbox/model/card"
)

// Server serves one worker set. The manager calls its methods from one goroutine.
type Server interface {
	// Update tells who is in the set now; never empty.
	Update(set *Set)
	// Close ends the serving; the set is gone.
	Close()
}

// Builder makes the server of a set. It may take its time and fail; it is called again after a while.
type Builder[S Server] func(ctx context.Context, set *Set) (S, error)

// Options configure a Manager.
type Options struct {
	Filter discovery.NamespaceFilter
	// ModelName and BlockSize override what cards say; "" and 0 leave them.
	ModelName string
	BlockSize uint32
	Logger    *slog.Logger
	// RetryAfter is the pause before a failed build is tried again; doubled up to a minute.
	RetryAfter time.Duration
	// OnPeers is told when the sets that serve a model change, so that the parts of a disaggregated model find each other.
	OnPeers func()
}

// Entry is a served set.
type Entry[S Server] struct {
	Set    *Set
	Server S
}

// Manager follows discovery and keeps one server per worker set. Its goroutines end with Close.
type Manager[S Server] struct {
	options Options
	build   Builder[S]
	sets    *sets
	cancel  context.CancelFunc
	wait    sync.WaitGroup

	served  map[Key]*serving[S]
	built   chan buildResult[S]
	catalog atomic.Pointer[catalog[S]]
	records atomic.Pointer[[]*discovery.Instance]
	synced  chan struct{}
}

// serving is the state of one set: being built or served.
type serving[S Server] struct {
	set    *Set
	server S
	ready  bool
	cancel context.CancelFunc
	stale  bool // withdrawn while being built
}

type buildResult[S Server] struct {
	serving *serving[S]
	server  S
	err     error
}

// catalog is an immutable view of what is served.
type catalog[S Server] struct {
	byName map[string][]Entry[S] // canonical names and aliases
	known  map[string]bool       // names whose cards are there, served or not
	all    []Entry[S]
}

// Start begins to follow the backend.
func Start[S Server](ctx context.Context, backend discovery.Backend, build Builder[S], options Options) (*Manager[S], error) {
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	if options.RetryAfter <= 0 {
		options.RetryAfter = 2 * time.Second
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &Manager[S]{options: options, build: build, cancel: cancel, served: make(map[Key]*serving[S]), built: make(chan buildResult[S]), synced: make(chan struct{})}
	m.sets = newSets(options.Filter, func(key Key, incumbent, checksum string) {
		options.Logger.Error("Rejected incompatible workers; the first accepted configuration retains the WorkerSet", "model", key.Model,
			"endpoint", key.Endpoint.String(), "role", string(key.Role), "incumbent_checksum", incumbent, "rejected_checksum", checksum)
	})
	m.catalog.Store(&catalog[S]{})
	instances, err := backend.Watch(ctx, discovery.Instances, "")
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch instances: %w", err)
	}
	models, err := backend.Watch(ctx, discovery.Models, "")
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch models: %w", err)
	}
	m.wait.Add(1)
	go func() { // ends with ctx
		defer m.wait.Done()
		m.run(ctx, instances, models)
	}()
	return m, nil
}

// Close withdraws everything and waits for the goroutines.
func (m *Manager[S]) Close() {
	m.cancel()
	m.wait.Wait()
}

// Synced is closed once all records that existed at the start were seen.
func (m *Manager[S]) Synced() <-chan struct{} { return m.synced }

func (m *Manager[S]) run(ctx context.Context, instances, models <-chan discovery.Event) {
	defer m.withdrawAll()
	waiting := 2
	for {
		select {
		case event, ok := <-instances:
			if !ok {
				return
			}
			m.instanceEvent(event)
			waiting -= m.drain(instances, m.instanceEvent, event)
		case event, ok := <-models:
			if !ok {
				return
			}
			m.modelEvent(event)
			waiting -= m.drain(models, m.modelEvent, event)
		case result := <-m.built:
			m.finishBuild(result)
		}
		if waiting == 0 {
			waiting = -1
			close(m.synced)
		}
		// Until both lists are complete a set could look smaller than it is.
		if waiting < 0 {
			m.reconcile(ctx)
		}
	}
}

// drain takes what else is ready, so that a burst of records costs one reconciliation. It returns how many Synced came.
func (m *Manager[S]) drain(events <-chan discovery.Event, handle func(discovery.Event), first discovery.Event) int {
	synced := 0
	if first.Kind == discovery.Synced {
		synced++
	}
	for {
		select {
		case event, ok := <-events:
			if !ok {
				return synced
			}
			if event.Kind == discovery.Synced {
				synced++
			}
			handle(event)
		default:
			return synced
		}
	}
}

func (m *Manager[S]) instanceEvent(event discovery.Event) {
	switch event.Kind {
	case discovery.Put:
		if instance, ok := event.Record.(*discovery.Instance); ok {
			m.sets.putInstance(instance)
		}
	case discovery.Delete:
		m.sets.deleteInstance(event.Key)
		m.sets.compute() // a cohort that is gone is gone, even if it is back with the next event
	}
}

func (m *Manager[S]) modelEvent(event discovery.Event) {
	switch event.Kind {
	case discovery.Put:
		record, ok := event.Record.(*discovery.Model)
		if !ok {
			return
		}
		parsed, err := card.Parse(record.Card)
		if err != nil {
			m.options.Logger.Error("a model card cannot be used", "key", event.Key, "error", err)
			return
		}
		if (record.Suffix != "") != (parsed.LoRA != nil) {
			m.options.Logger.Error("a model card cannot be used: a LoRA adapter's has the adapter in its key and in its text, any other in neither",
				"key", event.Key, "model", parsed.DisplayName, "model_suffix", record.Suffix)
			m.sets.deleteModel(event.Key)
			return
		}
		if m.options.ModelName != "" && parsed.LoRA == nil { // an adapter keeps its own
			parsed.DisplayName = m.options.ModelName
		}
		if m.options.BlockSize != 0 {
			parsed.BlockSize = m.options.BlockSize
		}
		m.sets.putModel(event.Key, record, parsed)
	case discovery.Delete:
		m.sets.deleteModel(event.Key)
		m.sets.compute() // as for instances
	}
}

// reconcile makes what is served equal to what the sets say.
func (m *Manager[S]) reconcile(ctx context.Context) {
	wanted := m.sets.compute()
	for key, s := range m.served {
		set := wanted[key]
		if set == nil || set.Reservation != s.set.Reservation {
			m.withdraw(key, s)
		}
	}
	for key, set := range wanted {
		s := m.served[key]
		if s == nil {
			m.beginBuild(ctx, key, set)
			continue
		}
		changed := !sameMembers(s.set, set)
		s.set = set
		if s.ready && changed {
			s.server.Update(set)
		}
	}
	m.publish(wanted)
}

func sameMembers(x, y *Set) bool {
	return slices.EqualFunc(x.Members, y.Members, func(a, b Member) bool { return a.Instance == b.Instance && a.Card == b.Card })
}

func (m *Manager[S]) withdraw(key Key, s *serving[S]) {
	delete(m.served, key)
	s.cancel()
	s.stale = true
	if s.ready {
		// The catalog must not lead to a server that is closed.
		m.publishNow()
		s.server.Close()
	}
}

func (m *Manager[S]) withdrawAll() {
	m.catalog.Store(&catalog[S]{})
	for key, s := range m.served {
		delete(m.served, key)
		s.cancel()
		if s.ready {
			s.server.Close()
		}
	}
}

func (m *Manager[S]) beginBuild(ctx context.Context, key Key, set *Set) {
	ctx, cancel := context.WithCancel(ctx)
	s := &serving[S]{set: set, cancel: cancel}
	m.served[key] = s
	m.wait.Add(1)
	go func() { // ends when the build succeeds or its context ends
		defer m.wait.Done()
		pause := m.options.RetryAfter
		for {
			server, err := m.build(ctx, set)
			if err == nil || ctx.Err() != nil {
				select {
				case m.built <- buildResult[S]{s, server, err}:
				case <-ctx.Done():
					if err == nil {
						server.Close()
					}
				}
				return
			}
			m.options.Logger.Error("a model cannot be served yet; it is tried again", "model", key.Model, "endpoint", key.Endpoint.String(), "after", pause, "error", err)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, time.Minute)
		}
	}()
}

func (m *Manager[S]) finishBuild(result buildResult[S]) {
	s := result.serving
	if result.err != nil {
		return
	}
	if s.stale {
		result.server.Close()
		return
	}
	s.server, s.ready = result.server, true
	s.server.Update(s.set)
	m.options.Logger.Info("model is served", "model", s.set.Key.Model, "endpoint", s.set.Key.Endpoint.String(), "role", string(s.set.Key.Role), "workers", len(s.set.Members))
}

func (m *Manager[S]) publish(wanted map[Key]*Set) {
	m.publishWith(wanted)
	list := make([]*discovery.Instance, 0, len(m.sets.instances))
	for _, key := range slices.Sorted(maps.Keys(m.sets.instances)) {
		list = append(list, m.sets.instances[key])
	}
	m.records.Store(&list)
}

func (m *Manager[S]) publishNow() { m.publishWith(m.sets.compute()) }

func (m *Manager[S]) publishWith(wanted map[Key]*Set) {
	c := &catalog[S]{byName: make(map[string][]Entry[S]), known: make(map[string]bool)}
	for key := range wanted {
		c.known[key.Model] = true
	}
	for _, s := range m.served {
		if !s.ready {
			continue
		}
		entry := Entry[S]{Set: s.set, Server: s.server}
		c.all = append(c.all, entry)
		for _, name := range s.set.Card.Names() {
			c.byName[name] = append(c.byName[name], entry)
			c.known[name] = true
		}
	}
	order := func(x, y Entry[S]) int {
		if x.Set.Key.Model != y.Set.Key.Model {
			if x.Set.Key.Model < y.Set.Key.Model {
				return -1
			}
			return 1
		}
		if x.Set.Key.Endpoint.String() < y.Set.Key.Endpoint.String() {
			return -1
		}
		return 1
	}
	slices.SortFunc(c.all, order)
	for _, entries := range c.byName {
		slices.SortFunc(entries, order)
	}
	m.catalog.Store(c)
	if m.options.OnPeers != nil {
		m.options.OnPeers()
	}
}

// Served returns all served sets, sorted by model and endpoint.
func (m *Manager[S]) Served() []Entry[S] { return m.catalog.Load().all }

// Find returns the served sets of a name or alias.
func (m *Manager[S]) Find(name string) []Entry[S] { return m.catalog.Load().byName[name] }

// Known tells whether some worker has registered the name, served or not.
func (m *Manager[S]) Known(name string) bool { return m.catalog.Load().known[name] }

// Instances returns the discovered instances, sorted by key.
func (m *Manager[S]) Instances() []*discovery.Instance {
	if list := m.records.Load(); list != nil {
		return *list
	}
	return nil
}

// Pick chooses among the sets of one name in proportion to their workers.
func Pick[S Server](entries []Entry[S]) (Entry[S], bool) {
	switch len(entries) {
	case 0:
		return Entry[S]{}, false
	case 1:
		return entries[0], true
	}
	total := 0
	for _, entry := range entries {
		total += len(entry.Set.Members)
	}
	at := rand.IntN(max(total, 1))
	for _, entry := range entries {
		if at -= len(entry.Set.Members); at < 0 {
			return entry, true
		}
	}
	return entries[0], true
}
