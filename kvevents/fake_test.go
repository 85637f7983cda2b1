package kvevents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/inference"
	"signalbox/internal/packed"
	"signalbox/kvindex"
	"signalbox/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testEndpoint = discovery.EndpointID{Namespace: "dynamo", Component: "backend", Name: "generate"}

// place is a block in its tier.
type place struct {
	tier kvindex.Tier
	hash uint64
}

// holding is what a rank holds: parent (0 for none) and local hash.
type holding map[place][2]uint64

// books is a sink of plain maps. With strict set it notes every event that a publisher's own order makes impossible.
type books struct {
	mu       sync.Mutex
	ranks    map[kvindex.Rank]holding
	problems []string
}

func newBooks() *books { return &books{ranks: make(map[kvindex.Rank]holding)} }

func (b *books) Apply(event kvindex.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	rank := b.ranks[event.Rank]
	if rank == nil {
		rank = holding{}
		b.ranks[event.Rank] = rank
	}
	if event.Op == kvindex.Cleared {
		clear(rank)
	}
	parent := uint64(0)
	if event.HasParent {
		parent = event.Parent
	}
	for _, block := range event.Blocks {
		if _, known := rank[place{event.Tier, parent}]; parent != 0 && !known {
			b.problems = append(b.problems, fmt.Sprintf("block %d below %d, which is not there", block.Hash, parent))
			return kvindex.ErrUnknownParent
		}
		if _, known := rank[place{event.Tier, block.Hash}]; known {
			b.problems = append(b.problems, fmt.Sprintf("block %d is stored twice", block.Hash))
		}
		rank[place{event.Tier, block.Hash}] = [2]uint64{parent, block.Local}
		parent = block.Hash
	}
	var err error
	for _, hash := range event.Hashes {
		if _, known := rank[place{event.Tier, hash}]; !known {
			b.problems = append(b.problems, fmt.Sprintf("block %d is removed and not there", hash))
			err = kvindex.ErrUnknownBlock
		}
		delete(rank, place{event.Tier, hash})
	}
	return err
}

func (b *books) RemoveRank(rank kvindex.Rank) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ranks, rank)
}

func (b *books) RemoveWorker(workerID uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.ranks, func(rank kvindex.Rank, _ holding) bool { return rank.WorkerID == workerID })
}

func (b *books) of(rank kvindex.Rank) holding {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.ranks[rank])
}

// fleet is a store with a frontend's backend, an event plane and a request plane, all in memory.
type fleet struct {
	store    mem.Store
	frontend *mem.Backend
	mu       sync.Mutex
	ranks    map[uint64]*fakeRank // by publisher
	// querying is told of each query and may refuse it or take its time.
	querying func(ctx context.Context, since *uint64) error
	queries  int
}

func newFleet() *fleet {
	f := &fleet{ranks: make(map[uint64]*fakeRank)}
	f.frontend = f.store.Open(mem.Options{})
	return f
}

// fakeRank is the publisher of one rank, and what the rank holds.
type fakeRank struct {
	fleet       *fleet
	backend     *mem.Backend
	rank        kvindex.Rank
	publisherID uint64
	channel     *discovery.EventChannel
	source      *discovery.EventSource

	mu       sync.Mutex
	held     holding
	order    []place // of first arrival, some gone
	eventID  uint64  // of the last event; the first one is 1
	sequence uint64
	recent   [][]byte // encoded events, the newest last
	keep     int      // how many
	out      chan any // Envelope, or error for a failed connection; nil: not connected
	legacy   bool     // no residency_domain
}

// join registers the publisher of a rank that holds a chain of blocks already.
func (f *fleet) join(worker *mem.Backend, dpRank uint32, publisherID uint64, recoverable bool, hashes ...uint64) *fakeRank {
	r := &fakeRank{fleet: f, backend: worker, rank: kvindex.Rank{WorkerID: worker.InstanceID(), DPRank: dpRank}, publisherID: publisherID, held: holding{}, keep: 8}
	f.mu.Lock()
	f.ranks[publisherID] = r
	f.mu.Unlock()
	scope := discovery.EndpointScope(testEndpoint)
	r.channel = &discovery.EventChannel{Scope: scope, Topic: KVEventsTopic, PublisherID: publisherID, Transport: discovery.EventTransport{ZMQ: fmt.Sprintf("tcp://%d", publisherID)}}
	r.source = &discovery.EventSource{Scope: scope, Topic: KVEventsTopic, PublisherID: publisherID, Metadata: discovery.SourceMetadata{KVStateEndpoint: testEndpoint,
		Worker: discovery.SourceWorker{WorkerID: r.rank.WorkerID, Rank: dpRank}, PublisherID: publisherID}}
	if recoverable {
		r.source.Metadata.RecoveryTarget = &discovery.Instance{Namespace: "dynamo", Component: "backend", Endpoint: "worker_kv_query_source_" + discovery.FormatID(publisherID),
			InstanceID: r.rank.WorkerID, Transport: discovery.Transport{TCP: fmt.Sprintf("host:1/%d", publisherID)}, Codec: "msgpack"}
		if publisherID%2 == 0 { // a worker that does not name a codec wants JSON
			r.source.Metadata.RecoveryTarget.Codec = ""
		}
	}
	if len(hashes) > 0 {
		r.store(kvindex.Device, 0, hashes...)
	}
	must(discovery.Publish(context.Background(), worker, r.channel))
	must(discovery.Publish(context.Background(), worker, r.source))
	return r
}

func (r *fakeRank) leave() {
	must(discovery.Withdraw(context.Background(), r.backend, r.source))
	must(discovery.Withdraw(context.Background(), r.backend, r.channel))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func must2[T any](value T, err error) T {
	must(err)
	return value
}

// Receive implements Plane.
func (f *fleet) Receive(ctx context.Context, channel *discovery.EventChannel, receiver Receiver) error {
	f.mu.Lock()
	r := f.ranks[channel.PublisherID]
	f.mu.Unlock()
	for ctx.Err() == nil {
		out := make(chan any, 10000)
		r.mu.Lock()
		r.out = out
		r.mu.Unlock()
		receiver.Connected()
		for connected := true; connected; {
			select {
			case <-ctx.Done():
				return nil
			case item := <-out:
				switch item := item.(type) {
				case Envelope:
					receiver.Message(item)
				case error:
					receiver.Lost(item)
					connected = false
				}
			}
		}
		sleep(ctx, 100*time.Millisecond)
	}
	return nil
}

// disconnect ends the subscriber's connection; what is published until it is back is lost.
func (r *fakeRank) disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out != nil {
		r.out <- io.ErrUnexpectedEOF
		r.out = nil
	}
}

// deliver hands a message to the subscriber.
func (r *fakeRank) deliver(envelope Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out != nil {
		r.out <- envelope
	}
}

func (r *fakeRank) appendEvent(dst []byte, id uint64, tier kvindex.Tier, data func([]byte) []byte) []byte {
	members := uint32(4)
	if r.legacy {
		members = 3
	}
	dst = msgp.AppendMapHeader(dst, members)
	dst = msgp.AppendUint64(msgp.AppendString(dst, "worker_id"), r.rank.WorkerID)
	dst = msgp.AppendString(msgp.AppendString(dst, "storage_tier"), tier.String())
	if !r.legacy {
		dst = msgp.AppendString(msgp.AppendString(dst, "residency_domain"), "worker")
	}
	dst = msgp.AppendMapHeader(msgp.AppendString(dst, "event"), 3)
	dst = msgp.AppendUint64(msgp.AppendString(dst, "event_id"), id)
	dst = data(msgp.AppendString(dst, "data"))
	return msgp.AppendUint32(msgp.AppendString(dst, "dp_rank"), r.rank.DPRank)
}

func appendStored(parent uint64, blocks ...kvindex.Block) func([]byte) []byte {
	return func(dst []byte) []byte {
		dst = msgp.AppendMapHeader(msgp.AppendString(msgp.AppendMapHeader(dst, 1), "stored"), 2)
		dst = msgp.AppendString(dst, "parent_hash")
		if parent == 0 {
			dst = msgp.AppendNil(dst)
		} else {
			dst = msgp.AppendUint64(dst, parent)
		}
		dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "blocks"), uint32(len(blocks)))
		for _, block := range blocks {
			dst = msgp.AppendMapHeader(dst, 2)
			dst = msgp.AppendUint64(msgp.AppendString(dst, "block_hash"), block.Hash)
			dst = msgp.AppendUint64(msgp.AppendString(dst, "tokens_hash"), block.Local)
		}
		return dst
	}
}

func appendRemoved(hashes ...uint64) func([]byte) []byte {
	return func(dst []byte) []byte {
		dst = msgp.AppendMapHeader(msgp.AppendString(msgp.AppendMapHeader(dst, 1), "removed"), 1)
		dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "block_hashes"), uint32(len(hashes)))
		for _, hash := range hashes {
			dst = msgp.AppendUint64(dst, hash)
		}
		return dst
	}
}

func appendCleared(dst []byte) []byte { return msgp.AppendString(dst, "cleared") }

// emit makes the next event; the caller holds mu.
func (r *fakeRank) emit(tier kvindex.Tier, data func([]byte) []byte) []byte {
	r.eventID++
	event := r.appendEvent(nil, r.eventID, tier, data)
	r.recent = append(r.recent, event)
	r.recent = r.recent[max(0, len(r.recent)-r.keep):]
	return event
}

// store stores blocks below a parent (0: from the start).
func (r *fakeRank) store(tier kvindex.Tier, parent uint64, hashes ...uint64) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	var blocks []kvindex.Block
	link := parent
	for _, hash := range hashes {
		r.held[place{tier, hash}] = [2]uint64{link, hash * 3}
		r.order = append(r.order, place{tier, hash})
		blocks = append(blocks, kvindex.Block{Hash: hash, Local: hash * 3})
		link = hash
	}
	return r.emit(tier, appendStored(parent, blocks...))
}

func (r *fakeRank) remove(tier kvindex.Tier, hashes ...uint64) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, hash := range hashes {
		delete(r.held, place{tier, hash})
	}
	return r.emit(tier, appendRemoved(hashes...))
}

func (r *fakeRank) clear() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.held)
	return r.emit(kvindex.Device, appendCleared)
}

// envelope wraps events into the next message.
func (r *fakeRank) envelope(events ...[]byte) Envelope {
	r.mu.Lock()
	defer r.mu.Unlock()
	envelope := Envelope{PublisherID: r.publisherID, Sequence: r.sequence, PublishedAt: uint64(time.Now().UnixMilli()),
		Payload: append(msgp.AppendArrayHeader(nil, uint32(len(events))), slices.Concat(events...)...)}
	r.sequence++
	return envelope
}

// publish sends events in one message.
func (r *fakeRank) publish(events ...[]byte) { r.deliver(r.envelope(events...)) }

// restart makes the publisher begin anew with nothing.
func (r *fakeRank) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.held)
	r.order, r.recent, r.sequence, r.eventID = nil, nil, 0, 0
}

func (r *fakeRank) truth() holding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.held)
}

// answer answers a recovery query.
func (r *fakeRank) answer(since *uint64) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	newest := r.eventID
	head := func(kind string, members uint32) []byte {
		return msgp.AppendMapHeader(msgp.AppendString(msgp.AppendMapHeader(nil, 1), kind), members)
	}
	switch {
	case since == nil || r.eventID == 0 || *since+uint64(len(r.recent)) <= newest:
		dst := head("TreeDump", 3)
		dst = msgp.AppendString(dst, "events")
		dst = msgp.AppendArrayHeader(dst, uint32(len(r.held)))
		seen := make(map[place]bool)
		for _, p := range r.order {
			block, ok := r.held[p]
			if !ok || seen[p] {
				continue
			}
			seen[p] = true
			dst = r.appendEvent(dst, 1e6, p.tier, appendStored(block[0], kvindex.Block{Hash: p.hash, Local: block[1]}))
		}
		dst = msgp.AppendUint64(msgp.AppendString(dst, "last_event_id"), newest)
		return msgp.AppendString(msgp.AppendString(dst, "reset_scope"), "all")
	case *since > newest:
		dst := head("TooNew", 3)
		dst = msgp.AppendUint64(msgp.AppendString(dst, "requested_start"), *since)
		dst = msgp.AppendNil(msgp.AppendString(dst, "requested_end"))
		return msgp.AppendUint64(msgp.AppendString(dst, "newest_available"), newest)
	}
	events := r.recent[len(r.recent)-int(newest-*since+1):]
	dst := msgp.AppendArrayHeader(msgp.AppendString(head("Events", 2), "events"), uint32(len(events)))
	dst = append(dst, slices.Concat(events...)...)
	return msgp.AppendUint64(msgp.AppendString(dst, "last_event_id"), newest)
}

// SendValue implements Queries.
func (f *fleet) SendValue(ctx context.Context, target inference.Target, _ string, body []byte) (inference.Stream, error) {
	var publisherID uint64
	if _, err := fmt.Sscanf(target.Address, "host:1/%d", &publisherID); err != nil {
		return nil, err
	}
	if target.Codec == inference.JSON {
		var err error
		if body, err = wire.AppendMessagePack(nil, body); err != nil {
			return nil, err
		}
	}
	var since *uint64
	if _, err := packed.Each(body, func(key, value []byte) ([]byte, error) {
		if string(key) == "start_event_id" && !msgp.IsNil(value) {
			id, _, _ := readUint(value)
			since = &id
		}
		return msgp.Skip(value)
	}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	r := f.ranks[publisherID]
	f.queries++
	querying := f.querying
	f.mu.Unlock()
	if querying != nil {
		if err := querying(ctx, since); err != nil {
			return nil, err
		}
	}
	answer := r.answer(since)
	if target.Codec == inference.JSON {
		return &oneAnswer{body: must2(wire.AppendJSON(nil, answer))}, nil
	}
	return &oneAnswer{body: answer}, nil
}

// oneAnswer is a stream of one item.
type oneAnswer struct{ body []byte }

func (a *oneAnswer) Next(context.Context) (*inference.Output, error) {
	if a.body == nil {
		return nil, io.EOF
	}
	body := a.body
	a.body = nil
	return &inference.Output{Body: body}, nil
}

func (a *oneAnswer) Buffered() bool { return false }
func (a *oneAnswer) Close() error   { return nil }

// start subscribes to the fleet.
func (f *fleet) start(t *testing.T, sink Sink, change func(*Options)) *Subscriber {
	t.Helper()
	options := Options{Backend: f.frontend, Endpoint: testEndpoint, Plane: f, Queries: f, Sink: sink, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&options)
	}
	s, err := Start(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// close ends all that runs.
func (f *fleet) close(s *Subscriber, workers ...*mem.Backend) {
	s.Close()
	for _, worker := range workers {
		_ = worker.Close(context.Background())
	}
	_ = f.frontend.Close(context.Background())
}

var errRefused = errors.New("refused")
