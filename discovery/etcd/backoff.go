package etcd

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is a pause that doubles up to a limit.
type backoff struct{ next, limit time.Duration }

// retryBackoff is the pause between attempts on an etcd that was there before.
func retryBackoff() backoff { return backoff{next: 250 * time.Millisecond, limit: 5 * time.Second} }

// wait pauses, between half and all of the current length so that a fleet does not come in step. It returns false when ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	timer := time.NewTimer(b.next/2 + rand.N(b.next/2+1))
	defer timer.Stop()
	b.next = min(2*b.next, b.limit)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
