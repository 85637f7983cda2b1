package model

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/model/card"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is workers that come and go, and a manager that follows them.
type fleet struct {
	t       *testing.T
	store   mem.Store
	manager *Manager[*recorded]
	log     *lockedBuffer

	mu     sync.Mutex
	builds []string // checksums of what was built, in order
	fail   bool
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// recorded is a server that remembers who was in its set.
type recorded struct {
	mu     sync.Mutex
	ever   map[uint64]bool
	closed bool
}

func (r *recorded) Update(set *Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range set.Members {
		r.ever[m.Instance.InstanceID] = true
	}
}

func (r *recorded) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

func newFleet(t *testing.T, options Options) *fleet {
	t.Helper()
	f := &fleet{t: t, log: &lockedBuffer{}}
	backend := f.store.Open(mem.Options{})
	options.Logger = slog.New(slog.NewTextHandler(f.log, nil))
	options.RetryAfter = time.Millisecond
	manager, err := Start(context.Background(), backend, func(_ context.Context, set *Set) (*recorded, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.fail {
			return nil, fmt.Errorf("not now")
		}
		f.builds = append(f.builds, fmt.Sprint(set.Card.BlockSize))
		return &recorded{ever: map[uint64]bool{}}, nil
	}, options)
	if err != nil {
		t.Fatal(err)
	}
	f.manager = manager
	t.Cleanup(func() {
		manager.Close()
		_ = backend.Close(context.Background())
	})
	return f
}

// member is one worker of the fleet.
type testWorker struct {
	backend  *mem.Backend
	instance *discovery.Instance
	models   []*discovery.Model
}

// add registers a worker of the model m. The block size stands for all that makes cards differ.
func (f *fleet) add(namespace string, blockSize uint32, change ...func(*card.Card, *discovery.Model)) *testWorker {
	f.t.Helper()
	w := &testWorker{backend: f.store.Open(mem.Options{})}
	w.instance = &discovery.Instance{Namespace: namespace, Component: "backend", Endpoint: "generate", InstanceID: w.backend.InstanceID(),
		Transport: discovery.Transport{TCP: "127.0.0.1:1/x"}}
	f.publish(w.backend, w.instance)
	f.addModel(w, blockSize, change...)
	f.t.Cleanup(func() { _ = w.backend.Close(context.Background()) })
	return w
}

func (f *fleet) addModel(w *testWorker, blockSize uint32, change ...func(*card.Card, *discovery.Model)) {
	f.t.Helper()
	c := &card.Card{DisplayName: "m", Slug: "m", BlockSize: blockSize, ModelType: card.Chat, ModelInput: card.TokensInput, WorkerType: card.AggregatedWorker,
		Runtime: card.DefaultRuntimeConfig()}
	record := &discovery.Model{Namespace: w.instance.Namespace, Component: "backend", Endpoint: "generate", InstanceID: w.instance.InstanceID}
	for _, change := range change {
		change(c, record)
	}
	text, err := c.Marshal()
	if err != nil {
		f.t.Fatal(err)
	}
	record.Card = text
	w.models = append(w.models, record)
	f.publish(w.backend, record)
}

func (f *fleet) publish(b *mem.Backend, record discovery.Record) {
	f.t.Helper()
	if err := discovery.Publish(context.Background(), b, record); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) remove(w *testWorker) {
	f.t.Helper()
	for _, record := range w.models {
		if err := discovery.Withdraw(context.Background(), w.backend, record); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := discovery.Withdraw(context.Background(), w.backend, w.instance); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) eventually(what string, condition func() bool) {
	f.t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-ticker.C {
		if condition() {
			return
		}
	}
	f.t.Fatalf("it did not happen: %s; served %v", what, f.served("m"))
}

// served lists the sets of a name as "namespace blockSize members".
func (f *fleet) served(name string) []string {
	var list []string
	for _, entry := range f.manager.Find(name) {
		list = append(list, fmt.Sprintf("%s %d %d", entry.Set.Key.Endpoint.Namespace, entry.Set.Card.BlockSize, len(entry.Set.Members)))
	}
	return list
}

func (f *fleet) serves(name string, want ...string) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("%s is served by %v", name, want), func() bool { return slices.Equal(f.served(name), want) })
}

func (f *fleet) built(want ...string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.builds, want) {
		f.t.Errorf("built %v, want %v", f.builds, want)
	}
}

// seen waits until discovery's news about the worker's card has arrived; a rejected one is not served anywhere.
func (f *fleet) seen(count int) {
	f.t.Helper()
	f.eventually("all workers are known", func() bool { return len(f.manager.Instances()) == count })
}

// TestTheFirstCardReservesTheSet: others get nothing, however many they are, and are named once; when the last of the first has gone,
// the oldest of the others succeed in a pipeline of their own.
func TestTheFirstCardReservesTheSet(t *testing.T) {
	f := newFleet(t, Options{})
	first := f.add("n", 16)
	f.serves("m", "n 16 1")
	older := f.add("n", 32)
	f.seen(2)
	for range 3 {
		f.add("n", 64)
	}
	f.add("n", 32)
	f.seen(6)
	f.eventually("both rejected cohorts are named", func() bool { return strings.Count(f.log.String(), "Rejected incompatible workers") == 2 })
	f.serves("m", "n 16 1")
	server := f.manager.Find("m")[0].Server
	f.remove(first)
	f.serves("m", "n 32 2")
	f.built("16", "32")
	server.mu.Lock()
	if !server.closed || len(server.ever) != 1 || !server.ever[first.instance.InstanceID] {
		t.Errorf("the first pipeline: closed %v, workers %v", server.closed, server.ever)
	}
	server.mu.Unlock()
	if f.manager.Find("m")[0].Server == server {
		t.Error("the successor has the pipeline of its predecessor")
	}
	// The incumbent's duplicates leave one by one: the set is theirs to the last.
	f.remove(older)
	f.serves("m", "n 32 1")
	if got := strings.Count(f.log.String(), "Rejected incompatible workers"); got != 2 {
		t.Errorf("%d rejections were logged, want 2: each cohort once", got)
	}
}

// TestACohortThatVanishedComesLast: order is that of arrival as long as one worker of the cohort stays, and begins anew after that.
func TestACohortThatVanishedComesLast(t *testing.T) {
	f := newFleet(t, Options{})
	first := f.add("n", 16)
	f.serves("m", "n 16 1")
	second := f.add("n", 32)
	f.seen(2)
	third := f.add("n", 64)
	f.seen(3)
	f.remove(second)
	f.seen(2)
	again := f.add("n", 32) // behind the third now
	f.seen(3)
	f.add("n", 64) // a duplicate changes no order
	f.seen(4)
	f.remove(third)
	f.seen(3)
	f.remove(first)
	f.serves("m", "n 64 1")
	f.remove(again)
	f.built("16", "64")
}

// TestACohortThatIsBackHasAPipelineOfItsOwn: the last worker goes and comes back, so fast that both are one piece of news.
func TestACohortThatIsBackHasAPipelineOfItsOwn(t *testing.T) {
	s := newSets(discovery.NamespaceFilter{}, nil)
	instance := &discovery.Instance{Namespace: "n", Component: "c", Endpoint: "e", InstanceID: 1}
	record := &discovery.Model{Namespace: "n", Component: "c", Endpoint: "e", InstanceID: 1}
	c := &card.Card{DisplayName: "m", BlockSize: 16, ModelType: card.Chat}
	arrive := func() {
		s.putInstance(instance)
		s.putModel(record.Key(), record, c)
	}
	reservation := func() (r uint64) {
		for _, set := range s.compute() {
			r = set.Reservation
		}
		return r
	}
	arrive()
	first := reservation()
	if again := reservation(); again != first || first == 0 {
		t.Errorf("reservation %d, then %d", first, again)
	}
	m := &Manager[*recorded]{sets: s}
	m.modelEvent(discovery.Event{Kind: discovery.Delete, Key: record.Key()})
	arrive()
	if second := reservation(); second == first {
		t.Error("a cohort that was gone has its old pipeline")
	}
}

// TestAFailedBuildKeepsTheReservation: while the first card's pipeline cannot be built, nobody else's is.
func TestAFailedBuildKeepsTheReservation(t *testing.T) {
	f := newFleet(t, Options{})
	f.fail = true
	first := f.add("n", 16)
	f.eventually("a build fails", func() bool { return strings.Contains(f.log.String(), "not now") })
	f.add("n", 32)
	f.seen(2)
	f.eventually("the second is rejected", func() bool { return strings.Contains(f.log.String(), "Rejected incompatible workers") })
	if !f.manager.Known("m") || len(f.served("m")) != 0 {
		t.Errorf("known %v, served %v", f.manager.Known("m"), f.served("m"))
	}
	f.mu.Lock()
	f.fail = false
	f.mu.Unlock()
	f.serves("m", "n 16 1")
	f.remove(first)
	f.serves("m", "n 32 1")
}

// TestNamespacesAreSetsOfTheirOwn: the same model in two namespaces is two sets, each with the card of its own first worker.
func TestNamespacesAreSetsOfTheirOwn(t *testing.T) {
	f := newFleet(t, Options{Filter: discovery.NamespaceFilter{Prefix: "n"}})
	f.add("n-1", 16)
	f.add("n-2", 32)
	f.add("n-2", 32)
	f.add("other", 16)
	f.serves("m", "n-1 16 1", "n-2 32 2")
	counts := map[string]int{}
	for range 3000 {
		entry, ok := Pick(f.manager.Find("m"))
		if !ok {
			t.Fatal("nothing to pick")
		}
		counts[entry.Set.Key.Endpoint.Namespace]++
	}
	if counts["n-1"] < 800 || counts["n-1"] > 1200 { // a third, ten standard deviations wide
		t.Errorf("picked %v", counts)
	}
}

func adapter(name string) func(*card.Card, *discovery.Model) {
	return func(c *card.Card, record *discovery.Model) {
		c.DisplayName, c.LoRA, record.Suffix = name, &card.LoRA{Name: name}, card.Slug(name)
	}
}

// TestAdaptersAreModelsOfTheWorkersThatHaveThem: an adapter is a set of just those workers, comes and goes with its cards, and keeps
// its name where the base model is renamed.
func TestAdaptersAreModelsOfTheWorkersThatHaveThem(t *testing.T) {
	f := newFleet(t, Options{ModelName: "renamed"})
	one, two := f.add("n", 16), f.add("n", 16)
	f.addModel(one, 16, adapter("My/Adapter"))
	f.serves("renamed", "n 16 2")
	f.serves("My/Adapter", "n 16 1")
	if set := f.manager.Find("My/Adapter")[0].Set; set.Members[0].Instance.InstanceID != one.instance.InstanceID || set.Card.LoRA == nil {
		t.Errorf("%+v", set)
	}
	f.addModel(two, 16, adapter("My/Adapter"))
	f.serves("My/Adapter", "n 16 2")
	if err := discovery.Withdraw(context.Background(), one.backend, one.models[1]); err != nil {
		t.Fatal(err)
	}
	f.serves("My/Adapter", "n 16 1")
	one.models = one.models[:1]
	f.remove(two)
	f.serves("My/Adapter")
	f.serves("renamed", "n 16 1")
}

func TestAnAdapterWithoutKeyOrTextIsRefused(t *testing.T) {
	f := newFleet(t, Options{})
	f.add("n", 16, func(c *card.Card, _ *discovery.Model) { c.DisplayName, c.LoRA = "a", &card.LoRA{Name: "a"} })
	f.add("n", 16, func(c *card.Card, r *discovery.Model) { c.DisplayName, r.Suffix = "b", "b" })
	f.add("n", 16)
	f.serves("m", "n 16 1")
	f.eventually("both are named", func() bool { return strings.Count(f.log.String(), "LoRA adapter") == 2 })
	if f.manager.Known("a") || f.manager.Known("b") {
		t.Error("a card that cannot be used is served")
	}
}
