// Package contract tests what every discovery backend promises, whatever its store.
package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/discovery"
)

// patience is how long a test waits for something that has to happen. Reached only by a failing test.
const patience = 20 * time.Second

// Fleet is one shared store as a test sees it.
type Fleet struct {
	// Open connects one more process. It is closed with the test unless the test closes it first.
	Open func(t *testing.T, onBad func(discovery.BadRecord)) discovery.Backend
	// Write stores any bytes under a key, as a faulty or foreign process might. nil: the store does not take any bytes, and the
	// tests of bad records are left to the backend.
	Write func(t *testing.T, bucket discovery.Bucket, key string, value []byte)
	// KeysPerProcess says that processes can't take each other's keys, because each has a place of its own.
	KeysPerProcess bool
}

// Run runs the suite; newFleet makes an empty store for each test.
func Run(t *testing.T, newFleet func(t *testing.T) Fleet) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Fleet)
	}{
		{"a late watcher gets what exists, then synced", lateWatcher},
		{"changes arrive in order", changes},
		{"a closed process takes its records along", closing},
		{"put does not overwrite", noOverwrite},
		{"only own keys can be replaced and deleted", ownKeysOnly},
		{"a prefix ends at a segment boundary", prefixes},
		{"buckets are apart", buckets},
		{"bad records are reported once and stop nothing", badRecords},
		{"a record that turns bad leaves the last good one", turnsBad},
		{"a receiver that does not read gets the latest state", slowReceiver},
		{"a watch ends with its context", watchEnds},
		{"a closed backend refuses work", refusesWhenClosed},
		{"many processes at once", manyProcesses},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newFleet(t)) })
	}
}

// Instance returns a record for tests.
func Instance(namespace string, id uint64) *discovery.Instance {
	return &discovery.Instance{
		Namespace: namespace, Component: "backend", Endpoint: "generate", InstanceID: id,
		Transport: discovery.Transport{TCP: fmt.Sprintf("127.0.0.1:1000/%x/generate", id)}, Codec: "msgpack",
	}
}

// Model returns a record for tests.
func Model(namespace string, id uint64, card string) *discovery.Model {
	return &discovery.Model{Namespace: namespace, Component: "backend", Endpoint: "generate", InstanceID: id, Card: []byte(card)}
}

// Next waits for the next event.
func Next(t *testing.T, events <-chan discovery.Event) discovery.Event {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case event, open := <-events:
		if !open {
			t.Fatal("the watch ended; want an event")
		}
		return event
	case <-timer.C:
		t.Fatal("no event came")
	}
	panic("unreachable")
}

// Expect waits for the next event, which has to be the one described.
func Expect(t *testing.T, events <-chan discovery.Event, kind discovery.EventKind, record discovery.Record) {
	t.Helper()
	expect(t, Next(t, events), kind, record)
}

func expect(t *testing.T, event discovery.Event, kind discovery.EventKind, record discovery.Record) {
	t.Helper()
	if event.Kind != kind {
		t.Fatalf("got event %v %s, want %v", event.Kind, event.Key, kind)
	}
	if record == nil {
		return
	}
	value, err := discovery.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if event.Key != record.Key() || event.Record == nil || len(event.Value) == 0 {
		t.Fatalf("got %v %s = %s (%#v), want %s = %s", event.Kind, event.Key, event.Value, event.Record, record.Key(), value)
	}
	got, err := discovery.Marshal(event.Record)
	if err != nil {
		t.Fatal(err)
	}
	if !sameJSON(t, got, value) {
		t.Fatalf("got %v %s = %s, want %s", event.Kind, event.Key, got, value)
	}
}

// sameJSON compares contents: a store may write members in another order.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var decoded [2]any
	for i, text := range [][]byte{a, b} {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber() // ids don't fit a float64
		if err := decoder.Decode(&decoded[i]); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	}
	return reflect.DeepEqual(decoded[0], decoded[1])
}

// Watch starts a watch that lasts as long as the test.
func Watch(t *testing.T, backend discovery.Backend, bucket discovery.Bucket, prefix string) <-chan discovery.Event {
	t.Helper()
	events, err := backend.Watch(t.Context(), bucket, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// Publish publishes or fails the test.
func Publish(t *testing.T, backend discovery.Backend, record discovery.Record) {
	t.Helper()
	if err := discovery.Publish(t.Context(), backend, record); err != nil {
		t.Fatal(err)
	}
}

func lateWatcher(t *testing.T, fleet Fleet) {
	worker, frontend := fleet.Open(t, nil), fleet.Open(t, nil)
	if worker.InstanceID() == 0 || worker.InstanceID() == frontend.InstanceID() {
		t.Fatalf("instance ids %x and %x; want two that differ", worker.InstanceID(), frontend.InstanceID())
	}
	record := Instance("ns", worker.InstanceID())
	Publish(t, worker, record)
	events := Watch(t, frontend, discovery.Instances, "")
	Expect(t, events, discovery.Put, record)
	Expect(t, events, discovery.Synced, nil)
	second := Watch(t, frontend, discovery.Instances, "")
	Expect(t, second, discovery.Put, record)
	Expect(t, second, discovery.Synced, nil)
}

func changes(t *testing.T, fleet Fleet) {
	worker, frontend := fleet.Open(t, nil), fleet.Open(t, nil)
	events := Watch(t, frontend, discovery.Models, "")
	Expect(t, events, discovery.Synced, nil)
	before, after := Model("ns", worker.InstanceID(), `{"a":1}`), Model("ns", worker.InstanceID(), `{"a":2}`)
	Publish(t, worker, before)
	Expect(t, events, discovery.Put, before)
	if err := discovery.Republish(t.Context(), worker, after); err != nil {
		t.Fatal(err)
	}
	Expect(t, events, discovery.Put, after)
	if err := discovery.Withdraw(t.Context(), worker, after); err != nil {
		t.Fatal(err)
	}
	Expect(t, events, discovery.Delete, after)
	Publish(t, worker, before)
	Expect(t, events, discovery.Put, before)
}

func closing(t *testing.T, fleet Fleet) {
	worker, other, frontend := fleet.Open(t, nil), fleet.Open(t, nil), fleet.Open(t, nil)
	leaves, stays := Instance("ns", worker.InstanceID()), Instance("ns", other.InstanceID())
	events := Watch(t, frontend, discovery.Instances, "")
	Expect(t, events, discovery.Synced, nil)
	Publish(t, worker, leaves)
	Expect(t, events, discovery.Put, leaves)
	Publish(t, other, stays)
	Expect(t, events, discovery.Put, stays)
	if err := worker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	Expect(t, events, discovery.Delete, leaves)
	if err := worker.Close(t.Context()); err != nil {
		t.Fatalf("second Close: %v", err)
	}
	again := Watch(t, frontend, discovery.Instances, "")
	Expect(t, again, discovery.Put, stays)
	Expect(t, again, discovery.Synced, nil)
}

func noOverwrite(t *testing.T, fleet Fleet) {
	first, second := fleet.Open(t, nil), fleet.Open(t, nil)
	record := Instance("ns", 7)
	Publish(t, first, record)
	intruder := Instance("ns", 7)
	intruder.Codec = "json"
	rivals := []discovery.Backend{first, second}
	if fleet.KeysPerProcess {
		rivals = rivals[:1]
	}
	for _, backend := range rivals {
		if err := discovery.Publish(t.Context(), backend, intruder); !errors.Is(err, discovery.ErrExists) {
			t.Fatalf("second put gave %v, want ErrExists", err)
		}
	}
	events := Watch(t, second, discovery.Instances, "")
	Expect(t, events, discovery.Put, record)
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	events = Watch(t, first, discovery.Instances, "")
	Expect(t, events, discovery.Put, record) // the refused process did not take it along
}

func ownKeysOnly(t *testing.T, fleet Fleet) {
	owner, other := fleet.Open(t, nil), fleet.Open(t, nil)
	record := Instance("ns", owner.InstanceID())
	Publish(t, owner, record)
	if err := discovery.Republish(t.Context(), other, record); !errors.Is(err, discovery.ErrNotOwned) {
		t.Errorf("foreign replace gave %v, want ErrNotOwned", err)
	}
	if err := discovery.Withdraw(t.Context(), other, record); !errors.Is(err, discovery.ErrNotOwned) {
		t.Errorf("foreign delete gave %v, want ErrNotOwned", err)
	}
	if err := discovery.Withdraw(t.Context(), owner, record); err != nil {
		t.Error(err)
	}
	if err := discovery.Withdraw(t.Context(), owner, record); !errors.Is(err, discovery.ErrNotOwned) {
		t.Errorf("second delete gave %v, want ErrNotOwned", err)
	}
}

func prefixes(t *testing.T, fleet Fleet) {
	worker, frontend := fleet.Open(t, nil), fleet.Open(t, nil)
	inside, outside := Instance("dynamo", worker.InstanceID()), Instance("dynamo-2", worker.InstanceID())
	Publish(t, worker, inside)
	Publish(t, worker, outside)
	narrow := Watch(t, frontend, discovery.Instances, "dynamo")
	Expect(t, narrow, discovery.Put, inside)
	Expect(t, narrow, discovery.Synced, nil)
	exact := Watch(t, frontend, discovery.Instances, outside.Key())
	Expect(t, exact, discovery.Put, outside)
	Expect(t, exact, discovery.Synced, nil)
	if err := discovery.Withdraw(t.Context(), worker, outside); err != nil {
		t.Fatal(err)
	}
	Expect(t, exact, discovery.Delete, outside)
	if err := discovery.Withdraw(t.Context(), worker, inside); err != nil {
		t.Fatal(err)
	}
	Expect(t, narrow, discovery.Delete, inside)
}

func buckets(t *testing.T, fleet Fleet) {
	backend := fleet.Open(t, nil)
	id := backend.InstanceID()
	endpoint := discovery.EndpointID{Namespace: "ns", Component: "backend", Name: "generate"}
	scope := discovery.EndpointScope(endpoint)
	for _, record := range []discovery.Record{
		Instance("ns", id),
		Model("ns", id, `{"display_name":"<m & n>"}`),
		&discovery.EventChannel{Scope: scope, Topic: "kv-events", PublisherID: 5, Transport: discovery.EventTransport{ZMQ: "tcp://127.0.0.1:9"}},
		&discovery.EventSource{Scope: scope, Topic: "kv-events", PublisherID: 5, Metadata: discovery.SourceMetadata{
			KVStateEndpoint: endpoint, Worker: discovery.SourceWorker{WorkerID: id, Rank: 1}, PublisherID: 5, RecoveryTarget: Instance("ns", id),
		}},
	} {
		Publish(t, backend, record)
		events := Watch(t, backend, record.Bucket(), "")
		// A store that is read through a mirror may see a process's own write a moment later.
		event := Next(t, events)
		for event.Kind == discovery.Synced {
			event = Next(t, events)
		}
		expect(t, event, discovery.Put, record)
	}
}

// badList collects reports.
type badList struct {
	mu      sync.Mutex
	reports []discovery.BadRecord
	arrived chan struct{}
}

func newBadList() *badList { return &badList{arrived: make(chan struct{}, 100)} }

func (l *badList) add(bad discovery.BadRecord) {
	l.mu.Lock()
	l.reports = append(l.reports, bad)
	l.mu.Unlock()
	l.arrived <- struct{}{}
}

func (l *badList) wait(t *testing.T) discovery.BadRecord {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-l.arrived:
	case <-timer.C:
		t.Fatal("no bad record was reported")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reports[len(l.reports)-1]
}

func (l *badList) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.reports)
}

func badRecords(t *testing.T, fleet Fleet) {
	if fleet.Write == nil {
		t.Skip("this store takes no bad bytes")
	}
	bad := newBadList()
	worker, frontend := fleet.Open(t, nil), fleet.Open(t, bad.add)
	events := Watch(t, frontend, discovery.Instances, "")
	Expect(t, events, discovery.Synced, nil)
	good, _ := discovery.Marshal(Instance("ns", 0xa))
	for _, write := range []struct{ key, value, complaint string }{
		{"ns/backend/generate/1", `{{{`, "JSON"},
		{"ns/backend/generate/2", `[1]`, "JSON object"},
		{"ns/backend/generate/3", `{"type":"Model"}`, `bucket v1/instances holds "Endpoint"`},
		{"ns/backend/generate/4", string(good), "ns/backend/generate/a"},
		{"ns/backend/generate/5", strings.Replace(string(good), `"instance_id":10`, `"instance_id":"10"`, 1), "instance_id"},
		{"ns/backend/generate/6", ``, "JSON"},
	} {
		fleet.Write(t, discovery.Instances, write.key, []byte(write.value))
		report := bad.wait(t)
		if report.Bucket != discovery.Instances || report.Key != write.key || !strings.Contains(report.Error(), write.complaint) {
			t.Errorf("%s = %s was reported as %q; want the key and %q", write.key, write.value, report.Error(), write.complaint)
		}
	}
	record := Instance("ns", worker.InstanceID())
	Publish(t, worker, record)
	Expect(t, events, discovery.Put, record) // and none of the bad ones before it
	if err := discovery.Withdraw(t.Context(), worker, record); err != nil {
		t.Fatal(err)
	}
	Expect(t, events, discovery.Delete, record) // a second reading of the store happened; nothing is reported twice
	if bad.count() != 6 {
		t.Errorf("%d reports; want each of the 6 bad records once", bad.count())
	}
}

func turnsBad(t *testing.T, fleet Fleet) {
	if fleet.Write == nil {
		t.Skip("this store takes no bad bytes")
	}
	bad := newBadList()
	frontend := fleet.Open(t, bad.add)
	events := Watch(t, frontend, discovery.Models, "")
	Expect(t, events, discovery.Synced, nil)
	before, after := Model("ns", 1, `{"a":1}`), Model("ns", 1, `{"a":2}`)
	write := func(record discovery.Record) {
		value, err := discovery.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		fleet.Write(t, discovery.Models, before.Key(), value)
	}
	write(before)
	Expect(t, events, discovery.Put, before)
	fleet.Write(t, discovery.Models, before.Key(), []byte(`{"type":"Model"`))
	bad.wait(t)
	late := Watch(t, frontend, discovery.Models, "")
	Expect(t, late, discovery.Put, before)
	write(after)
	Expect(t, events, discovery.Put, after)
}

func slowReceiver(t *testing.T, fleet Fleet) {
	worker, frontend := fleet.Open(t, nil), fleet.Open(t, nil)
	slow := Watch(t, frontend, discovery.Models, "")
	quick := Watch(t, frontend, discovery.Models, "")
	Expect(t, quick, discovery.Synced, nil)
	Publish(t, worker, Model("ns", 1, `{"a":0}`))
	last := Model("ns", 1, `{"a":200}`)
	for i := 1; i <= 200; i++ {
		if err := discovery.Republish(t.Context(), worker, Model("ns", 1, fmt.Sprintf(`{"a":%d}`, i))); err != nil {
			t.Fatal(err)
		}
	}
	Publish(t, worker, Model("ns", 2, `{}`))
	for event := Next(t, quick); event.Key != "ns/backend/generate/2"; event = Next(t, quick) {
	}
	// The slow one was not read; at most what its channel holds, and the last state of each key, is waiting.
	var seen []byte
	waiting := 0
	for event := Next(t, slow); event.Key != "ns/backend/generate/2"; event = Next(t, slow) {
		seen = event.Value
		waiting++
	}
	want, _ := discovery.Marshal(last)
	if !sameJSON(t, seen, want) {
		t.Errorf("last state seen is %s, want %s", seen, want)
	}
	if waiting > 40 {
		t.Errorf("%d events were waiting for a receiver that did not read", waiting)
	}
}

func watchEnds(t *testing.T, fleet Fleet) {
	backend := fleet.Open(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := backend.Watch(ctx, discovery.Instances, "")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	drain(t, events)
	// The bucket goes on for others.
	record := Instance("ns", backend.InstanceID())
	Publish(t, backend, record)
	again := Watch(t, backend, discovery.Instances, "")
	for event := Next(t, again); event.Kind != discovery.Put; event = Next(t, again) {
	}
}

// drain waits for the end of a watch.
func drain(t *testing.T, events <-chan discovery.Event) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
		case <-timer.C:
			t.Fatal("the watch did not end")
		}
	}
}

func refusesWhenClosed(t *testing.T, fleet Fleet) {
	backend := fleet.Open(t, nil)
	record := Instance("ns", backend.InstanceID())
	Publish(t, backend, record)
	events := Watch(t, backend, discovery.Instances, "")
	if err := backend.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	drain(t, events)
	if err := discovery.Publish(t.Context(), backend, record); !errors.Is(err, discovery.ErrClosed) {
		t.Errorf("put gave %v, want ErrClosed", err)
	}
	if err := discovery.Withdraw(t.Context(), backend, record); !errors.Is(err, discovery.ErrClosed) {
		t.Errorf("delete gave %v, want ErrClosed", err)
	}
	if _, err := backend.Watch(t.Context(), discovery.Instances, ""); !errors.Is(err, discovery.ErrClosed) {
		t.Errorf("watch gave %v, want ErrClosed", err)
	}
}

func manyProcesses(t *testing.T, fleet Fleet) {
	const processes, recordsEach = 6, 10
	frontend := fleet.Open(t, nil)
	events := Watch(t, frontend, discovery.Models, "")
	Expect(t, events, discovery.Synced, nil)
	var group sync.WaitGroup
	for p := range processes {
		worker := fleet.Open(t, nil)
		group.Go(func() {
			for r := range recordsEach {
				model := Model(fmt.Sprintf("ns%d", p), uint64(r), `{}`)
				if err := discovery.Publish(t.Context(), worker, model); err != nil {
					t.Error(err)
				}
				if r%2 == 0 {
					if err := discovery.Withdraw(t.Context(), worker, model); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	alive := make(map[string]bool)
	done := func() bool {
		if len(alive) != processes*recordsEach/2 {
			return false
		}
		for key := range alive {
			if last := key[len(key)-1]; (last-'0')%2 == 0 {
				return false
			}
		}
		return true
	}
	for !done() {
		switch event := Next(t, events); event.Kind {
		case discovery.Put:
			alive[event.Key] = true
		case discovery.Delete:
			delete(alive, event.Key)
		}
	}
}
