package kvservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/tinylib/msgp/msgp"

	"signalbox/peers"
	"signalbox/router/kv"
	"signalbox/transport/zmq"
)

// replicaTopic is the topic of the messages between replicas of a service.
const replicaTopic = "dynamo.slot-tracker.v1"

// maxPeers bounds how many replicas a service listens to.
const maxPeers = 256

// replicas are other processes of the same service. A nil *replicas is a service that keeps to itself.
type replicas struct {
	self      uint64
	publisher *zmq.Publisher
	apply     func(name pool, blockSize uint32, event kv.Remote)
	logger    *slog.Logger
	wait      sync.WaitGroup

	mutex sync.Mutex
	peers map[string]context.CancelFunc // by endpoint
}

func newReplicas(address string, self uint64, apply func(name pool, blockSize uint32, event kv.Remote), logger *slog.Logger) (*replicas, error) {
	publisher, err := zmq.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("replica sync at %s: %w", address, err)
	}
	return &replicas{self: self, publisher: publisher, apply: apply, logger: logger, peers: make(map[string]context.CancelFunc)}, nil
}

func (r *replicas) close() {
	if r == nil {
		return
	}
	r.mutex.Lock()
	for _, leave := range r.peers {
		leave()
	}
	clear(r.peers)
	r.mutex.Unlock()
	r.wait.Wait()
	if err := r.publisher.Close(); err != nil {
		r.logger.Warn("replica sync did not close cleanly", "error", err)
	}
}

// port is where replicas may listen; 0 for nowhere.
func (r *replicas) port() int {
	if r == nil {
		return 0
	}
	return r.publisher.Port()
}

// listeners is how many replicas listen.
func (r *replicas) listeners() int {
	if r == nil {
		return 0
	}
	return r.publisher.Subscribers()
}

// tell publishes an event to the replicas.
func (r *replicas) tell(name pool, blockSize uint32, event *kv.Remote) {
	if r == nil {
		return
	}
	r.publisher.Publish([]byte(replicaTopic), appendReplicaMessage(nil, r.self, name, blockSize, event))
}

func appendReplicaMessage(dst []byte, self uint64, name pool, blockSize uint32, event *kv.Remote) []byte {
	dst = msgp.AppendMapHeader(dst, 4)
	dst = msgp.AppendString(dst, "model_name")
	dst = msgp.AppendString(dst, name.model)
	dst = msgp.AppendString(dst, "routing_group")
	dst = msgp.AppendString(dst, name.group)
	dst = msgp.AppendString(dst, "block_size")
	dst = msgp.AppendUint32(dst, blockSize)
	dst = msgp.AppendString(dst, "event")
	return peers.AppendEvent(dst, self, event)
}

// parseReplicaMessage reads a message. from is who told it.
func parseReplicaMessage(data []byte) (name pool, blockSize uint32, event kv.Remote, from uint64, err error) {
	count, data, err := msgp.ReadMapHeaderBytes(data)
	hasEvent := false
	for i := uint32(0); err == nil && i < count; i++ {
		var key []byte
		if key, data, err = msgp.ReadMapKeyZC(data); err != nil {
			break
		}
		switch string(key) {
		case "model_name":
			name.model, data, err = msgp.ReadStringBytes(data)
		case "routing_group":
			name.group, data, err = msgp.ReadStringBytes(data)
		case "block_size":
			blockSize, data, err = msgp.ReadUint32Bytes(data)
		case "event":
			hasEvent = true
			event, from, data, err = peers.ParseEvent(data)
		default:
			data, err = msgp.Skip(data)
		}
	}
	if err == nil && !hasEvent {
		err = errors.New("it has no event")
	}
	if err != nil {
		return pool{}, 0, kv.Remote{}, 0, fmt.Errorf("replica message: %w", err)
	}
	return name, blockSize, event, from, nil
}

// listen follows a replica until it is left.
func (r *replicas) listen(endpoint string) (added bool, err error) {
	if err := checkEndpoint(endpoint); err != nil {
		return false, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if _, known := r.peers[endpoint]; known {
		return false, nil
	}
	if len(r.peers) >= maxPeers {
		return false, &failure{status: http.StatusConflict, text: fmt.Sprintf("more than %d peers", maxPeers)}
	}
	ctx, leave := context.WithCancel(context.Background())
	r.peers[endpoint] = leave
	complained := false
	r.wait.Go(func() { // ends when the peer is left
		err := zmq.Subscribe(ctx, endpoint, replicaTopic, zmq.Events{Message: func(parts [][]byte) {
			if len(parts) != 2 || string(parts[0]) != replicaTopic {
				return
			}
			name, blockSize, event, from, err := parseReplicaMessage(parts[1])
			if err != nil {
				if !complained {
					complained = true
					r.logger.Warn("a replica's message cannot be read; further ones are left out silently", "peer", endpoint, "error", err)
				}
				return
			}
			if from != r.self {
				r.apply(name, blockSize, event)
			}
		}})
		if err != nil {
			r.logger.Warn("a replica cannot be heard", "peer", endpoint, "error", err)
		}
	})
	return true, nil
}

// mount adds the paths at which replicas are named.
func (r *replicas) mount(routes routes) {
	type body struct {
		Endpoint *string `json:"endpoint"`
	}
	change := func(change func(endpoint string) (status int, err error)) http.HandlerFunc {
		return func(w http.ResponseWriter, request *http.Request) {
			var b body
			err := read(request, &b, func() string { return firstMissing(member{"endpoint", b.Endpoint != nil}) })
			if err == nil && r == nil {
				err = &failure{status: http.StatusConflict, text: "replica sync is disabled"}
			}
			status := 0
			if err == nil {
				status, err = change(*b.Endpoint)
			}
			reply(w, status, done{"ok"}, err)
		}
	}
	routes["/replica_sync/register_peer"] = map[string]http.HandlerFunc{http.MethodPost: change(func(endpoint string) (int, error) {
		added, err := r.listen(endpoint)
		if added {
			return http.StatusCreated, err
		}
		return http.StatusOK, err
	})}
	routes["/replica_sync/deregister_peer"] = map[string]http.HandlerFunc{http.MethodPost: change(func(endpoint string) (int, error) {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		leave, known := r.peers[endpoint]
		if !known {
			return 0, &failure{status: http.StatusNotFound, text: "peer not found"}
		}
		leave()
		delete(r.peers, endpoint)
		return http.StatusOK, nil
	})}
	routes["/replica_sync/peers"] = map[string]http.HandlerFunc{http.MethodGet: func(w http.ResponseWriter, _ *http.Request) {
		list := []string{}
		if r != nil {
			r.mutex.Lock()
			for endpoint := range r.peers {
				list = append(list, endpoint)
			}
			r.mutex.Unlock()
		}
		slices.Sort(list)
		answer(w, http.StatusOK, list)
	}}
}
