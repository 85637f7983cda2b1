// Package standalone is a KV router as a service on the request plane: it takes requests at an endpoint of its own and passes each on to
// the worker that holds most of it and has room, with everything in the request that the router does not look at. It can also be asked
// where a request would go, and what the workers hold of a prompt.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/kvindex"
	"signalbox/model"
	"signalbox/router"
	"signalbox/transport/tcp"
)

// RequestPlane is where requests come from.
type RequestPlane interface {
	// Serve gives the requests for an instance's endpoint to the handler until stop is called, and returns how others reach it.
	Serve(instanceID uint64, endpoint discovery.EndpointID, handler tcp.Handler) (transport discovery.Transport, stop func(), err error)
}

// Workers reaches workers.
type Workers interface {
	// Target returns where a worker is reached; false when this plane does not reach it.
	Target(instance *discovery.Instance) (inference.Target, bool)
	// SendValue sends a body in the target's codec; the items of the stream carry what the worker answers, in the same codec.
	SendValue(ctx context.Context, target inference.Target, id string, body []byte) (inference.Stream, error)
	// Gone tells that a worker has left.
	Gone(workerID uint64)
}

// Options describe a standalone router.
type Options struct {
	Backend discovery.Backend
	Plane   RequestPlane
	Workers Workers
	// Endpoint is the workers'; Namespace is that of the router's own endpoints, which are NAMESPACE.router.generate and others.
	Endpoint  discovery.EndpointID
	Namespace string
	// BlockSize is the workers' KV block size, in tokens.
	BlockSize int
	// Route makes the router of the pool once the first worker is there; end ends what it started, nil for nothing.
	Route func(pool *router.Pool, set *model.Set) (made router.Router, end func(), err error)
	// WorkerOf says what routing needs to know of a worker.
	WorkerOf func(model.Member) router.Worker
	Logger   *slog.Logger
}

// Service is a running standalone router.
type Service struct {
	options Options
	pool    *router.Pool
	router  router.Router
	end     func()
	eagle   bool // the workers speculate with overlapping blocks
	cancel  context.CancelFunc
	wait    sync.WaitGroup
	targets atomic.Pointer[map[uint64]inference.Target]
	members members
	first   chan struct{} // closed when the first worker is there
	records []discovery.Record
	stops   []func()

	mutex    sync.Mutex // guards the hand-over between Start and the goroutine that follows the workers
	watching interface{ Members(*model.Set) }
}

// finder knows what workers hold.
type finder interface {
	Find(matches *kvindex.Matches, query kvindex.Query)
}

// component is that of the router's own endpoints.
const component = "router"

// registerTimeout bounds how long a record may take to register or to withdraw.
const registerTimeout = 3 * time.Second

// Start waits for the first worker, makes the router and registers its endpoints. ctx bounds the wait alone; Close ends the service.
func Start(ctx context.Context, options Options) (*Service, error) {
	running, cancel := context.WithCancel(context.Background())
	s := &Service{options: options, cancel: cancel, first: make(chan struct{}), pool: router.NewPool(router.PoolOptions{Endpoint: options.Endpoint.String()})}
	s.targets.Store(&map[uint64]inference.Target{})
	if err := s.follow(running); err != nil {
		cancel()
		return nil, err
	}
	select {
	case <-s.first:
	default:
		options.Logger.Info("waiting for the first worker", "endpoint", options.Endpoint.String())
		select {
		case <-s.first:
		case <-ctx.Done():
			s.Close()
			return nil, fmt.Errorf("no worker came to %s: %w", options.Endpoint, ctx.Err())
		}
	}
	if err := s.start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// start makes the router and opens the endpoints.
func (s *Service) start() error {
	s.mutex.Lock()
	set := s.members.set(&s.options)
	made, end, err := s.options.Route(s.pool, set)
	if err == nil {
		s.router, s.end, s.eagle = made, end, set.Card.Runtime.Eagle
		s.watching, _ = made.(interface{ Members(*model.Set) })
	}
	s.mutex.Unlock()
	if err != nil {
		return err
	}
	for _, endpoint := range []struct {
		name    string
		handler tcp.Handler
	}{{"generate", s.generate}, {"best_worker_id", s.bestWorker}, {"get_overlap_scores", s.overlapScores}} {
		if err := s.open(endpoint.name, endpoint.handler); err != nil {
			return err
		}
	}
	return nil
}

// open registers an endpoint.
func (s *Service) open(name string, handler tcp.Handler) error {
	id := s.options.Backend.InstanceID()
	endpoint := discovery.EndpointID{Namespace: s.options.Namespace, Component: component, Name: name}
	transport, stop, err := s.options.Plane.Serve(id, endpoint, handler)
	if err != nil {
		return err
	}
	s.stops = append(s.stops, stop)
	record := &discovery.Instance{Namespace: endpoint.Namespace, Component: endpoint.Component, Endpoint: name, InstanceID: id, Transport: transport,
		DeviceType: "cuda", Codec: inference.MessagePack.String()}
	ctx, cancel := context.WithTimeout(context.Background(), registerTimeout)
	defer cancel()
	if err := discovery.Publish(ctx, s.options.Backend, record); err != nil {
		return fmt.Errorf("register %s: %w", record.Key(), err)
	}
	s.records = append(s.records, record)
	return nil
}

// Withdraw takes the router out of discovery; it still takes requests, for others learn of it a moment later.
func (s *Service) Withdraw() error {
	ctx, cancel := context.WithTimeout(context.Background(), registerTimeout)
	defer cancel()
	var err error
	for i := len(s.records) - 1; i >= 0; i-- {
		err = errors.Join(err, discovery.Withdraw(ctx, s.options.Backend, s.records[i]))
	}
	s.records = nil
	return err
}

// Close ends the service. Requests that run are broken off when their connections close.
func (s *Service) Close() {
	if err := s.Withdraw(); err != nil {
		s.options.Logger.Warn("the router did not leave discovery cleanly", "error", err)
	}
	for _, stop := range s.stops {
		stop()
	}
	if s.router != nil {
		s.router.Close()
	}
	s.cancel()
	s.wait.Wait()
	if s.end != nil {
		s.end()
	}
}

// find looks up what workers hold; nothing where the router has no index.
func (s *Service) find(locals []uint64) (matches kvindex.Matches) {
	inner := s.router
	for {
		if index, knows := inner.(finder); knows {
			index.Find(&matches, kvindex.Query{Locals: locals})
			return matches
		}
		around, wraps := inner.(interface{ Inner() router.Router })
		if !wraps {
			return matches
		}
		inner = around.Inner()
	}
}
