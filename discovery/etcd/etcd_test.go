package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"signalbox/discovery"
	"signalbox/discovery/etcd"
	"signalbox/discovery/internal/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is an etcd in this process that can be stopped and started again.
type server struct {
	config *embed.Config
	etcd   *embed.Etcd
}

// newServer prepares an etcd on a free port; adjust may change its configuration.
func newServer(t *testing.T, adjust func(*embed.Config)) *server {
	t.Helper()
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	config.ListenPeerUrls = []url.URL{freeAddress(t, "http")}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.ListenClientUrls = []url.URL{freeAddress(t, "http")}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	config.UnsafeNoFsync = true
	config.TickMs, config.ElectionMs = 20, 200 // a single member; stopping takes less time with these
	if adjust != nil {
		adjust(config)
	}
	s := &server{config: config}
	t.Cleanup(s.stop)
	return s
}

func freeAddress(t *testing.T, scheme string) url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return url.URL{Scheme: scheme, Host: listener.Addr().String()}
}

func (s *server) endpoint() string { return s.config.ListenClientUrls[0].String() }

func (s *server) start(t *testing.T) *server {
	t.Helper()
	config := *s.config
	started, err := embed.StartEtcd(&config)
	if err != nil {
		t.Fatal(err)
	}
	s.etcd = started
	select {
	case <-started.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("etcd does not start")
	}
	return s
}

func (s *server) stop() {
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
}

// client returns a plain client.
func (s *server) client(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func (s *server) open(t *testing.T, adjust func(*etcd.Options)) *etcd.Backend {
	t.Helper()
	options := etcd.Options{Endpoints: []string{s.endpoint()}, ConnectTimeout: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	if adjust != nil {
		adjust(&options)
	}
	backend, err := etcd.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a test that wants the keys removed closes by itself
		backend.Close(ctx)
	})
	return backend
}

func TestContract(t *testing.T) {
	shared := newServer(t, nil).start(t)
	client := shared.client(t)
	contract.Run(t, func(t *testing.T) contract.Fleet {
		if _, err := client.Delete(t.Context(), "", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		return contract.Fleet{
			Open: func(t *testing.T, onBad func(discovery.BadRecord)) discovery.Backend {
				return shared.open(t, func(options *etcd.Options) { options.OnBadRecord = onBad })
			},
			Write: func(t *testing.T, bucket discovery.Bucket, key string, value []byte) {
				if _, err := client.Put(t.Context(), string(bucket)+"/"+key, string(value)); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

// Real peers look for exactly these keys, and take the lease's id for the instance's.
func TestLayout(t *testing.T) {
	s := newServer(t, nil).start(t)
	client := s.client(t)
	backend := s.open(t, func(options *etcd.Options) { options.LeaseTTL = 17 * time.Second })
	record := contract.Instance("dyn_amo-1", backend.InstanceID())
	contract.Publish(t, backend, record)
	answer, err := client.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("etcd holds %v, %v; want one key", answer, err)
	}
	value, _ := discovery.Marshal(record)
	pair := answer.Kvs[0]
	if want := fmt.Sprintf("v1/instances/dyn_amo-1/backend/generate/%x", backend.InstanceID()); string(pair.Key) != want || string(pair.Value) != string(value) {
		t.Errorf("%s = %s, want %s = %s", pair.Key, pair.Value, want, value)
	}
	if uint64(pair.Lease) != backend.InstanceID() {
		t.Errorf("lease %x, want the instance id %x", pair.Lease, backend.InstanceID())
	}
	lease, err := client.TimeToLive(t.Context(), clientv3.LeaseID(pair.Lease))
	if err != nil || lease.GrantedTTL != 17 {
		t.Errorf("lease %+v, %v; want a TTL of 17", lease, err)
	}
	if err := backend.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if answer, err = client.Get(t.Context(), "", clientv3.WithPrefix()); err != nil || len(answer.Kvs) != 0 {
		t.Errorf("after a clean exit etcd holds %v, %v", answer.Kvs, err)
	}
}

// etcd away must not take the workers away.
func TestOutage(t *testing.T) {
	s := newServer(t, nil).start(t)
	worker, frontend := s.open(t, nil), s.open(t, nil)
	before := contract.Instance("ns", worker.InstanceID())
	contract.Publish(t, worker, before)
	events := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Put, before)
	contract.Expect(t, events, discovery.Synced, nil)

	s.stop()
	// Watches that begin during the outage get the last known records.
	again := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, again, discovery.Put, before)
	contract.Expect(t, again, discovery.Synced, nil)
	// A put waits for etcd, as long as its context allows.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := discovery.Publish(ctx, worker, contract.Instance("ns", 7)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put without etcd: %v, want it to end with its context", err)
	}
	late := contract.Instance("ns", 8)
	waiting := make(chan error, 1)
	go func() { waiting <- discovery.Publish(t.Context(), worker, late) }()

	s.start(t)
	if err := <-waiting; err != nil {
		t.Errorf("put that waited for etcd: %v", err)
	}
	contract.Expect(t, events, discovery.Put, late) // and no Delete before it
}

// An etcd that comes back empty counts its revisions from one again.
func TestOutageWithLossOfAllData(t *testing.T) {
	s := newServer(t, nil).start(t)
	client := s.client(t)
	worker, frontend := s.open(t, nil), s.open(t, nil)
	stays := contract.Instance("ns", worker.InstanceID())
	contract.Publish(t, worker, stays)
	lost := contract.Model("ns", 5, `{}`)
	value, _ := discovery.Marshal(lost)
	for range 50 { // so that the new etcd's revisions lie far behind
		if _, err := client.Put(t.Context(), "v1/mdc/"+lost.Key(), string(value)); err != nil {
			t.Fatal(err)
		}
	}
	models := contract.Watch(t, frontend, discovery.Models, "")
	contract.Expect(t, models, discovery.Put, lost)
	contract.Expect(t, models, discovery.Synced, nil)

	s.stop()
	s.config.Dir = t.TempDir()
	s.start(t)
	contract.Expect(t, models, discovery.Delete, lost)
	// The worker's record is put again, under the same id.
	instances := contract.Watch(t, frontend, discovery.Instances, "")
	for event := contract.Next(t, instances); event.Kind != discovery.Put; event = contract.Next(t, instances) {
	}
	fresh := contract.Model("ns", worker.InstanceID(), `{}`)
	contract.Publish(t, worker, fresh)
	contract.Expect(t, models, discovery.Put, fresh)
	answer, err := client.Get(t.Context(), "v1/instances/"+stays.Key())
	if err != nil || len(answer.Kvs) != 1 || uint64(answer.Kvs[0].Lease) != worker.InstanceID() {
		t.Errorf("after the loss etcd has %v, %v; want the worker's key on its old lease", answer, err)
	}
}

func TestLostLeaseIsGrantedAgainUnderTheSameID(t *testing.T) {
	s := newServer(t, nil).start(t)
	client := s.client(t)
	worker := s.open(t, func(options *etcd.Options) { options.LeaseTTL = time.Second })
	frontend := s.open(t, nil)
	record := contract.Instance("ns", worker.InstanceID())
	contract.Publish(t, worker, record)
	deleted := contract.Model("ns", 1, `{}`)
	contract.Publish(t, worker, deleted)
	if err := discovery.Withdraw(t.Context(), worker, deleted); err != nil {
		t.Fatal(err)
	}
	events := contract.Watch(t, frontend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Put, record)
	contract.Expect(t, events, discovery.Synced, nil)
	for range 2 {
		if _, err := client.Revoke(t.Context(), clientv3.LeaseID(worker.InstanceID())); err != nil {
			t.Fatal(err)
		}
		contract.Expect(t, events, discovery.Delete, record)
		contract.Expect(t, events, discovery.Put, record)
	}
	if answer, err := client.Get(t.Context(), "v1/mdc/", clientv3.WithPrefix()); err != nil || len(answer.Kvs) != 0 {
		t.Errorf("a key that was deleted is back: %v, %v", answer, err)
	}
}

func TestOpenGivesUpAndSaysWhere(t *testing.T) {
	nobody := freeAddress(t, "http")
	_, err := etcd.Open(t.Context(), etcd.Options{
		Endpoints: []string{nobody.String()}, ConnectTimeout: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil || !strings.Contains(err.Error(), nobody.String()) || !strings.Contains(err.Error(), "gave up after 100ms") {
		t.Errorf("got %v, want an error with the endpoint and the time limit", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{nobody.String()}, Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	for _, ttl := range []time.Duration{-time.Second, 500 * time.Millisecond, 1500 * time.Millisecond} {
		if _, err := etcd.Open(t.Context(), etcd.Options{LeaseTTL: ttl}); err == nil || !strings.Contains(err.Error(), "lease TTL") {
			t.Errorf("TTL %v: %v", ttl, err)
		}
	}
}

func TestOpenWaitsForEtcd(t *testing.T) {
	s := newServer(t, nil)
	opened := make(chan error, 1)
	go func() {
		backend, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{s.endpoint()}, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = backend.Close(t.Context())
		}
		opened <- err
	}()
	s.start(t)
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestCloseWithoutEtcdEnds(t *testing.T) {
	s := newServer(t, nil).start(t)
	backend := s.open(t, nil)
	contract.Publish(t, backend, contract.Instance("ns", 1))
	events := contract.Watch(t, backend, discovery.Instances, "")
	contract.Expect(t, events, discovery.Put, contract.Instance("ns", 1))
	s.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := backend.Close(ctx); err == nil || !strings.Contains(err.Error(), "keys stay for up to 30s") {
		t.Errorf("close without etcd: %v", err)
	}
}
