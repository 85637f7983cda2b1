package remoteindex

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/kvindex"
	"signalbox/transport/tcp"
	"signalbox/transport/wire"
)

// RequestPlane is where questions come from.
type RequestPlane interface {
	// Serve gives the requests for an instance's endpoint to the handler until stop is called, and returns how others reach it.
	Serve(instanceID uint64, endpoint discovery.EndpointID, handler tcp.Handler) (transport discovery.Transport, stop func(), err error)
}

// Index is what a server answers from. It is safe for concurrent use.
type Index interface {
	Find(matches *kvindex.Matches, query kvindex.Query)
}

// Recorder takes note of placements, where the index learns from them. It is safe for concurrent use.
type Recorder interface {
	Record(rank kvindex.Rank, locals, sequence []uint64, now time.Duration)
}

// Served is the index of one model.
type Served struct {
	Index Index
	// Recorder is nil for an index that is fed by workers' events; Now is the clock that it goes by.
	Recorder Recorder
	Now      func() time.Duration
}

// Server answers other routers' questions.
type Server struct {
	backend discovery.Backend
	plane   RequestPlane

	mutex      sync.Mutex
	components map[discovery.EndpointID]*component // with an empty name
}

// component is what is served in one workers' component: a query endpoint with an index for each model.
type component struct {
	server *Server
	mutex  sync.RWMutex
	models map[string]Served
	opened map[string]bool // endpoints; guarded by the server's mutex, like stops
	stops  []func()
}

// NewServer returns a server without any index. The plane stays the caller's.
func NewServer(backend discovery.Backend, plane RequestPlane) *Server {
	return &Server{backend: backend, plane: plane, components: make(map[discovery.EndpointID]*component)}
}

// registerTimeout bounds how long a record may take to register or to withdraw.
const registerTimeout = 3 * time.Second

// Serve answers questions about a model from an index until stop is called. workers is the endpoint of the model's workers, in whose
// component the questions are asked.
func (s *Server) Serve(workers discovery.EndpointID, model string, served Served) (stop func(), err error) {
	key := discovery.EndpointID{Namespace: workers.Namespace, Component: workers.Component}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	c := s.components[key]
	if c == nil {
		c = &component{server: s, models: make(map[string]Served), opened: make(map[string]bool)}
	}
	if _, twice := c.served(model); twice {
		return nil, fmt.Errorf("the index of model %s is served in %s/%s already", model, key.Namespace, key.Component)
	}
	err = c.open(key, queryEndpoint, c.query)
	if err == nil && served.Recorder != nil {
		err = c.open(key, recordEndpoint, c.record)
	}
	if err != nil {
		if s.components[key] == nil {
			c.close()
		}
		return nil, err
	}
	s.components[key] = c
	c.mutex.Lock()
	c.models[model] = served
	c.mutex.Unlock()
	return func() { s.withdraw(key, model) }, nil
}

func (s *Server) withdraw(key discovery.EndpointID, model string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	c := s.components[key]
	c.mutex.Lock()
	delete(c.models, model)
	last := len(c.models) == 0
	c.mutex.Unlock()
	if last {
		delete(s.components, key)
		c.close()
	}
}

// open registers an endpoint of the component, once. The caller holds the server's mutex.
func (c *component) open(key discovery.EndpointID, name string, handler tcp.Handler) error {
	if c.opened[name] {
		return nil
	}
	endpoint := discovery.EndpointID{Namespace: key.Namespace, Component: key.Component, Name: name}
	id := c.server.backend.InstanceID()
	transport, stop, err := c.server.plane.Serve(id, endpoint, handler)
	if err != nil {
		return err
	}
	record := &discovery.Instance{Namespace: key.Namespace, Component: key.Component, Endpoint: name, InstanceID: id, Transport: transport,
		DeviceType: "cuda", Codec: inference.MessagePack.String()}
	ctx, cancel := context.WithTimeout(context.Background(), registerTimeout)
	defer cancel()
	if err := discovery.Publish(ctx, c.server.backend, record); err != nil {
		stop()
		return fmt.Errorf("register %s: %w", record.Key(), err)
	}
	c.opened[name] = true
	c.stops = append(c.stops, stop, func() {
		ctx, cancel := context.WithTimeout(context.Background(), registerTimeout)
		defer cancel()
		_ = discovery.Withdraw(ctx, c.server.backend, record) // it ends with the process at the latest
	})
	return nil
}

func (c *component) close() {
	for i := len(c.stops) - 1; i >= 0; i-- {
		c.stops[i]()
	}
}

func (c *component) served(model string) (Served, bool) {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	served, known := c.models[model]
	return served, known
}

// query answers what is held of a prompt.
func (c *component) query(_ context.Context, call *tcp.Call) error {
	return reply(call, func(body []byte) ([]byte, error) {
		var q question
		if err := q.parse(body); err != nil {
			return nil, err
		}
		served, known := c.served(q.model)
		if !known {
			return appendError(nil, "served indexer model "+q.model+" is not registered"), nil
		}
		var matches kvindex.Matches
		served.Index.Find(&matches, kvindex.Query{Locals: q.locals, DeviceOnly: q.deviceOnly})
		return appendMatches(nil, &matches, q.deviceOnly), nil
	})
}

// record takes note of a placement.
func (c *component) record(_ context.Context, call *tcp.Call) error {
	return reply(call, func(body []byte) ([]byte, error) {
		var d decision
		if err := d.parse(body); err != nil {
			return nil, err
		}
		served, known := c.served(d.model)
		switch {
		case !known:
			return appendError(nil, "served indexer model "+d.model+" is not registered"), nil
		case served.Recorder == nil:
			return appendError(nil, "the index of model "+d.model+" is fed by the workers' events"), nil
		}
		served.Recorder.Record(d.rank, d.locals, d.sequence, served.Now())
		return msgp.AppendString(nil, "Recorded"), nil
	})
}

// reply answers a call with a value, in the call's encoding.
func reply(call *tcp.Call, answer func(body []byte) ([]byte, error)) error {
	invalid := func(err error) error {
		return &inference.Error{Kind: inference.InvalidArgument, Message: "index: " + err.Error(), Cause: err}
	}
	body := call.Body
	if call.Codec == inference.JSON {
		packed, err := wire.AppendMessagePack(nil, body)
		if err != nil {
			return invalid(err)
		}
		body = packed
	}
	value, err := answer(body)
	if err != nil {
		return invalid(err)
	}
	if call.Codec == inference.JSON {
		if value, err = wire.AppendJSON(nil, value); err != nil {
			return err
		}
	}
	call.EmitValue(value)
	return call.Flush()
}

var errNobody = errors.New("no router serves an index in the workers' component (--serve-indexer)")
