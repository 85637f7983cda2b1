package file

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"signalbox/discovery"
	"signalbox/discovery/internal/contract"
	"signalbox/discovery/internal/feed"
)

func openQuick(t *testing.T, root string) *Backend {
	t.Helper()
	// The round of keep-alive never comes by itself; tests start it.
	backend, err := Open(Options{Root: root, TTL: time.Hour, PollInterval: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.Close(context.Background()) })
	return backend
}

func pathOf(b *Backend, record discovery.Record) string {
	return b.path(ownedFile{record.Bucket(), record.Key()})
}

func age(t *testing.T, path string) {
	t.Helper()
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Real peers look for exactly these names and contents.
func TestLayout(t *testing.T) {
	backend := openQuick(t, t.TempDir())
	record := contract.Instance("dyn_amo-1", 0x14d21cc576669f5d)
	contract.Publish(t, backend, record)
	path := filepath.Join(backend.Root(), "v1", "instances", "dyn%5Famo%2D1%2Fbackend%2Fgenerate%2F14d21cc576669f5d")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := discovery.Marshal(record); string(content) != string(want) {
		t.Errorf("content %q, want %q", content, want)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("the bucket holds %v, %v; want the one file", entries, err)
	}
	if err := backend.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exists(path) {
		t.Error("a clean exit left the file behind")
	}
}

func TestDefaultRoot(t *testing.T) {
	t.Setenv("DYN_FILE_KV", "/somewhere")
	if got := DefaultRoot(); got != "/somewhere" {
		t.Errorf("root %q, want $DYN_FILE_KV", got)
	}
	t.Setenv("DYN_FILE_KV", "")
	t.Setenv("TMPDIR", "/elsewhere")
	if got := DefaultRoot(); got != "/elsewhere/dynamo_store_kv" {
		t.Errorf("root %q, want it below $TMPDIR", got)
	}
}

// A killed worker leaves its files; without their removal it would be routed to for ever.
func TestDeadFilesVanish(t *testing.T) {
	root := t.TempDir()
	crashed, frontend := openQuick(t, root), openQuick(t, root)
	dead, alive := contract.Instance("ns", 1), contract.Instance("ns", 2)
	contract.Publish(t, crashed, dead)
	contract.Publish(t, crashed, alive)
	events := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Put, dead)
	contract.Expect(t, events, discovery.Put, alive)
	contract.Expect(t, events, discovery.Synced, nil)
	age(t, pathOf(crashed, dead))
	contract.Expect(t, events, discovery.Delete, dead)
	frontend.removeDead(t.Context(), time.Now())
	if exists(pathOf(crashed, dead)) || !exists(pathOf(crashed, alive)) {
		t.Error("want the dead file removed and the other kept")
	}
	// The owner was only suspended: with its next round the record is back.
	crashed.touch(t.Context(), time.Now())
	contract.Expect(t, events, discovery.Put, dead)
}

func TestDeadFilesAreNotServedAtStart(t *testing.T) {
	root := t.TempDir()
	crashed := openQuick(t, root)
	dead := contract.Instance("ns", 1)
	contract.Publish(t, crashed, dead)
	age(t, pathOf(crashed, dead))
	events := contract.Watch(t, openQuick(t, root), discovery.Instances, "")
	contract.Expect(t, events, discovery.Synced, nil)
	crashed.touch(t.Context(), time.Now())
	contract.Expect(t, events, discovery.Put, dead)
}

func TestTouchKeepsFilesAliveAndIsNoChange(t *testing.T) {
	root := t.TempDir()
	worker, frontend := openQuick(t, root), openQuick(t, root)
	record, last := contract.Model("ns", 1, `{"a":1}`), contract.Model("ns", 2, `{}`)
	contract.Publish(t, worker, record)
	events := contract.Watch(t, frontend, discovery.Models, "")
	contract.Expect(t, events, discovery.Put, record)
	contract.Expect(t, events, discovery.Synced, nil)
	for i := range 5 {
		worker.touch(t.Context(), time.Now().Add(time.Duration(i)*time.Minute))
	}
	info, err := os.Stat(pathOf(worker, record))
	if err != nil || time.Until(info.ModTime()) < 3*time.Minute {
		t.Errorf("modification time %v, %v; want the touch's", info.ModTime(), err)
	}
	contract.Publish(t, worker, last)
	contract.Expect(t, events, discovery.Put, last) // nothing before it
}

// A file of the same length, written in place by a peer that does not rename.
func TestChangeInPlaceIsSeen(t *testing.T) {
	root := t.TempDir()
	worker, frontend := openQuick(t, root), openQuick(t, root)
	before, after := contract.Model("ns", 1, `{"a":1}`), contract.Model("ns", 1, `{"a":2}`)
	contract.Publish(t, worker, before)
	events := contract.Watch(t, frontend, discovery.Models, "")
	contract.Expect(t, events, discovery.Put, before)
	contract.Expect(t, events, discovery.Synced, nil)
	value, _ := discovery.Marshal(after)
	handle, err := os.OpenFile(pathOf(worker, before), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handle.Write(value); err != nil {
		t.Fatal(err)
	}
	handle.Close()
	contract.Expect(t, events, discovery.Put, after)
}

func TestHalfWrittenFilesAreSkipped(t *testing.T) {
	root := t.TempDir()
	worker, frontend := openQuick(t, root), openQuick(t, root)
	record := contract.Instance("ns", 1)
	contract.Publish(t, worker, record)
	if err := os.WriteFile(filepath.Join(root, "v1", "instances", ".tmp_00000000000000ff"), []byte(`{"ty`), 0o666); err != nil {
		t.Fatal(err)
	}
	backendWithHook, err := Open(Options{Root: root, OnBadRecord: func(bad discovery.BadRecord) { t.Errorf("reported: %v", bad) }})
	if err != nil {
		t.Fatal(err)
	}
	defer backendWithHook.Close(context.Background())
	for _, backend := range []*Backend{frontend, backendWithHook} {
		events := contract.Watch(t, backend, discovery.Instances, "")
		contract.Expect(t, events, discovery.Put, record)
		contract.Expect(t, events, discovery.Synced, nil)
	}
}

func TestRemovedFolderComesBack(t *testing.T) {
	root := t.TempDir()
	worker, frontend := openQuick(t, root), openQuick(t, root)
	record := contract.Instance("ns", 1)
	contract.Publish(t, worker, record)
	events := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Put, record)
	contract.Expect(t, events, discovery.Synced, nil)
	// Moved in one step, for the folder is made again while it is being emptied.
	if err := os.Rename(filepath.Join(root, "v1"), filepath.Join(t.TempDir(), "v1")); err != nil {
		t.Fatal(err)
	}
	contract.Expect(t, events, discovery.Delete, record)
	worker.touch(t.Context(), time.Now())
	contract.Expect(t, events, discovery.Put, record)
}

// A peer may be stopped while it holds the folder's lock.
func TestHeldLock(t *testing.T) {
	root := t.TempDir()
	backend := openQuick(t, root)
	record := contract.Instance("ns", 1)
	contract.Publish(t, backend, record)
	handle, err := os.Open(filepath.Join(root, "v1", "instances"))
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	if err := syscall.Flock(int(handle.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := discovery.Publish(ctx, backend, contract.Instance("ns", 2)); !errors.Is(err, context.Canceled) {
		t.Errorf("put under a held lock: %v; want it to end with its context", err)
	}
	events := contract.Watch(t, backend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Put, record) // reading needs no lock
	if err := backend.Close(ctx); err != nil || exists(pathOf(backend, record)) {
		t.Errorf("close under a held lock: %v; want the files gone all the same", err)
	}
}

// Users have few inotify instances; five frontends of the real system use them up.
func TestOneInotifyInstance(t *testing.T) {
	count := func() int {
		links, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("no /proc: %v", err)
		}
		n := 0
		for _, link := range links {
			if target, _ := os.Readlink("/proc/self/fd/" + link.Name()); strings.Contains(target, "inotify") {
				n++
			}
		}
		return n
	}
	before := count()
	backend := openQuick(t, t.TempDir())
	for _, bucket := range discovery.Buckets() {
		for range 3 {
			contract.Expect(t, contract.Watch(t, backend, bucket, ""), discovery.Synced, nil)
		}
	}
	if used := count() - before; used != 1 {
		t.Errorf("%d inotify instances for 12 watches; want 1", used)
	}
}

func TestKeyTooLongForAFileName(t *testing.T) {
	backend := openQuick(t, t.TempDir())
	err := backend.Put(t.Context(), discovery.Instances, strings.Repeat("/", 100), nil)
	if err == nil || !strings.Contains(err.Error(), "300 bytes") {
		t.Errorf("got %v, want an error with the length", err)
	}
}

func TestKeepAliveInterval(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		10 * time.Second: 10 * time.Second / 3, 2 * time.Second: time.Second, 1500 * time.Millisecond: 750 * time.Millisecond,
		300 * time.Millisecond: 100 * time.Millisecond,
	} {
		if got := keepAliveInterval(ttl); got != want {
			t.Errorf("TTL %v is kept alive every %v, want %v", ttl, got, want)
		}
	}
}

// The goroutine that keeps alive does what the tests above do by hand.
func TestKeepAliveRuns(t *testing.T) {
	root := t.TempDir()
	frontend := openQuick(t, root)
	worker, err := Open(Options{Root: root, TTL: 30 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close(context.Background())
	record := contract.Instance("ns", 1)
	contract.Publish(t, worker, record)
	events := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Put, record)
	contract.Expect(t, events, discovery.Synced, nil)
	if err := os.Remove(pathOf(worker, record)); err != nil {
		t.Fatal(err)
	}
	// Gone and back, or back before anybody noticed.
	retry := time.NewTicker(time.Millisecond)
	defer retry.Stop()
	for deadline := time.Now().Add(20 * time.Second); !exists(pathOf(worker, record)); <-retry.C {
		if time.Now().After(deadline) {
			t.Fatal("the record did not come back")
		}
	}
}

// BenchmarkReadUnchanged is one poll of a bucket with 1000 files in which nothing has changed.
func BenchmarkReadUnchanged(b *testing.B) {
	backend, err := Open(Options{Root: b.TempDir(), TTL: time.Hour, PollInterval: time.Hour, PollOnly: true})
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close(context.Background())
	for id := range uint64(1000) {
		if err := discovery.Publish(b.Context(), backend, contract.Instance("ns", id+1)); err != nil {
			b.Fatal(err)
		}
	}
	state := &bucketState{feed: feed.New(discovery.Instances, nil), files: make(map[string]*fileState)}
	defer state.feed.Close()
	backend.watch.read(discovery.Instances, state, time.Time{})
	b.ReportAllocs()
	for b.Loop() {
		backend.watch.read(discovery.Instances, state, time.Time{})
	}
}
