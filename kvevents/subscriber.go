package kvevents

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"signalbox/discovery"
	"signalbox/kvindex"
)

// Topics of the event plane that workers publish under their endpoint.
const (
	// KVEventsTopic carries what the caches store and remove: one publisher for each rank.
	KVEventsTopic = "kv-events"
	// LoadTopic carries load reports.
	LoadTopic = "kv_metrics"
)

// Sink is told what ranks hold. *kvindex.Index is one. Calls for one rank come one after the other, calls for different ranks
// at the same time.
type Sink interface {
	// Apply changes what a rank holds. It must not keep the event's slices. Errors are counted by reason and otherwise ignored:
	// what a publisher says about blocks that nobody knows cannot be helped.
	Apply(event kvindex.Event) error
	// RemoveRank forgets all that a rank holds.
	RemoveRank(rank kvindex.Rank)
	// RemoveWorker forgets all ranks of a worker.
	RemoveWorker(workerID uint64)
}

// Options describe a subscriber. Backend, Endpoint, Queries and Sink must be set.
type Options struct {
	// Backend is where channels and sources of events are looked for.
	Backend discovery.Backend
	// Endpoint is the one that the events are about: the workers' own, unless their cards name another KV state endpoint.
	Endpoint discovery.EndpointID
	// Plane carries the events; nil means ZMQ.
	Plane Plane
	// Queries carries recovery queries: the request plane's client.
	Queries Queries
	Sink    Sink
	// Load is called for each load report, from several goroutines; nil: load reports are not subscribed to.
	Load func(Load)
	// Threads bounds how many messages are applied at the same time (--router-event-threads); 0 means 4.
	Threads int
	// MaxQueries bounds the recovery queries under way at the same time; 0 means 32.
	MaxQueries int
	// Logger is told of what an operator should know; nil means slog.Default.
	Logger *slog.Logger

	pace pace
}

// Subscriber keeps a sink equal to what the workers of an endpoint say. All methods may be called from several goroutines.
type Subscriber struct {
	options  Options
	counters counters
	threads  chan struct{}
	asking   chan struct{}
	cancel   context.CancelFunc
	done     sync.WaitGroup
	changed  changes

	mu       sync.Mutex
	channels map[uint64]*discovery.EventChannel // by publisher
	sources  map[uint64]*discovery.EventSource  // by publisher
	ranks    map[kvindex.Rank]*rankEntry
	expected map[kvindex.Rank]time.Time // since when
	reported map[uint64]bool            // silent workers that were named
	left     map[uint64]bool            // workers that have left while their publishers stay
	synced   int                        // watches that have delivered what there was
}

// rankEntry is what discovery says of a rank, and the feed when there is one.
type rankEntry struct {
	publishers []uint64
	feed       *feed
}

// Start begins to follow the publishers of an endpoint. Close ends it; the end of ctx does too, but does not wait.
//
// The sink is empty of a rank until the rank's publisher has been found, connected to, and asked for all that it holds: a moment
// after its worker appears. WaitSynced waits for that. A router tells the subscriber by Expect which ranks it routes to, so that
// workers that publish nothing are found out.
func Start(ctx context.Context, options Options) (*Subscriber, error) {
	switch {
	case options.Backend == nil || options.Queries == nil || options.Sink == nil:
		return nil, fmt.Errorf("KV events of %s: Backend, Queries and Sink must be set", options.Endpoint)
	case options.Threads < 0 || options.MaxQueries < 0:
		return nil, fmt.Errorf("KV events of %s: %d threads and %d queries; neither may be negative", options.Endpoint, options.Threads, options.MaxQueries)
	}
	if options.Plane == nil {
		options.Plane = ZMQ{}
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	options.Logger = options.Logger.With("endpoint", options.Endpoint.String())
	if options.pace == (pace{}) {
		options.pace = defaultPace
	}
	s := &Subscriber{
		options: options,
		threads: make(chan struct{}, cmp.Or(options.Threads, 4)), asking: make(chan struct{}, cmp.Or(options.MaxQueries, 32)),
		channels: make(map[uint64]*discovery.EventChannel), sources: make(map[uint64]*discovery.EventSource),
		ranks: make(map[kvindex.Rank]*rankEntry), expected: make(map[kvindex.Rank]time.Time), reported: make(map[uint64]bool), left: make(map[uint64]bool),
	}
	ctx, s.cancel = context.WithCancel(ctx)
	prefix := discovery.EventPrefix(discovery.EndpointScope(options.Endpoint), KVEventsTopic)
	channels, err := options.Backend.Watch(ctx, discovery.EventChannels, prefix)
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("watch the event channels of %s: %w", options.Endpoint, err)
	}
	sources, err := options.Backend.Watch(ctx, discovery.EventSources, prefix)
	if err != nil {
		s.cancel()
		for range channels { // until it closes
		}
		return nil, fmt.Errorf("watch the event sources of %s: %w", options.Endpoint, err)
	}
	s.done.Go(func() { s.manage(ctx, channels, sources) })
	if options.Load != nil {
		s.done.Go(func() {
			followLoad(ctx, options.Backend, options.Plane, options.Endpoint, options.Logger, options.Load, &s.counters)
		})
	}
	return s, nil
}

// Close stops listening and removes all that the sink knows from here.
func (s *Subscriber) Close() {
	s.cancel()
	s.done.Wait()
}

// manage follows discovery until its watches end.
func (s *Subscriber) manage(ctx context.Context, channels, sources <-chan discovery.Event) {
	ticker := time.NewTicker(s.options.pace.silence)
	defer ticker.Stop()
	for channels != nil || sources != nil {
		select {
		case event, ok := <-channels:
			if !ok {
				channels = nil
				continue
			}
			s.onChannel(ctx, event)
		case event, ok := <-sources:
			if !ok {
				sources = nil
				continue
			}
			s.onSource(ctx, event)
		case <-ticker.C:
			s.reportSilent()
		}
	}
	s.mu.Lock()
	entries := slices.Collect(maps.Values(s.ranks))
	s.mu.Unlock()
	for _, entry := range entries {
		if entry.feed != nil {
			entry.feed.cancel()
		}
	}
	for _, entry := range entries {
		if entry.feed != nil {
			entry.feed.stop()
		}
	}
}

func (s *Subscriber) onSynced() {
	s.mu.Lock()
	s.synced++
	s.mu.Unlock()
	s.changed.broadcast()
}

func (s *Subscriber) onChannel(ctx context.Context, event discovery.Event) {
	record, ok := event.Record.(*discovery.EventChannel)
	if !ok {
		if event.Kind == discovery.Synced {
			s.onSynced()
		}
		return
	}
	id := record.PublisherID
	s.mu.Lock()
	if event.Kind == discovery.Put {
		s.channels[id] = record
	} else {
		delete(s.channels, id)
	}
	source := s.sources[id]
	s.mu.Unlock()
	if source != nil {
		s.reconcile(ctx, rankOf(source))
	}
}

func rankOf(source *discovery.EventSource) kvindex.Rank {
	return kvindex.Rank{WorkerID: source.Metadata.Worker.WorkerID, DPRank: source.Metadata.Worker.Rank}
}

func (s *Subscriber) onSource(ctx context.Context, event discovery.Event) {
	record, ok := event.Record.(*discovery.EventSource)
	if !ok {
		if event.Kind == discovery.Synced {
			s.onSynced()
		}
		return
	}
	id := record.PublisherID
	if record.Metadata.PublisherID != id {
		s.options.Logger.Warn("an event source names two publishers; it is left out", "publisher", id, "metadata", record.Metadata.PublisherID)
		return
	}
	s.mu.Lock()
	old := s.sources[id]
	if event.Kind == discovery.Put {
		s.sources[id] = record
	} else {
		delete(s.sources, id)
	}
	if old != nil {
		entry := s.ranks[rankOf(old)]
		entry.publishers = slices.DeleteFunc(entry.publishers, func(p uint64) bool { return p == id })
	}
	if event.Kind == discovery.Put {
		entry := s.ranks[rankOf(record)]
		if entry == nil {
			entry = &rankEntry{}
			s.ranks[rankOf(record)] = entry
		}
		entry.publishers = append(entry.publishers, id)
		delete(s.reported, record.Metadata.Worker.WorkerID)
	}
	s.mu.Unlock()
	if old != nil && rankOf(old) != rankOf(record) {
		s.reconcile(ctx, rankOf(old))
	}
	s.reconcile(ctx, rankOf(record))
}

// reconcile starts or ends the feed of a rank as discovery has it. Only the managing goroutine calls it.
func (s *Subscriber) reconcile(ctx context.Context, rank kvindex.Rank) {
	s.mu.Lock()
	entry := s.ranks[rank]
	if entry == nil { // the end of a record that was never used
		s.mu.Unlock()
		return
	}
	var channel *discovery.EventChannel
	var target *discovery.Instance
	if len(entry.publishers) == 1 {
		channel = s.channels[entry.publishers[0]]
		target = s.sources[entry.publishers[0]].Metadata.RecoveryTarget
	}
	old := entry.feed
	if len(entry.publishers) > 1 {
		s.options.Logger.Warn("several publishers of KV events speak for one rank; its cache counts as empty until one is left",
			"worker", rank.WorkerID, "dp_rank", rank.DPRank, "publishers", entry.publishers)
	}
	s.mu.Unlock()
	if old != nil {
		if old.same(channel, target) {
			return
		}
		old.stop()
	}
	s.mu.Lock()
	entry.feed = nil
	if channel != nil && ctx.Err() == nil {
		entry.feed = s.startFeed(ctx, rank, channel, target)
	}
	last := false
	if len(entry.publishers) == 0 {
		delete(s.ranks, rank)
		last = true
		for other := range s.ranks {
			last = last && other.WorkerID != rank.WorkerID
		}
		if last {
			delete(s.left, rank.WorkerID)
		}
	}
	s.mu.Unlock()
	if last {
		s.options.Sink.RemoveWorker(rank.WorkerID)
	}
	s.changed.broadcast()
}

// same tells whether the feed has what discovery names.
func (f *feed) same(channel *discovery.EventChannel, target *discovery.Instance) bool {
	return channel != nil && channel.PublisherID == f.channel.PublisherID && equalTransports(channel.Transport, f.channel.Transport) &&
		(target == nil) == (f.target == nil) && (target == nil || *target == *f.target)
}

func equalTransports(a, b discovery.EventTransport) bool {
	return a.ZMQ == b.ZMQ && a.NATSSubjectPrefix == b.NATSSubjectPrefix && slices.Equal(a.BrokerXPUB, b.BrokerXPUB)
}
