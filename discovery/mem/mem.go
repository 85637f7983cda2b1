// Package mem is discovery inside one process: several backends, each standing for a process of its own, share a Store. It
// serves the demo, in-process engines and tests. Nothing is visible outside.
package mem

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"

	"signalbox/discovery"
	"signalbox/discovery/internal/feed"
)

// Store is what the backends of one fleet share. The zero value is an empty store.
type Store struct {
	mu       sync.Mutex // guards all below; feeds are filled under it, so that all see changes in the same order
	values   map[discovery.Bucket]map[string][]byte
	backends map[*Backend]struct{}
}

// Options tune a backend. The zero value is fine.
type Options struct {
	// InstanceID is the identity to use; 0 draws a random one below 2^63.
	InstanceID uint64
	// OnBadRecord is told of each unusable record once. nil: it is logged.
	OnBadRecord func(discovery.BadRecord)
	// Logger takes what OnBadRecord does not; nil means slog.Default.
	Logger *slog.Logger
}

// Backend is one simulated process's view of a Store.
type Backend struct {
	store *Store
	id    uint64
	set   *feed.Set

	// Guarded by store.mu.
	feeds  map[discovery.Bucket]*feed.Feed
	owned  map[address]struct{}
	closed bool
}

type address struct {
	bucket discovery.Bucket
	key    string
}

var _ discovery.Backend = (*Backend)(nil)

// Open connects one more process to the store.
func (s *Store) Open(options Options) *Backend {
	b := &Backend{
		store: s, id: options.InstanceID,
		feeds: make(map[discovery.Bucket]*feed.Feed), owned: make(map[address]struct{}),
	}
	for b.id == 0 {
		b.id = rand.Uint64() >> 1
	}
	logger := options.Logger
	if logger == nil {
		logger = slog.Default()
	}
	b.set = feed.NewSet(options.OnBadRecord, logger, b.start)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backends == nil {
		s.backends = make(map[*Backend]struct{})
		s.values = make(map[discovery.Bucket]map[string][]byte)
	}
	s.backends[b] = struct{}{}
	return b
}

// start gives a new feed what the store holds.
func (b *Backend) start(bucket discovery.Bucket, f *feed.Feed) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	f.Replace(b.store.values[bucket])
	b.feeds[bucket] = f
}

// InstanceID returns the identity chosen at Open.
func (b *Backend) InstanceID() uint64 { return b.id }

// Put creates a key.
func (b *Backend) Put(_ context.Context, bucket discovery.Bucket, key string, value []byte) error {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.closed {
		return discovery.ErrClosed
	}
	if _, taken := s.values[bucket][key]; taken {
		return fmt.Errorf("put %s/%s: %w", bucket, key, discovery.ErrExists)
	}
	b.owned[address{bucket, key}] = struct{}{}
	s.storeLocked(bucket, key, value)
	return nil
}

// Replace changes an own key.
func (b *Backend) Replace(_ context.Context, bucket discovery.Bucket, key string, value []byte) error {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := b.checkOwnedLocked("replace", bucket, key); err != nil {
		return err
	}
	s.storeLocked(bucket, key, value)
	return nil
}

// Delete removes an own key.
func (b *Backend) Delete(_ context.Context, bucket discovery.Bucket, key string) error {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := b.checkOwnedLocked("delete", bucket, key); err != nil {
		return err
	}
	delete(b.owned, address{bucket, key})
	s.removeLocked(bucket, key)
	return nil
}

func (b *Backend) checkOwnedLocked(verb string, bucket discovery.Bucket, key string) error {
	if b.closed {
		return discovery.ErrClosed
	}
	if _, owned := b.owned[address{bucket, key}]; !owned {
		return fmt.Errorf("%s %s/%s: %w", verb, bucket, key, discovery.ErrNotOwned)
	}
	return nil
}

// Watch delivers a bucket's records and their changes.
func (b *Backend) Watch(ctx context.Context, bucket discovery.Bucket, prefix string) (<-chan discovery.Event, error) {
	return b.set.Watch(ctx, bucket, prefix)
}

// Close removes the own keys and ends the watches.
func (b *Backend) Close(context.Context) error {
	s := b.store
	s.mu.Lock()
	if b.closed {
		s.mu.Unlock()
		return nil
	}
	b.closed = true
	delete(s.backends, b)
	for owned := range b.owned {
		s.removeLocked(owned.bucket, owned.key)
	}
	s.mu.Unlock()
	b.set.Close()
	return nil
}

func (s *Store) storeLocked(bucket discovery.Bucket, key string, value []byte) {
	if s.values[bucket] == nil {
		s.values[bucket] = make(map[string][]byte)
	}
	s.values[bucket][key] = value
	for b := range s.backends {
		if f := b.feeds[bucket]; f != nil {
			f.Put(key, value)
		}
	}
}

func (s *Store) removeLocked(bucket discovery.Bucket, key string) {
	delete(s.values[bucket], key)
	for b := range s.backends {
		if f := b.feeds[bucket]; f != nil {
			f.Delete(key)
		}
	}
}
