package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/transport/tcp"
	"signalbox/worker/sim"
)

const (
	kvEventsTopic  = "kv-events"
	kvMetricsTopic = "kv_metrics"
	// publisherIDMask keeps publisher ids within 53 bits, so that they survive JSON numbers.
	publisherIDMask = 1<<53 - 1
)

// EventOptions describe where a worker's KV events go.
type EventOptions struct {
	Backend  discovery.Backend
	Endpoint discovery.EndpointID
	// Server answers recovery queries; Requests is how they come to it, nil for the server's own connections. Sockets of the
	// publisher's own are reached at the server's host.
	Server   *tcp.Server
	Requests RequestPlane
	// Events carries what is published; nil for ZeroMQ sockets of the publisher's own.
	Events EventPlane
	Ranks  int
}

// EventPublisher publishes the KV events and the load of one worker on the event plane, and answers recovery queries from what it
// published. It implements sim.Events.
type EventPublisher struct {
	options EventOptions
	id      uint64
	ranks   []*rankPublisher
	metrics *channel
	records []discovery.Record
}

// channel is one publisher id with its way out.
type channel struct {
	id     uint64
	topic  string
	outlet EventOutlet

	mu       sync.Mutex
	sequence uint64 // guarded by mu
}

// rankPublisher is the event stream of one rank.
type rankPublisher struct {
	workerID uint64
	rank     uint32
	stop     func() // ends the recovery endpoint; nil when there is none

	mu      sync.Mutex
	channel *channel
	eventID uint64               // of the last event; the first one is 1
	held    map[uint64]heldBlock // by hash
	order   []uint64             // hashes in the order of their first arrival, some of them gone
	recent  [recentEvents][]byte // the last events as they were published, at their id modulo the length
	blocks  int                  // in use, as last reported
}

// recentEvents is how many events can be told again one by one; a subscriber that missed more is told all that is held.
const recentEvents = 1024

type heldBlock struct {
	parent    uint64
	hasParent bool
	local     uint64
}

// StartEvents opens the sockets and registers channels, recovery endpoints and sources, in this order, so that whoever sees a source
// can use all of it.
func StartEvents(ctx context.Context, options EventOptions) (*EventPublisher, error) {
	if options.Requests == nil {
		options.Requests = OnTCP(options.Server)
	}
	if options.Events == nil {
		options.Events = zmqEvents{options.Server.Host()}
	}
	p := &EventPublisher{options: options, id: options.Backend.InstanceID()}
	for rank := range options.Ranks {
		if err := p.openRank(ctx, uint32(rank)); err != nil {
			return nil, errors.Join(err, p.Close(ctx))
		}
	}
	var err error
	if p.metrics, err = p.openChannel(ctx, kvMetricsTopic); err != nil {
		return nil, errors.Join(err, p.Close(ctx))
	}
	return p, nil
}

func (p *EventPublisher) publish(ctx context.Context, record discovery.Record) error {
	if err := discovery.Publish(ctx, p.options.Backend, record); err != nil {
		return fmt.Errorf("register %s: %w", record.Key(), err)
	}
	p.records = append(p.records, record)
	return nil
}

func (p *EventPublisher) openChannel(ctx context.Context, topic string) (*channel, error) {
	scope := discovery.EndpointScope(p.options.Endpoint)
	outlet, transport, err := p.options.Events.Open(scope, topic)
	if err != nil {
		return nil, err
	}
	c := &channel{id: rand.Uint64() & publisherIDMask, topic: topic, outlet: outlet}
	if err := p.publish(ctx, &discovery.EventChannel{Scope: scope, Topic: topic, PublisherID: c.id, Transport: transport}); err != nil {
		return nil, errors.Join(err, outlet.Close())
	}
	return c, nil
}

func (p *EventPublisher) openRank(ctx context.Context, rank uint32) error {
	c, err := p.openChannel(ctx, kvEventsTopic)
	if err != nil {
		return err
	}
	r := &rankPublisher{workerID: p.id, rank: rank, channel: c, held: make(map[uint64]heldBlock), blocks: -1}
	p.ranks = append(p.ranks, r)
	e := p.options.Endpoint
	recovery := discovery.EndpointID{Namespace: e.Namespace, Component: e.Component, Name: "worker_kv_query_source_" + discovery.FormatID(c.id)}
	transport, stop, err := p.options.Requests.Serve(p.id, recovery, r.recover)
	if err != nil {
		return err
	}
	r.stop = stop
	query := &discovery.Instance{Namespace: e.Namespace, Component: e.Component, Endpoint: recovery.Name, InstanceID: p.id,
		Transport: transport, DeviceType: "cuda", Codec: inference.MessagePack.String()}
	if err := p.publish(ctx, query); err != nil {
		return err
	}
	return p.publish(ctx, &discovery.EventSource{Scope: discovery.EndpointScope(e), Topic: kvEventsTopic, PublisherID: c.id,
		Metadata: discovery.SourceMetadata{KVStateEndpoint: e, Worker: discovery.SourceWorker{WorkerID: p.id, Rank: rank}, PublisherID: c.id,
			RecoveryTarget: query}})
}

// Close withdraws the records, the last first, and closes the sockets.
func (p *EventPublisher) Close(ctx context.Context) error {
	var err error
	for i := len(p.records) - 1; i >= 0; i-- {
		err = errors.Join(err, discovery.Withdraw(ctx, p.options.Backend, p.records[i]))
	}
	for _, r := range p.ranks {
		if r.stop != nil {
			r.stop()
		}
		err = errors.Join(err, r.channel.outlet.Close())
	}
	if p.metrics != nil {
		err = errors.Join(err, p.metrics.outlet.Close())
	}
	return err
}

// send wraps a payload into the event plane's envelope and publishes it.
func (c *channel) send(payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	envelope := msgp.AppendMapHeader(make([]byte, EnvelopeHead, len(payload)+128), 5)
	envelope = msgp.AppendString(envelope, "publisher_id")
	envelope = msgp.AppendUint64(envelope, c.id)
	envelope = msgp.AppendString(envelope, "sequence")
	envelope = msgp.AppendUint64(envelope, c.sequence)
	envelope = msgp.AppendString(envelope, "published_at")
	envelope = msgp.AppendUint64(envelope, uint64(time.Now().UnixMilli()))
	envelope = msgp.AppendString(envelope, "topic")
	envelope = msgp.AppendString(envelope, c.topic)
	envelope = msgp.AppendString(envelope, "payload")
	envelope = msgp.AppendBytes(envelope, payload)
	c.outlet.Publish(c.id, c.sequence, envelope)
	c.sequence++
}

// Stored implements sim.Events.
func (p *EventPublisher) Stored(rank int, parent uint64, hasParent bool, blocks []sim.Block) {
	r := p.ranks[rank]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(parent, hasParent, blocks)
	r.eventID++
	r.publish(r.appendStored(nil, r.eventID, parent, hasParent, blocks))
}

// note keeps the books of what is held.
func (r *rankPublisher) note(parent uint64, hasParent bool, blocks []sim.Block) {
	link, linked := parent, hasParent
	for _, block := range blocks {
		if _, known := r.held[block.Hash]; !known {
			r.order = append(r.order, block.Hash)
		}
		r.held[block.Hash] = heldBlock{parent: link, hasParent: linked, local: block.Local}
		link, linked = block.Hash, true
	}
	r.compact()
}

// compact forgets the hashes of removed blocks once they are the greater part. A block that came back counts by its first arrival:
// its children can only have come later.
func (r *rankPublisher) compact() {
	if len(r.order) < 1024 || len(r.order) < 2*len(r.held) {
		return
	}
	kept := r.order[:0]
	seen := make(map[uint64]bool, len(r.held))
	for _, hash := range r.order {
		if _, ok := r.held[hash]; ok && !seen[hash] {
			seen[hash] = true
			kept = append(kept, hash)
		}
	}
	r.order = kept
}

// publish sends the event and keeps it for a while.
func (r *rankPublisher) publish(event []byte) {
	r.recent[r.eventID%recentEvents] = event
	r.channel.send(append(msgp.AppendArrayHeader(make([]byte, 0, len(event)+5), 1), event...))
}

// Removed implements sim.Events.
func (p *EventPublisher) Removed(rank int, hashes []uint64) {
	r := p.ranks[rank]
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, hash := range hashes {
		delete(r.held, hash)
	}
	r.eventID++
	event := r.appendHead(nil, r.eventID)
	event = msgp.AppendMapHeader(event, 1)
	event = msgp.AppendString(event, "removed")
	event = msgp.AppendMapHeader(event, 1)
	event = msgp.AppendString(event, "block_hashes")
	event = msgp.AppendArrayHeader(event, uint32(len(hashes)))
	for _, hash := range hashes {
		event = msgp.AppendUint64(event, hash)
	}
	r.publish(r.appendTail(event))
}

// Load implements sim.Events. Only changes are published.
func (p *EventPublisher) Load(rank, usedBlocks int) {
	r := p.ranks[rank]
	r.mu.Lock()
	same := r.blocks == usedBlocks
	r.blocks = usedBlocks
	r.mu.Unlock()
	if same {
		return
	}
	payload := msgp.AppendMapHeader(nil, 5)
	payload = msgp.AppendString(payload, "worker_id")
	payload = msgp.AppendUint64(payload, r.workerID)
	payload = msgp.AppendString(payload, "dp_rank")
	payload = msgp.AppendUint32(payload, r.rank)
	payload = msgp.AppendString(payload, "active_decode_blocks")
	payload = msgp.AppendNil(payload)
	payload = msgp.AppendString(payload, "active_prefill_tokens")
	payload = msgp.AppendNil(payload)
	payload = msgp.AppendString(payload, "kv_used_blocks")
	payload = msgp.AppendUint64(payload, uint64(usedBlocks))
	if p.metrics != nil {
		p.metrics.send(payload)
	}
}

// appendHead begins one router event up to its data.
func (r *rankPublisher) appendHead(dst []byte, eventID uint64) []byte {
	dst = msgp.AppendMapHeader(dst, 4)
	dst = msgp.AppendString(dst, "worker_id")
	dst = msgp.AppendUint64(dst, r.workerID)
	dst = msgp.AppendString(dst, "storage_tier")
	dst = msgp.AppendString(dst, "device")
	dst = msgp.AppendString(dst, "residency_domain")
	dst = msgp.AppendString(dst, "worker")
	dst = msgp.AppendString(dst, "event")
	dst = msgp.AppendMapHeader(dst, 3)
	dst = msgp.AppendString(dst, "event_id")
	dst = msgp.AppendUint64(dst, eventID)
	return msgp.AppendString(dst, "data")
}

func (r *rankPublisher) appendTail(dst []byte) []byte {
	dst = msgp.AppendString(dst, "dp_rank")
	return msgp.AppendUint32(dst, r.rank)
}

func (r *rankPublisher) appendStored(dst []byte, eventID, parent uint64, hasParent bool, blocks []sim.Block) []byte {
	dst = r.appendHead(dst, eventID)
	dst = msgp.AppendMapHeader(dst, 1)
	dst = msgp.AppendString(dst, "stored")
	dst = msgp.AppendMapHeader(dst, 3)
	dst = msgp.AppendString(dst, "parent_hash")
	if hasParent {
		dst = msgp.AppendUint64(dst, parent)
	} else {
		dst = msgp.AppendNil(dst)
	}
	dst = msgp.AppendString(dst, "start_position")
	dst = msgp.AppendNil(dst)
	dst = msgp.AppendString(dst, "blocks")
	dst = msgp.AppendArrayHeader(dst, uint32(len(blocks)))
	for _, block := range blocks {
		dst = msgp.AppendMapHeader(dst, 3)
		dst = msgp.AppendString(dst, "block_hash")
		dst = msgp.AppendUint64(dst, block.Hash)
		dst = msgp.AppendString(dst, "tokens_hash")
		dst = msgp.AppendUint64(dst, block.Local)
		dst = msgp.AppendString(dst, "mm_extra_info")
		dst = msgp.AppendNil(dst)
	}
	return r.appendTail(dst)
}
