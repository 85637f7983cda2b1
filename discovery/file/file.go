// Package file is discovery through a directory that all processes of a fleet can write to, laid out as Dynamo's file
// backend lays it out: a folder per bucket, one flat file per key, liveness by modification time.
//
// A file whose owner has not touched it for the time to live is dead. Every process that has opened a bucket removes the
// dead files in it, so the clocks of hosts that share the directory have to agree to within a few seconds.
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"signalbox/discovery"
	"signalbox/discovery/internal/feed"
)

// The times that all processes of a fleet have to agree on.
const (
	// DefaultTTL is how long a file lives after its owner's last touch.
	DefaultTTL = 10 * time.Second
	// DefaultPollInterval is how often a watched bucket is read even if nothing hints at a change.
	DefaultPollInterval = 500 * time.Millisecond
)

// DefaultRoot returns the directory that is used when none is named: $DYN_FILE_KV, else dynamo_store_kv in the directory for
// temporary files.
func DefaultRoot() string {
	if root := os.Getenv("DYN_FILE_KV"); root != "" {
		return root
	}
	return filepath.Join(os.TempDir(), "dynamo_store_kv")
}

// Options tune a backend. The zero value is what a fleet of real workers expects.
type Options struct {
	// Root is the shared directory; "" means DefaultRoot. It is created when it does not exist.
	Root string
	// InstanceID is the identity to use; 0 draws a random one below 2^63.
	InstanceID uint64
	// TTL is how long a file lives after the last touch; 0 means DefaultTTL. Own files are touched three times as often,
	// though not more than once a second when TTL is a second or more.
	TTL time.Duration
	// PollInterval is the time between two readings of a watched bucket; 0 means DefaultPollInterval.
	PollInterval time.Duration
	// PollOnly does without inotify.
	PollOnly bool
	// OnBadRecord is told of each unusable record once; it must not call the backend. nil: it is logged.
	OnBadRecord func(discovery.BadRecord)
	// Logger takes what OnBadRecord does not; nil means slog.Default.
	Logger *slog.Logger
}

// Backend is this process's part in the shared directory.
type Backend struct {
	root   string
	id     uint64
	ttl    time.Duration
	logger *slog.Logger
	set    *feed.Set
	watch  *directoryWatch

	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex // guards all below
	opened map[discovery.Bucket]struct{}
	owned  map[ownedFile][]byte
	closed bool
}

type ownedFile struct {
	bucket discovery.Bucket
	key    string
}

var _ discovery.Backend = (*Backend)(nil)

// Open makes the directory usable and starts to keep own files alive.
func Open(options Options) (*Backend, error) {
	if options.Root == "" {
		options.Root = DefaultRoot()
	}
	if options.TTL == 0 {
		options.TTL = DefaultTTL
	}
	if options.PollInterval == 0 {
		options.PollInterval = DefaultPollInterval
	}
	if options.TTL < 0 || options.PollInterval < 0 {
		return nil, fmt.Errorf("file discovery: TTL %v and poll interval %v must be positive", options.TTL, options.PollInterval)
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	for options.InstanceID == 0 {
		options.InstanceID = rand.Uint64() >> 1
	}
	root, err := filepath.Abs(options.Root)
	if err != nil {
		return nil, fmt.Errorf("file discovery: root %q: %w", options.Root, err)
	}
	if err := os.MkdirAll(root, 0o777); err != nil {
		return nil, fmt.Errorf("file discovery: root %q can't be created: %w", root, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &Backend{
		root: root, id: options.InstanceID, ttl: options.TTL, logger: options.Logger, stop: stop,
		opened: make(map[discovery.Bucket]struct{}), owned: make(map[ownedFile][]byte),
	}
	b.watch = newDirectoryWatch(b.directory, options.TTL, options.PollInterval, options.PollOnly, options.Logger)
	b.set = feed.NewSet(options.OnBadRecord, options.Logger, b.startBucket)
	b.done.Go(func() { b.watch.run(ctx) })
	b.done.Go(func() { b.keepAlive(ctx, keepAliveInterval(options.TTL)) })
	return b, nil
}

// keepAliveInterval is a third of the TTL, at least a second unless that would be too late.
func keepAliveInterval(ttl time.Duration) time.Duration {
	interval := ttl / 3
	if interval < time.Second && ttl > time.Second {
		interval = min(time.Second, ttl/2)
	}
	return max(interval, time.Millisecond)
}

// Root returns the absolute path of the shared directory.
func (b *Backend) Root() string { return b.root }

// InstanceID returns the identity chosen at Open.
func (b *Backend) InstanceID() uint64 { return b.id }

func (b *Backend) directory(bucket discovery.Bucket) string {
	return filepath.Join(b.root, filepath.FromSlash(string(bucket)))
}

func (b *Backend) path(file ownedFile) string {
	return filepath.Join(b.directory(file.bucket), discovery.EncodeFileName(file.key))
}

// openBucket creates the bucket's folder and makes this process one of those that remove dead files from it.
func (b *Backend) openBucket(bucket discovery.Bucket) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return discovery.ErrClosed
	}
	if err := os.MkdirAll(b.directory(bucket), 0o777); err != nil {
		return fmt.Errorf("file discovery: bucket %s can't be created: %w", bucket, err)
	}
	b.opened[bucket] = struct{}{}
	return nil
}

// Put creates a key's file.
func (b *Backend) Put(ctx context.Context, bucket discovery.Bucket, key string, value []byte) error {
	if err := b.openBucket(bucket); err != nil {
		return err
	}
	file := ownedFile{bucket, key}
	if err := b.create(ctx, file, value); err != nil {
		return fmt.Errorf("put %s/%s: %w", bucket, key, err)
	}
	if !b.own(file, value) {
		os.Remove(b.path(file))
		return discovery.ErrClosed
	}
	return nil
}

// own notes a file as ours unless the backend was closed meanwhile.
func (b *Backend) own(file ownedFile, value []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.owned[file] = value
	return true
}

// Replace changes an own key's file in one step.
func (b *Backend) Replace(ctx context.Context, bucket discovery.Bucket, key string, value []byte) error {
	file := ownedFile{bucket, key}
	if err := b.checkOwned("replace", file); err != nil {
		return err
	}
	if err := b.overwrite(ctx, file, value); err != nil {
		return fmt.Errorf("replace %s/%s: %w", bucket, key, err)
	}
	if !b.own(file, value) {
		os.Remove(b.path(file))
		return discovery.ErrClosed
	}
	return nil
}

// Delete removes an own key's file.
func (b *Backend) Delete(ctx context.Context, bucket discovery.Bucket, key string) error {
	file := ownedFile{bucket, key}
	if err := b.checkOwned("delete", file); err != nil {
		return err
	}
	b.mu.Lock()
	delete(b.owned, file) // first, or a round of keep-alive between could bring it back
	b.mu.Unlock()
	return b.remove(ctx, file)
}

func (b *Backend) checkOwned(verb string, file ownedFile) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return discovery.ErrClosed
	}
	if _, owned := b.owned[file]; !owned {
		return fmt.Errorf("%s %s/%s: %w", verb, file.bucket, file.key, discovery.ErrNotOwned)
	}
	return nil
}

// Watch delivers a bucket's records and their changes.
func (b *Backend) Watch(ctx context.Context, bucket discovery.Bucket, prefix string) (<-chan discovery.Event, error) {
	if err := b.openBucket(bucket); err != nil {
		return nil, err
	}
	return b.set.Watch(ctx, bucket, prefix)
}

func (b *Backend) startBucket(bucket discovery.Bucket, f *feed.Feed) { b.watch.add(bucket, f) }

// Close removes the own files and ends the watches.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	owned := b.owned
	b.owned = nil
	b.mu.Unlock()

	b.stop()
	b.done.Wait()
	b.set.Close()
	var failures []error
	for file := range owned {
		failures = append(failures, b.remove(ctx, file))
	}
	return errors.Join(failures...)
}

// remove deletes a file. The lock only keeps peers' listings steady; unlinking is atomic without it, and must happen even if
// a peer was stopped while it held the lock.
func (b *Backend) remove(ctx context.Context, file ownedFile) error {
	unlock, err := lockDirectory(ctx, b.directory(file.bucket))
	if err == nil {
		defer unlock()
	}
	if err := os.Remove(b.path(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s/%s: %w", file.bucket, file.key, err)
	}
	return nil
}
