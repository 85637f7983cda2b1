package file

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"signalbox/discovery"
	"signalbox/discovery/internal/feed"
)

// directoryWatch reads all watched buckets: on a hint from the kernel at once, else in intervals. One inotify instance serves
// all buckets, because a user has few of them; where none is to be had, the intervals alone do.
type directoryWatch struct {
	directory func(discovery.Bucket) string
	ttl       time.Duration
	interval  time.Duration
	logger    *slog.Logger
	hints     *fsnotify.Watcher // nil: polling only
	added     chan struct{}     // one slot: "a bucket was added"

	mu      sync.Mutex // guards buckets
	buckets map[discovery.Bucket]*bucketState

	// Only run uses these.
	lastRead   time.Time
	lenientTil time.Time // until then no file counts as dead
}

// bucketState is what is known of one bucket's files. Only run uses it, except for the feed.
type bucketState struct {
	feed    *feed.Feed
	files   map[string]*fileState
	failing bool // the folder could not be read last time
}

// fileState tells whether a file has to be read again.
type fileState struct {
	key     string
	modTime time.Time
	size    int64
	inode   uint64
	value   []byte
}

func newDirectoryWatch(directory func(discovery.Bucket) string, ttl, interval time.Duration, pollOnly bool, logger *slog.Logger) *directoryWatch {
	w := &directoryWatch{
		directory: directory, ttl: ttl, interval: interval, logger: logger,
		added: make(chan struct{}, 1), buckets: make(map[discovery.Bucket]*bucketState),
	}
	if pollOnly {
		return w
	}
	hints, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Warn("file discovery gets no hints from the kernel and polls only", "interval", interval, "error", err)
		return w
	}
	w.hints = hints
	return w
}

// add begins to watch a bucket.
func (w *directoryWatch) add(bucket discovery.Bucket, f *feed.Feed) {
	w.mu.Lock()
	w.buckets[bucket] = &bucketState{feed: f, files: make(map[string]*fileState)}
	w.mu.Unlock()
	select {
	case w.added <- struct{}{}:
	default:
	}
}

// run reads buckets until ctx ends.
func (w *directoryWatch) run(ctx context.Context) {
	var events chan fsnotify.Event
	var failures chan error
	if w.hints != nil {
		defer w.hints.Close()
		events, failures = w.hints.Events, w.hints.Errors
	}
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.readAll()
		case <-w.added:
			w.readAll()
		case <-failures: // an overflow, for one: what it hid is found by reading
			w.readAll()
		case event := <-events:
			// A touch is an attribute change, and not news.
			if event.Op != fsnotify.Chmod && !isTemporary(filepath.Base(event.Name)) {
				w.readAll()
			}
		}
	}
}

func (w *directoryWatch) readAll() {
	// Wall clock on purpose, see keepAlive: after the machine slept, owners get time to touch their files.
	now := time.Now().Round(0)
	if !w.lastRead.IsZero() && now.Sub(w.lastRead) > w.ttl/2 {
		w.lenientTil = now.Add(w.ttl / 2)
	}
	w.lastRead = now
	deadline := now.Add(-w.ttl)
	if now.Before(w.lenientTil) {
		deadline = time.Time{}
	}
	w.mu.Lock()
	buckets := make(map[discovery.Bucket]*bucketState, len(w.buckets))
	for bucket, state := range w.buckets {
		buckets[bucket] = state
	}
	w.mu.Unlock()
	for bucket, state := range buckets {
		w.read(bucket, state, deadline)
	}
}

// read compares one bucket's folder with what is known of it. Files last touched before deadline are dead.
func (w *directoryWatch) read(bucket discovery.Bucket, state *bucketState, deadline time.Time) {
	directory := w.directory(bucket)
	if w.hints != nil {
		// Before the listing, so that nothing is missed in between; and each time, for a folder may be removed and made anew.
		// Without effect when it is watched already; when it fails the interval has to do.
		_ = w.hints.Add(directory)
	}
	entries, err := os.ReadDir(directory)
	if os.IsNotExist(err) {
		// Removed by somebody who wants to start afresh. Own files come back with the next round of keep-alive.
		err = os.MkdirAll(directory, 0o777)
	}
	if err != nil {
		// Unreadable: keep serving with what was known.
		if !state.failing {
			w.logger.Error("file discovery can't read a bucket and goes on with the last known records", "bucket", string(bucket), "error", err)
		}
		state.failing = true
		return
	}
	state.failing = false
	found := make(map[string]*fileState, len(entries))
	content := make(map[string][]byte, len(entries))
	for _, entry := range entries {
		if isTemporary(entry.Name()) || entry.IsDir() {
			continue
		}
		file := state.files[entry.Name()].refresh(filepath.Join(directory, entry.Name()), entry, deadline)
		if file != nil {
			found[entry.Name()] = file
			content[file.key] = file.value
		}
	}
	state.files = found
	state.feed.Replace(content)
}

// refresh returns the state of a directory entry, reading the file only if something about it has changed. nil: it is gone,
// dead or can't be read.
func (known *fileState) refresh(path string, entry fs.DirEntry, deadline time.Time) *fileState {
	info, err := entry.Info()
	if err != nil || !info.Mode().IsRegular() || info.ModTime().Before(deadline) {
		return nil
	}
	now := fileState{modTime: info.ModTime(), size: info.Size()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		now.inode = stat.Ino
	}
	if known != nil {
		if known.modTime.Equal(now.modTime) && known.size == now.size && known.inode == now.inode {
			return known
		}
		now.key = known.key
	} else if now.key, err = discovery.DecodeFileName(entry.Name()); err != nil {
		now.key = entry.Name() // the feed will report it as bad
	}
	value, err := readLimited(path)
	if err != nil {
		if known != nil && !os.IsNotExist(err) {
			return known
		}
		return nil
	}
	now.value = value
	if known != nil && bytes.Equal(known.value, value) {
		now.value = known.value
	}
	return &now
}

// readLimited reads at most a byte more than a record may have, enough to see that it is too long.
func readLimited(path string) ([]byte, error) {
	handle, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	return io.ReadAll(io.LimitReader(handle, discovery.MaxValueBytes+1))
}
