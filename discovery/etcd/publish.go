package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"signalbox/discovery"
)

// cleanUpTimeout bounds the removal of a key whose put ended undecided.
const cleanUpTimeout = time.Second

func storeKey(bucket discovery.Bucket, key string) string { return string(bucket) + "/" + key }

// Put creates a key on the process's lease. While etcd is away it waits, until ctx ends.
func (b *Backend) Put(ctx context.Context, bucket discovery.Bucket, key string, value []byte) error {
	name := storeKey(bucket, key)
	return b.write(ctx, "put", name, func(ctx context.Context) error {
		b.mu.Lock()
		if _, taken := b.owned[name]; taken {
			b.mu.Unlock()
			return discovery.ErrExists
		}
		b.owned[name] = value // first: a lease that is renewed in between has to take it along
		b.mu.Unlock()
		err := b.putAbsent(ctx, name, value)
		if err != nil {
			b.disown(name)
			if !errors.Is(err, discovery.ErrExists) {
				b.removeUndecided(name)
			}
		}
		return err
	})
}

// Replace changes an own key. While etcd is away it waits, until ctx ends.
func (b *Backend) Replace(ctx context.Context, bucket discovery.Bucket, key string, value []byte) error {
	name := storeKey(bucket, key)
	return b.write(ctx, "replace", name, func(ctx context.Context) error {
		b.mu.Lock()
		before, owned := b.owned[name]
		if !owned {
			b.mu.Unlock()
			return discovery.ErrNotOwned
		}
		b.owned[name] = value
		b.mu.Unlock()
		err := b.retry(ctx, func(ctx context.Context, _ int) error {
			_, err := b.client.Put(ctx, name, string(value), clientv3.WithLease(b.lease))
			return err
		})
		if err != nil {
			b.mu.Lock()
			b.owned[name] = before
			b.mu.Unlock()
		}
		return err
	})
}

// Delete removes an own key. While etcd is away it waits, until ctx ends; the key is given up in any case and goes at the latest
// with the lease.
func (b *Backend) Delete(ctx context.Context, bucket discovery.Bucket, key string) error {
	name := storeKey(bucket, key)
	return b.write(ctx, "delete", name, func(ctx context.Context) error {
		if !b.disown(name) {
			return discovery.ErrNotOwned
		}
		return b.retry(ctx, func(ctx context.Context, _ int) error {
			_, err := b.client.Delete(ctx, name)
			return err
		})
	})
}

func (b *Backend) disown(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, owned := b.owned[name]
	delete(b.owned, name)
	return owned
}

// write runs one change when it is its turn. It ends when ctx or the backend ends.
func (b *Backend) write(ctx context.Context, verb, name string, change func(context.Context) error) error {
	wrap := func(err error) error {
		if err == nil {
			return nil
		}
		if b.ctx.Err() != nil && ctx.Err() == nil {
			err = discovery.ErrClosed
		}
		return fmt.Errorf("etcd: %s %s: %w", verb, name, err)
	}
	if b.ctx.Err() != nil {
		return wrap(discovery.ErrClosed)
	}
	if ctx.Err() != nil {
		return wrap(ctx.Err())
	}
	select {
	case <-b.writing:
	case <-ctx.Done():
		return wrap(ctx.Err())
	case <-b.ctx.Done():
		return wrap(discovery.ErrClosed)
	}
	defer func() { b.writing <- struct{}{} }()
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	return wrap(change(both))
}

// retry repeats a request while etcd is away. Each attempt has its own time limit.
func (b *Backend) retry(ctx context.Context, request func(ctx context.Context, attempt int) error) error {
	pause := retryBackoff()
	for attempt := 1; ; attempt++ {
		attemptContext, cancel := context.WithTimeout(ctx, requestTimeout)
		err := request(attemptContext, attempt)
		cancel()
		if err == nil || !worthRetrying(err) {
			return err
		}
		if ctx.Err() != nil || !pause.wait(ctx) {
			return fmt.Errorf("%w (last attempt: %w)", ctx.Err(), err)
		}
	}
}

// putAbsent creates a key unless it exists.
func (b *Backend) putAbsent(ctx context.Context, name string, value []byte) error {
	return b.retry(ctx, func(ctx context.Context, attempt int) error {
		answer, err := b.client.Txn(ctx).
			If(clientv3.Compare(clientv3.Version(name), "=", 0)).
			Then(clientv3.OpPut(name, string(value), clientv3.WithLease(b.lease))).
			Else(clientv3.OpGet(name)).
			Commit()
		if err != nil || answer.Succeeded {
			return err
		}
		// An earlier attempt may have succeeded although its answer was lost.
		found := answer.Responses[0].GetResponseRange().GetKvs()
		if attempt > 1 && len(found) == 1 && found[0].Lease == int64(b.lease) && bytes.Equal(found[0].Value, value) {
			return nil
		}
		return discovery.ErrExists
	})
}

// removeUndecided removes a key that a failed put may have left.
func (b *Backend) removeUndecided(name string) {
	ctx, cancel := context.WithTimeout(b.ctx, cleanUpTimeout)
	defer cancel()
	_, err := b.client.Txn(ctx).
		If(clientv3.Compare(clientv3.LeaseValue(name), "=", b.lease)).
		Then(clientv3.OpDelete(name)).
		Commit()
	if err != nil {
		b.logger.Warn("etcd key may be left behind until the lease ends", "key", name, "error", err)
	}
}
