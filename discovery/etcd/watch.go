package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"signalbox/discovery"
	"signalbox/discovery/internal/feed"
)

// watchConnection notes each time the connection comes back. The client resumes its watches at the revision where they were,
// which stays silent if etcd was set up anew meanwhile and counts from one again; so a reconnection means to list again.
func (b *Backend) watchConnection() {
	connection := b.client.ActiveConnection()
	state, away := connection.GetState(), false
	for connection.WaitForStateChange(b.ctx, state) {
		state = connection.GetState()
		switch state {
		case connectivity.Idle:
			connection.Connect()
		case connectivity.TransientFailure:
			if !away {
				b.logger.Warn("etcd is away; the last known records stay in force")
			}
			away = true
		case connectivity.Ready:
			if away {
				b.logger.Info("etcd is back")
			}
			away = false
			b.mu.Lock()
			close(b.reconnected)
			b.reconnected = make(chan struct{})
			b.mu.Unlock()
		}
	}
}

func (b *Backend) nextReconnection() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reconnected
}

// follow keeps a feed equal to a bucket until the backend closes. While etcd is away the feed stays as it is.
func (b *Backend) follow(bucket discovery.Bucket, f *feed.Feed) {
	pause := retryBackoff()
	reported := false
	for b.ctx.Err() == nil {
		reconnected := b.nextReconnection()
		revision, err := b.list(bucket, f)
		if err == nil {
			pause, reported = retryBackoff(), false
			err = b.followFrom(bucket, f, revision+1, reconnected)
		}
		if b.ctx.Err() != nil {
			return
		}
		if err != nil && !reported {
			b.logger.Warn("etcd watch is interrupted; the last known records stay in force", "bucket", string(bucket), "error", err)
			reported = true
		}
		if err != nil && !pause.wait(b.ctx) {
			return
		}
	}
}

// list takes the bucket's content as the whole truth and returns the revision that it belongs to.
func (b *Backend) list(bucket discovery.Bucket, f *feed.Feed) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(b.ctx, requestTimeout)
	defer cancel()
	prefix := string(bucket) + "/"
	answer, err := b.client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	content := make(map[string][]byte, len(answer.Kvs))
	for _, pair := range answer.Kvs {
		content[strings.TrimPrefix(string(pair.Key), prefix)] = pair.Value
	}
	f.Replace(content)
	return answer.Header.Revision, nil
}

// followFrom passes changes on, from a revision onwards. It returns nil when the connection was lost and is back, and an error
// when etcd ended the watch (compaction, no leader); in both cases the bucket has to be listed again.
func (b *Backend) followFrom(bucket discovery.Bucket, f *feed.Feed, revision int64, reconnected <-chan struct{}) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(b.ctx))
	defer cancel()
	prefix := string(bucket) + "/"
	changes := b.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision))
	for {
		select {
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-reconnected:
			return nil
		case change, open := <-changes:
			if !open {
				return errors.New("the watch has ended")
			}
			if err := change.Err(); err != nil {
				return fmt.Errorf("watch from revision %d: %w", revision, err)
			}
			for _, event := range change.Events {
				key := strings.TrimPrefix(string(event.Kv.Key), prefix)
				if event.Type == clientv3.EventTypeDelete {
					f.Delete(key)
				} else {
					f.Put(key, event.Kv.Value)
				}
			}
		}
	}
}
