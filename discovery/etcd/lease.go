package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"signalbox/discovery"
)

// keepLease keeps the lease alive until the backend closes, and renews it when it is lost.
func (b *Backend) keepLease() {
	pause := retryBackoff()
	for b.ctx.Err() == nil {
		reconnected := b.nextReconnection()
		if alive, err := b.client.KeepAlive(b.ctx, b.lease); err == nil && b.awaitLoss(alive, reconnected) {
			pause = retryBackoff()
		}
		if b.ctx.Err() != nil {
			return
		}
		if err := b.renewLease(); err != nil && b.ctx.Err() == nil {
			b.logger.Warn("etcd lease can't be renewed yet", "lease", b.leaseName(), "error", err)
		}
		if !pause.wait(b.ctx) {
			return
		}
	}
}

// awaitLoss returns when the lease may be lost: etcd says so, or did not answer for the time to live, or was away and is back
// (which may be an etcd that was set up anew). It says whether the lease was seen alive in between.
func (b *Backend) awaitLoss(alive <-chan *clientv3.LeaseKeepAliveResponse, reconnected <-chan struct{}) (seen bool) {
	for {
		select {
		case _, open := <-alive:
			if !open {
				return seen
			}
			seen = true
		case <-reconnected:
			return true
		case <-b.ctx.Done():
			return seen
		}
	}
}

// renewLease grants the lease again under its old id if it is gone, and has the own keys put again.
func (b *Backend) renewLease() error {
	ctx, cancel := context.WithTimeout(b.ctx, requestTimeout)
	defer cancel()
	_, err := clientv3.RetryLeaseClient(b.client).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(b.lease), TTL: int64(b.ttl / time.Second)})
	if err = clientv3.ContextError(ctx, err); errors.Is(err, rpctypes.ErrLeaseExist) {
		return nil
	}
	if err != nil {
		return err
	}
	b.logger.Warn("etcd lease was lost and is granted again; its keys are put again", "lease", b.leaseName())
	select {
	case b.restore <- struct{}{}:
	default: // asked for already
	}
	return nil
}

// restoreKeys puts the own keys again whenever the lease was renewed. It runs beside keepLease, for it may have to wait for a write that
// itself waits for the lease.
func (b *Backend) restoreKeys() {
	for {
		select {
		case <-b.restore:
		case <-b.ctx.Done():
			return
		}
		err := b.write(b.ctx, "put again", "the keys of lease "+b.leaseName(), func(ctx context.Context) error {
			var failures []error
			for name, value := range b.ownedCopy() {
				if err := b.putAbsent(ctx, name, value); err != nil && !errors.Is(err, discovery.ErrExists) {
					failures = append(failures, fmt.Errorf("%s: %w", name, err))
				}
			}
			return errors.Join(failures...)
		})
		if err != nil && b.ctx.Err() == nil {
			b.logger.Error("etcd keys are not back", "error", err)
		}
	}
}

func (b *Backend) leaseName() string { return fmt.Sprintf("%x", uint64(b.lease)) }
