package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"signalbox/discovery"
)

// temporaryPrefix starts the names of files that are still being written; readers skip them.
const temporaryPrefix = ".tmp_"

const (
	lockRetryDelay = 10 * time.Millisecond
	lockAttempts   = 100
)

// lockDirectory takes the lock that all processes take before they change a bucket's folder.
func lockDirectory(ctx context.Context, directory string) (unlock func(), err error) {
	handle, err := os.Open(directory)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		err := syscall.Flock(int(handle.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { handle.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || attempt == lockAttempts {
			handle.Close()
			return nil, fmt.Errorf("folder %s can't be locked after %d attempts: %w", directory, attempt, err)
		}
		timer := time.NewTimer(lockRetryDelay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			handle.Close()
			return nil, fmt.Errorf("folder %s can't be locked: %w", directory, ctx.Err())
		}
	}
}

// create publishes a file that must not exist yet: readers see it whole or not at all.
func (b *Backend) create(ctx context.Context, file ownedFile, value []byte) error {
	return b.publish(ctx, file, value, func(temporary, final string) error {
		err := os.Link(temporary, final)
		os.Remove(temporary)
		if errors.Is(err, fs.ErrExist) {
			return discovery.ErrExists
		}
		return err
	})
}

// overwrite publishes a file whether it exists or not.
func (b *Backend) overwrite(ctx context.Context, file ownedFile, value []byte) error {
	return b.publish(ctx, file, value, os.Rename)
}

func (b *Backend) publish(ctx context.Context, file ownedFile, value []byte, move func(temporary, final string) error) error {
	directory := b.directory(file.bucket)
	name := discovery.EncodeFileName(file.key)
	if len(name) > 255 {
		return fmt.Errorf("key is too long for a file name: %d bytes encoded, at most 255", len(name))
	}
	unlock, err := lockDirectory(ctx, directory)
	if err != nil {
		return err
	}
	defer unlock()
	temporary := filepath.Join(directory, fmt.Sprintf("%s%016x", temporaryPrefix, rand.Uint64()))
	if err := writeNew(temporary, value); err != nil {
		os.Remove(temporary)
		return err
	}
	if err := move(temporary, filepath.Join(directory, name)); err != nil {
		os.Remove(temporary)
		return err
	}
	return nil
}

func writeNew(path string, value []byte) error {
	handle, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = handle.Write(value)
	return errors.Join(err, handle.Close())
}

// keepAlive runs until ctx ends.
func (b *Backend) keepAlive(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		b.touch(ctx, now)
		// Wall clock on purpose: it also advances while the machine sleeps. After such a pause everybody's files look dead, and
		// their owners get one round to touch them.
		if now.Round(0).Sub(last.Round(0)) < b.ttl {
			b.removeDead(ctx, now)
		}
		last = now
	}
}

// touch marks the own files as alive and publishes those again that are gone (somebody took us for dead).
func (b *Backend) touch(ctx context.Context, now time.Time) {
	b.mu.Lock()
	owned := make(map[ownedFile][]byte, len(b.owned))
	for file, value := range b.owned {
		owned[file] = value
	}
	b.mu.Unlock()
	for file, value := range owned {
		err := os.Chtimes(b.path(file), now, now)
		if errors.Is(err, fs.ErrNotExist) {
			err = b.restore(ctx, file, value)
		}
		if err != nil && ctx.Err() == nil {
			b.logger.Error("discovery record can't be kept alive", "bucket", string(file.bucket), "key", file.key, "error", err)
		}
	}
}

func (b *Backend) restore(ctx context.Context, file ownedFile, value []byte) error {
	if err := os.MkdirAll(b.directory(file.bucket), 0o777); err != nil {
		return err
	}
	if err := b.create(ctx, file, value); err != nil && !errors.Is(err, discovery.ErrExists) {
		return err
	}
	b.mu.Lock()
	_, still := b.owned[file]
	b.mu.Unlock()
	if !still { // deleted or closed while it was being written
		os.Remove(b.path(file))
		return nil
	}
	b.logger.Warn("discovery record had vanished and is published again", "bucket", string(file.bucket), "key", file.key)
	return nil
}

// removeDead deletes all files of the opened buckets that nobody has touched for the TTL.
func (b *Backend) removeDead(ctx context.Context, now time.Time) {
	b.mu.Lock()
	buckets := make([]discovery.Bucket, 0, len(b.opened))
	for bucket := range b.opened {
		buckets = append(buckets, bucket)
	}
	b.mu.Unlock()
	for _, bucket := range buckets {
		dead, err := deadFiles(b.directory(bucket), now.Add(-b.ttl))
		if err != nil || len(dead) == 0 {
			continue // a folder that is gone comes back with the next put
		}
		unlock, err := lockDirectory(ctx, b.directory(bucket))
		if err != nil {
			continue // the next round tries again
		}
		// Under the lock nobody publishes; look again, for an owner may have come back in between.
		dead, _ = deadFiles(b.directory(bucket), now.Add(-b.ttl))
		for _, path := range dead {
			os.Remove(path)
		}
		unlock()
	}
}

func deadFiles(directory string, deadline time.Time) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && info.ModTime().Before(deadline) {
			dead = append(dead, filepath.Join(directory, entry.Name()))
		}
	}
	return dead, nil
}

func isTemporary(name string) bool { return strings.HasPrefix(name, temporaryPrefix) }
