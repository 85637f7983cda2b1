package peers

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"signalbox/discovery"
	"signalbox/internal/packed"
	"signalbox/router/affinity"
)

// SessionsTopic carries where sessions are bound.
const SessionsTopic = "session_affinity_events"

// sessionsWaiting is how many bindings may wait to be told.
const sessionsWaiting = 4096

// Sessions tells other routers of an endpoint where sessions are bound.
type Sessions struct {
	channel *channel
	waiting chan affinity.Binding
}

// Sessions joins the routers of an endpoint. learn is told of their bindings, from several goroutines. Close ends it.
func (p *Plane) Sessions(endpoint discovery.EndpointID, learn func(affinity.Binding)) (*Sessions, error) {
	routerID := p.Backend.InstanceID()
	c, ctx, err := p.open(endpoint, SessionsTopic, func(payload []byte) error {
		binding, from, err := ParseBinding(payload)
		if err == nil && from != routerID {
			learn(binding)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s := &Sessions{channel: c, waiting: make(chan affinity.Binding, sessionsWaiting)}
	c.wait.Go(func() { // ends with ctx
		for {
			select {
			case binding := <-s.waiting:
				c.send(AppendBinding(nil, binding, routerID))
			case <-ctx.Done():
				return
			}
		}
	})
	return s, nil
}

// Publish tells of a binding. It never waits.
func (s *Sessions) Publish(binding affinity.Binding) {
	select {
	case s.waiting <- binding:
	default:
		s.channel.dropped.Add(1)
	}
}

// Dropped returns how many bindings were not told because too many waited.
func (s *Sessions) Dropped() uint64 { return s.channel.dropped.Load() }

// Close leaves the others.
func (s *Sessions) Close() { s.channel.close() }

// AppendBinding appends a binding in the form of the topic: the members that Dynamo 1.5 knows and those of 1.6.
func AppendBinding(dst []byte, binding affinity.Binding, routerID uint64) []byte {
	dst = msgp.AppendMapHeader(dst, 6)
	dst = msgp.AppendString(dst, "session_id")
	dst = msgp.AppendString(dst, binding.SessionID)
	dst = msgp.AppendString(dst, "worker_id")
	dst = msgp.AppendUint64(dst, binding.Target.WorkerID)
	dst = msgp.AppendString(dst, "dp_rank")
	if binding.Target.HasRank {
		dst = msgp.AppendUint32(dst, binding.Target.Rank)
	} else {
		dst = msgp.AppendNil(dst)
	}
	dst = msgp.AppendString(dst, "sequence")
	dst = msgp.AppendUint64(dst, binding.Version)
	dst = msgp.AppendString(dst, "writer_id")
	dst = msgp.AppendUint64(dst, binding.Writer)
	dst = msgp.AppendString(dst, "router_id")
	return msgp.AppendUint64(dst, routerID)
}

// maxSessionID bounds the id of a session, in bytes, as clients' own are.
const maxSessionID = 256

// ParseBinding reads a binding. from is the router that told it, 0 where it does not say.
func ParseBinding(payload []byte) (binding affinity.Binding, from uint64, err error) {
	hasWorker := false
	rest, err := packed.Each(payload, func(key, value []byte) (rest []byte, err error) {
		switch string(key) {
		case "session_id":
			binding.SessionID, rest, err = msgp.ReadStringBytes(value)
		case "worker_id":
			hasWorker = true
			binding.Target.WorkerID, rest, err = msgp.ReadUint64Bytes(value)
		case "dp_rank":
			binding.Target.Rank, binding.Target.HasRank, rest, err = optional(value, msgp.ReadUint32Bytes)
		case "sequence":
			binding.Version, _, rest, err = optional(value, msgp.ReadUint64Bytes)
		case "writer_id":
			binding.Writer, _, rest, err = optional(value, msgp.ReadUint64Bytes)
		case "router_id":
			from, _, rest, err = optional(value, msgp.ReadUint64Bytes)
		default:
			rest, err = msgp.Skip(value)
		}
		return rest, err
	})
	switch {
	case err != nil:
		return affinity.Binding{}, 0, fmt.Errorf("session binding: %w", err)
	case !hasWorker || binding.SessionID == "":
		return affinity.Binding{}, 0, errors.New("session binding: session_id and worker_id must be there")
	case len(binding.SessionID) > maxSessionID:
		return affinity.Binding{}, 0, fmt.Errorf("session binding: a session id of %d bytes; at most %d are allowed", len(binding.SessionID), maxSessionID)
	case len(rest) > 0:
		return affinity.Binding{}, 0, fmt.Errorf("session binding: %d bytes after its end", len(rest))
	}
	return binding, from, nil
}
