package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"signalbox/discovery"
)

const (
	fieldManager   = "dynamo-worker"
	requestTimeout = 10 * time.Second // of one attempt
	firstPause     = 250 * time.Millisecond
	longestPause   = 5 * time.Second
)

// Put adds a record to the own resource. Keys of other processes can't collide, for each process has a resource of its own. While
// the API is away it waits, until ctx ends.
func (b *Backend) Put(ctx context.Context, bucket discovery.Bucket, key string, value []byte) error {
	return b.change(ctx, "put", bucket, key, value, func(_ []byte, owned bool) error {
		if owned {
			return discovery.ErrExists
		}
		return nil
	})
}

// Replace changes a record in the own resource. While the API is away it waits, until ctx ends.
func (b *Backend) Replace(ctx context.Context, bucket discovery.Bucket, key string, value []byte) error {
	return b.change(ctx, "replace", bucket, key, value, mustOwn)
}

// Delete takes a record out of the own resource. While the API is away it waits, until ctx ends.
func (b *Backend) Delete(ctx context.Context, bucket discovery.Bucket, key string) error {
	return b.change(ctx, "delete", bucket, key, nil, mustOwn)
}

func mustOwn(_ []byte, owned bool) error {
	if !owned {
		return discovery.ErrNotOwned
	}
	return nil
}

// change sets one record (nil: removes it) and writes the resource. If that fails the record is as before.
func (b *Backend) change(ctx context.Context, verb string, bucket discovery.Bucket, key string, value []byte, check func(before []byte, owned bool) error) error {
	wrap := func(err error) error {
		if err == nil {
			return nil
		}
		if b.ctx.Err() != nil && ctx.Err() == nil {
			err = discovery.ErrClosed
		}
		return fmt.Errorf("kubernetes discovery: %s %s/%s: %w", verb, bucket, key, err)
	}
	if _, known := members[bucket]; !known {
		return wrap(fmt.Errorf("no bucket %q", bucket))
	}
	return wrap(b.exclusively(ctx, func(ctx context.Context) error {
		b.mu.Lock()
		before, owned := b.owned[bucket][key]
		if err := check(before, owned); err != nil {
			b.mu.Unlock()
			return err
		}
		b.setLocked(bucket, key, value)
		b.written = true
		b.mu.Unlock()
		err := b.apply(ctx)
		if err != nil {
			b.mu.Lock()
			b.setLocked(bucket, key, before)
			b.mu.Unlock()
		}
		return err
	}))
}

func (b *Backend) setLocked(bucket discovery.Bucket, key string, value []byte) {
	if value == nil {
		delete(b.owned[bucket], key)
		return
	}
	if b.owned[bucket] == nil {
		b.owned[bucket] = make(map[string][]byte)
	}
	b.owned[bucket][key] = value
}

// exclusively runs write when it is its turn. It ends when ctx or the backend ends.
func (b *Backend) exclusively(ctx context.Context, write func(context.Context) error) error {
	if b.ctx.Err() != nil {
		return discovery.ErrClosed
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-b.writing:
	case <-ctx.Done():
		return ctx.Err()
	case <-b.ctx.Done():
		return discovery.ErrClosed
	}
	defer func() { b.writing <- struct{}{} }()
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	return write(both)
}

// apply writes the own resource whole. While the API is away it tries again until ctx ends.
func (b *Backend) apply(ctx context.Context) error {
	b.mu.Lock()
	resource, err := resourceFor(b.identity, b.owned)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		attempt, cancel := context.WithTimeoutCause(ctx, requestTimeout, errTooLong)
		_, err := b.metadata.Apply(attempt, resource.GetName(), resource, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		cancel()
		if err == nil || !worthRetrying(err) {
			return err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (last attempt: %w)", ctx.Err(), err)
		}
	}
}

// worthRetrying says whether an error may go away by itself. An answer of the API that blames the request does not.
func worthRetrying(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true // the API was not reached
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsConflict(err)
}

// ownResourceSeen is told by the reader whether the own resource is in the cluster.
func (b *Backend) ownResourceSeen(present bool) {
	b.mu.Lock()
	missing := !present && b.written && !b.closed
	b.mu.Unlock()
	if !missing {
		return
	}
	select {
	case b.restore <- struct{}{}:
	default: // asked for already
	}
}

// restoreResource writes the own resource again when somebody has removed it. It runs until the backend closes.
func (b *Backend) restoreResource() {
	for {
		select {
		case <-b.restore:
		case <-b.ctx.Done():
			return
		}
		if err := b.exclusively(b.ctx, b.apply); err != nil && b.ctx.Err() == nil {
			b.logger.Error("own discovery resource is gone and can't be written again", "resource", b.identity.ResourceName(), "error", err)
		}
	}
}
