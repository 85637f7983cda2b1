// Package etcd is discovery through etcd, with the keys, values and leases of Dynamo's etcd backend.
//
// A process holds one lease; all its keys hang on it, and the lease's id is the process's instance id. When the lease is lost
// (etcd was away for longer than the time to live, or somebody revoked it) it is granted again under the same id and the keys
// are put again, so that nobody above has to care.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"signalbox/discovery"
	"signalbox/discovery/internal/feed"
)

const (
	// DefaultEndpoint is where etcd is looked for when nothing else is said.
	DefaultEndpoint = "http://localhost:2379"
	// DefaultLeaseTTL is how long a process's keys outlive it.
	DefaultLeaseTTL = 30 * time.Second
	// DefaultConnectTimeout is how long Open keeps trying.
	DefaultConnectTimeout = 120 * time.Second

	requestTimeout = 5 * time.Second // of one attempt
	revokeTimeout  = 5 * time.Second // at the end
)

// Options say how to reach etcd. The zero value means an etcd on this machine without authentication.
type Options struct {
	// Endpoints are URLs; nil means DefaultEndpoint.
	Endpoints []string
	// Username and Password are used when Username is not empty.
	Username, Password string
	// TLS is used for https endpoints; nil means the system's roots and no client certificate.
	TLS *tls.Config
	// LeaseTTL is a whole number of seconds; 0 means DefaultLeaseTTL.
	LeaseTTL time.Duration
	// ConnectTimeout bounds Open; 0 means DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// OnBadRecord is told of each unusable record once; it must not call the backend. nil: it is logged.
	OnBadRecord func(discovery.BadRecord)
	// Logger takes warnings, and what OnBadRecord does not; nil means slog.Default.
	Logger *slog.Logger
}

// Backend is this process's connection to etcd.
type Backend struct {
	client *clientv3.Client
	lease  clientv3.LeaseID
	ttl    time.Duration
	logger *slog.Logger
	set    *feed.Set

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	done sync.WaitGroup

	// writing holds a token while nobody writes. Writes go one by one, lest a key that is being deleted is brought back by the
	// renewal of the lease.
	writing chan struct{}
	restore chan struct{} // one slot: "put the own keys again"

	mu          sync.Mutex // guards all below
	owned       map[string][]byte
	closed      bool
	reconnected chan struct{} // closed and replaced when the connection comes back
}

var _ discovery.Backend = (*Backend)(nil)

// Open connects and takes a lease. While etcd can't be reached it tries again, with growing pauses, until ctx ends or the
// connect timeout is over. A refusal (wrong password, say) ends it at once.
func Open(ctx context.Context, options Options) (*Backend, error) {
	if len(options.Endpoints) == 0 {
		options.Endpoints = []string{DefaultEndpoint}
	}
	if options.LeaseTTL == 0 {
		options.LeaseTTL = DefaultLeaseTTL
	}
	if options.LeaseTTL < time.Second || options.LeaseTTL%time.Second != 0 {
		return nil, fmt.Errorf("etcd: lease TTL is %v; want whole seconds, at least 1", options.LeaseTTL)
	}
	if options.ConnectTimeout == 0 {
		options.ConnectTimeout = DefaultConnectTimeout
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	connectContext, cancel := context.WithTimeoutCause(ctx, options.ConnectTimeout, fmt.Errorf("gave up after %v", options.ConnectTimeout))
	defer cancel()
	client, lease, err := connect(connectContext, options)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(options.Endpoints, ","), err)
	}
	b := &Backend{
		client: client, lease: lease, ttl: options.LeaseTTL, logger: options.Logger,
		writing: make(chan struct{}, 1), restore: make(chan struct{}, 1),
		owned: make(map[string][]byte), reconnected: make(chan struct{}),
	}
	b.ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.set = feed.NewSet(options.OnBadRecord, options.Logger, b.startBucket)
	b.writing <- struct{}{}
	b.done.Go(b.watchConnection)
	b.done.Go(b.keepLease)
	b.done.Go(b.restoreKeys)
	return b, nil
}

func connect(ctx context.Context, options Options) (*clientv3.Client, clientv3.LeaseID, error) {
	pause := backoff{next: time.Second, limit: 30 * time.Second}
	for {
		client, lease, err := connectOnce(ctx, options)
		if err == nil {
			return client, lease, nil
		}
		if !worthRetrying(err) {
			return nil, 0, err
		}
		options.Logger.Warn("etcd can't be reached yet", "endpoints", options.Endpoints, "error", err)
		if !pause.wait(ctx) {
			return nil, 0, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func connectOnce(ctx context.Context, options Options) (*clientv3.Client, clientv3.LeaseID, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: options.Endpoints, Username: options.Username, Password: options.Password, TLS: options.TLS,
		DialTimeout: requestTimeout, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: requestTimeout,
		Logger: zap.NewNop(),
		// Without this a connection that is away for long is tried only every two minutes.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 250 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: requestTimeout,
		})},
	})
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	grant, err := client.Grant(ctx, int64(options.LeaseTTL/time.Second))
	if err != nil {
		client.Close()
		return nil, 0, err
	}
	return client, grant.ID, nil
}

// worthRetrying says whether an error may go away by itself.
func worthRetrying(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return true
	}
	code := codes.Unknown
	var fromServer rpctypes.EtcdError
	if errors.As(err, &fromServer) {
		code = fromServer.Code()
	} else if s, isStatus := status.FromError(err); isStatus {
		code = s.Code()
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Aborted, codes.Internal:
		return true
	}
	return false
}

// InstanceID is the id of the lease.
func (b *Backend) InstanceID() uint64 { return uint64(b.lease) }

// Watch delivers a bucket's records and their changes.
func (b *Backend) Watch(ctx context.Context, bucket discovery.Bucket, prefix string) (<-chan discovery.Event, error) {
	return b.set.Watch(ctx, bucket, prefix)
}

func (b *Backend) startBucket(bucket discovery.Bucket, f *feed.Feed) {
	b.done.Go(func() { b.follow(bucket, f) })
}

// Close revokes the lease, which removes the own keys, and disconnects. When etcd is away the keys go with the lease's time to live,
// and the error says so.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	b.set.Close()
	b.stop()
	b.done.Wait()
	ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
	defer cancel()
	_, err := b.client.Revoke(ctx, b.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("etcd: lease %s can't be revoked, its keys stay for up to %v: %w", b.leaseName(), b.ttl, err)
	}
	if closeErr := b.client.Close(); err == nil && closeErr != nil && !errors.Is(closeErr, context.Canceled) {
		err = fmt.Errorf("etcd: disconnect: %w", closeErr)
	}
	return err
}

// ownedCopy returns the own keys as they should be in etcd.
func (b *Backend) ownedCopy() map[string][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.owned)
}
