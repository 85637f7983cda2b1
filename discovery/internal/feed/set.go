package feed

import (
	"context"
	"log/slog"
	"sync"

	"signalbox/discovery"
)

// Set holds one feed per bucket and starts a bucket's source when it is first watched.
type Set struct {
	report func(discovery.BadRecord)
	start  func(discovery.Bucket, *Feed)

	mu     sync.Mutex
	feeds  map[discovery.Bucket]*Feed
	closed bool
}

// NewSet returns a set without feeds. start is called once per bucket, when somebody first wants it; it must return soon and
// not call the set. onBad and logger are what a backend's user gave: each bad record goes to onBad, or to the log when onBad is nil.
func NewSet(onBad func(discovery.BadRecord), logger *slog.Logger, start func(discovery.Bucket, *Feed)) *Set {
	if onBad == nil {
		onBad = func(bad discovery.BadRecord) {
			logger.Error("discovery record is unusable and ignored", "bucket", string(bad.Bucket), "key", bad.Key, "error", bad.Err)
		}
	}
	return &Set{report: onBad, start: start, feeds: make(map[discovery.Bucket]*Feed)}
}

// Watch watches one bucket.
func (s *Set) Watch(ctx context.Context, bucket discovery.Bucket, prefix string) (<-chan discovery.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, discovery.ErrClosed
	}
	watched, known := s.feeds[bucket]
	if !known {
		watched = New(bucket, s.report)
		s.feeds[bucket] = watched
		s.start(bucket, watched)
	}
	return watched.Watch(ctx, prefix), nil
}

// Close ends all watches and waits for them. The sources have to be ended by whoever started them.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	feeds := s.feeds
	s.feeds = nil
	s.mu.Unlock()
	for _, f := range feeds {
		f.Close()
	}
}
