// Package feed holds the last known content of one bucket and passes its changes on to any number of watchers. Every
// discovery backend fills feeds from its store; what the watchers see is then the same for all stores. It must not know any
// store.
package feed

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"

	"signalbox/discovery"
)

// Feed is the content of one bucket. The owner (a backend) calls Put, Delete, Replace and Close; watchers come and go.
type Feed struct {
	bucket discovery.Bucket
	report func(discovery.BadRecord)

	mu       sync.Mutex // guards all below
	entries  map[string]*entry
	bad      map[string][]byte // values that were reported as bad, so that each is reported once
	watchers map[*watcher]struct{}
	synced   bool
	closed   bool
	pumps    sync.WaitGroup
}

// entry is one good record; never changed once it is in a feed.
type entry struct {
	value  []byte
	record discovery.Record
}

// New returns an empty feed. report is called once for each bad value; it must not call the feed.
func New(bucket discovery.Bucket, report func(discovery.BadRecord)) *Feed {
	return &Feed{
		bucket:   bucket,
		report:   report,
		entries:  make(map[string]*entry),
		bad:      make(map[string][]byte),
		watchers: make(map[*watcher]struct{}),
	}
}

// Put takes over a new or changed value. A value that is bad is reported and leaves the last good one in force.
func (f *Feed) Put(key string, value []byte) {
	bad := f.put(key, value)
	if bad != nil && f.report != nil {
		f.report(*bad)
	}
}

func (f *Feed) put(key string, value []byte) *discovery.BadRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	if known := f.entries[key]; known != nil && bytes.Equal(known.value, value) {
		delete(f.bad, key)
		return nil
	}
	if known, isBad := f.bad[key]; isBad && bytes.Equal(known, value) {
		return nil
	}
	record, err := discovery.Parse(f.bucket, key, value)
	if err != nil {
		f.bad[key] = value
		return &discovery.BadRecord{Bucket: f.bucket, Key: key, Err: err}
	}
	delete(f.bad, key)
	f.entries[key] = &entry{value: value, record: record}
	f.wakeLocked(key)
	return nil
}

// Delete forgets a key.
func (f *Feed) Delete(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deleteLocked(key)
}

func (f *Feed) deleteLocked(key string) {
	delete(f.bad, key)
	if _, known := f.entries[key]; known && !f.closed {
		delete(f.entries, key)
		f.wakeLocked(key)
	}
}

// Replace takes content as the whole truth: keys that are not in it are deleted. The first call makes the feed synced.
func (f *Feed) Replace(content map[string][]byte) {
	f.mu.Lock()
	for _, key := range slices.Sorted(maps.Keys(f.entries)) {
		if _, stays := content[key]; !stays {
			f.deleteLocked(key)
		}
	}
	for key := range f.bad {
		if _, stays := content[key]; !stays {
			delete(f.bad, key)
		}
	}
	f.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(content)) {
		f.Put(key, content[key])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.synced || f.closed {
		return
	}
	f.synced = true
	for w := range f.watchers {
		w.enqueueLocked(item{synced: true})
	}
}

// Watch starts a watcher; see discovery.Backend. On a closed feed the channel is closed at once.
func (f *Feed) Watch(ctx context.Context, prefix string) <-chan discovery.Event {
	w := &watcher{
		feed: f, prefix: prefix, wake: make(chan struct{}, 1), out: make(chan discovery.Event, 16),
		queued: make(map[string]struct{}), delivered: make(map[string]*entry),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		close(w.out)
		return w.out
	}
	for _, key := range slices.Sorted(maps.Keys(f.entries)) {
		if discovery.UnderPrefix(key, prefix) {
			w.enqueueLocked(item{key: key})
		}
	}
	if f.synced {
		w.enqueueLocked(item{synced: true})
	}
	f.watchers[w] = struct{}{}
	f.pumps.Go(func() { w.pump(ctx) })
	return w.out
}

// Close ends all watchers and waits for them.
func (f *Feed) Close() {
	f.mu.Lock()
	f.closed = true
	for w := range f.watchers {
		w.signal()
	}
	f.mu.Unlock()
	f.pumps.Wait()
}

func (f *Feed) wakeLocked(key string) {
	for w := range f.watchers {
		if discovery.UnderPrefix(key, w.prefix) {
			w.enqueueLocked(item{key: key})
		}
	}
}
