package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/inference"
	"signalbox/kvevents"
	"signalbox/kvindex"
	"signalbox/transport/tcp"
	"signalbox/worker/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var endpoint = discovery.EndpointID{Namespace: "dynamo", Component: "backend", Name: "generate"}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-ticker.C {
		if condition() {
			return
		}
	}
	t.Fatalf("it did not happen: %s", what)
}

// holding is what a rank holds: the local hash and the parent by block hash.
type holding map[uint64]heldBlock

// books is a sink that keeps plain maps and takes nothing that isn't right.
type books struct {
	mu    sync.Mutex
	ranks map[kvindex.Rank]holding
}

func (b *books) Apply(event kvindex.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	rank := b.ranks[event.Rank]
	if rank == nil {
		rank = holding{}
		b.ranks[event.Rank] = rank
	}
	parent, hasParent := event.Parent, event.HasParent
	for _, block := range event.Blocks {
		if _, known := rank[parent]; hasParent && !known {
			return kvindex.ErrUnknownParent
		}
		rank[block.Hash] = heldBlock{parent, hasParent, block.Local}
		parent, hasParent = block.Hash, true
	}
	for _, hash := range event.Hashes {
		if _, known := rank[hash]; !known {
			return kvindex.ErrUnknownBlock
		}
		delete(rank, hash)
	}
	return nil
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

func (b *books) equal(rank kvindex.Rank, want holding) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Equal(b.ranks[rank], want)
}

// stage is a worker's process and a frontend's.
type stage struct {
	store           mem.Store
	backend         *mem.Backend
	server          *tcp.Server
	publisher       *EventPublisher
	frontend        *mem.Backend
	client          *tcp.Client
	closedPublisher bool
}

func newStage(t *testing.T, ranks int) *stage {
	t.Helper()
	s := &stage{}
	s.backend, s.frontend = s.store.Open(mem.Options{}), s.store.Open(mem.Options{})
	quiet := slog.New(slog.DiscardHandler)
	var err error
	if s.server, err = tcp.NewServer(tcp.Options{Host: "127.0.0.1"}, quiet); err != nil {
		t.Fatal(err)
	}
	if s.client, err = tcp.NewClient(tcp.Options{Host: "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	s.publisher, err = StartEvents(t.Context(), EventOptions{Backend: s.backend, Endpoint: endpoint, Server: s.server, Ranks: ranks})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if !s.closedPublisher {
			_ = s.publisher.Close(ctx)
		}
		_ = s.client.Close()
		_ = s.server.Close()
		_ = s.backend.Close(ctx)
		_ = s.frontend.Close(ctx)
	})
	return s
}

func (s *stage) subscribe(t *testing.T, sink kvevents.Sink, load func(kvevents.Load)) *kvevents.Subscriber {
	t.Helper()
	subscriber, err := kvevents.Start(t.Context(), kvevents.Options{Backend: s.frontend, Endpoint: endpoint, Queries: s.client, Sink: sink, Load: load,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(subscriber.Close)
	return subscriber
}

func (s *stage) rank(rank uint32) kvindex.Rank {
	return kvindex.Rank{WorkerID: s.backend.InstanceID(), DPRank: rank}
}

// truth is what a rank of the publisher holds.
func (s *stage) truth(rank int) holding {
	r := s.publisher.ranks[rank]
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.held)
}

// chain makes blocks that begin with the given hash.
func chain(first uint64, count int) []sim.Block {
	blocks := make([]sim.Block, count)
	for i := range blocks {
		blocks[i] = sim.Block{Hash: first + uint64(i), Local: (first + uint64(i)) * 7}
	}
	return blocks
}

func TestSubscribersKnowWhatTheWorkerHolds(t *testing.T) {
	s := newStage(t, 2)
	s.publisher.Stored(0, 0, false, chain(100, 5)) // before anybody listens
	early := &books{ranks: map[kvindex.Rank]holding{}}
	subscriber := s.subscribe(t, early, nil)
	if err := subscriber.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.publisher.ranks { // a socket learns of a subscription a moment after the subscriber has sent it
		eventually(t, "the socket knows of its subscriber", func() bool { return r.channel.outlet.(zmqOutlet).socket.Subscribers() == 1 })
	}
	for n := range 3000 {
		first := uint64(1000 + 10*n)
		s.publisher.Stored(0, 102, true, chain(first, 3))
		s.publisher.Stored(1, 0, false, chain(first, 2))
		s.publisher.Removed(n%2, []uint64{first + 1})
		if n%2 == 0 {
			s.publisher.Removed(0, []uint64{first + 2})
		}
	}
	late := &books{ranks: map[kvindex.Rank]holding{}}
	s.subscribe(t, late, nil)
	for rank := range 2 {
		for name, sink := range map[string]*books{"early": early, "late": late} {
			eventually(t, name+" knows all", func() bool { return sink.equal(s.rank(uint32(rank)), s.truth(rank)) })
		}
	}
	if counters := subscriber.Counters(); counters.Gaps != 0 || counters.Stored < 6001 {
		t.Errorf("%+v", counters)
	}
	s.closedPublisher = true
	if err := s.publisher.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the worker is forgotten", func() bool {
		early.mu.Lock()
		defer early.mu.Unlock()
		return len(early.ranks) == 0
	})
}

func TestLoadIsPublishedWhenItChanges(t *testing.T) {
	s := newStage(t, 1)
	loads := make(chan kvevents.Load, 100)
	s.subscribe(t, &books{ranks: map[kvindex.Rank]holding{}}, func(load kvevents.Load) { loads <- load })
	eventually(t, "the socket has a subscriber", func() bool { return s.publisher.metrics.outlet.(zmqOutlet).socket.Subscribers() == 1 })
	for _, used := range []int{0, 3, 3, 3, 5} {
		s.publisher.Load(0, used)
	}
	for _, used := range []uint64{0, 3, 5} {
		want := kvevents.Load{Rank: s.rank(0), UsedBlocks: kvevents.Figure{Value: used, Known: true}}
		if got := <-loads; got != want {
			t.Errorf("load %+v, want %+v", got, want)
		}
	}
}

// ask sends a recovery query in JSON, as a worker that does not name a codec is asked.
func (s *stage) ask(t *testing.T, query string) string {
	t.Helper()
	stream, err := s.client.SendValue(t.Context(), inference.Target{Address: s.publisher.records[1].(*discovery.Instance).Transport.TCP}, "q", []byte(query))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	output, err := stream.Next(t.Context())
	if err != nil {
		return err.Error()
	}
	return string(output.Body)
}

func TestRecoveryAnswers(t *testing.T) {
	s := newStage(t, 1)
	id := s.backend.InstanceID()
	event := func(eventID int, data string) string {
		return fmt.Sprintf(`{"worker_id":%d,"storage_tier":"device","residency_domain":"worker","event":{"event_id":%d,"data":%s,"dp_rank":0}}`, id, eventID, data)
	}
	block := func(hash int) string {
		return fmt.Sprintf(`{"block_hash":%d,"tokens_hash":%d,"mm_extra_info":null}`, hash, 7*hash)
	}
	stored := func(parent, blocks string) string {
		return fmt.Sprintf(`{"stored":{"parent_hash":%s,"start_position":null,"blocks":[%s]}}`, parent, blocks)
	}
	query := func(members string) string { return fmt.Sprintf(`{"worker_id":%d,"dp_rank":0,%s}`, id, members) }
	check := func(members, want string) {
		t.Helper()
		if got := s.ask(t, query(members)); got != want {
			t.Errorf("%s: got\n%s, want\n%s", members, got, want)
		}
	}
	check(`"start_event_id":1`, `{"TreeDump":{"events":[],"last_event_id":0,"reset_scope":"all"}}`)
	s.publisher.Stored(0, 0, false, chain(1, 2))
	s.publisher.Stored(0, 1, true, chain(11, 1))
	s.publisher.Stored(0, 11, true, chain(12, 1))
	s.publisher.Removed(0, []uint64{2})
	all := `{"TreeDump":{"events":[` + event(1, stored("null", block(1)+","+block(11)+","+block(12))) + `],"last_event_id":4,"reset_scope":"all"}}`
	check(`"start_event_id":null,"end_event_id":null,"kind":"recovery","later":[1]`, all)
	check(`"start_event_id":0`, all)
	check(`"start_event_id":3,"end_event_id":3`, `{"Events":{"events":[`+event(3, stored("11", block(12)))+","+event(4, `{"removed":{"block_hashes":[2]}}`)+`],"last_event_id":4}}`)
	check(`"start_event_id":5`, `{"TooNew":{"requested_start":5,"requested_end":4,"newest_available":4}}`)
	check(`"start_event_id":5,"end_event_id":2`, `{"InvalidRange":{"start_id":5,"end_id":2}}`)
	check(`"kind":"status"`, `{"Error":"query kind \"status\" is not supported"}`)
	if got, want := s.ask(t, `{"worker_id":1,"dp_rank":0}`), fmt.Sprintf(`{"Error":"worker_id mismatch: the query names 1, this worker is %d"}`, id); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := s.ask(t, fmt.Sprintf(`{"worker_id":%d,"dp_rank":7}`, id)); got != `{"Error":"dp_rank mismatch: the query names 7, this endpoint is of rank 0"}` {
		t.Errorf("got %s", got)
	}
	if got := s.ask(t, `[]`); !strings.Contains(got, `"event":"error"`) || !strings.Contains(got, "recovery query: msgp") {
		t.Errorf("got %s", got)
	}
	for range recentEvents {
		s.publisher.Stored(0, 12, true, chain(13, 1))
	}
	if got := s.ask(t, query(`"start_event_id":4`)); got[:len(`{"TreeDump"`)] != `{"TreeDump"` {
		t.Errorf("an event that is no longer there: %.100s", got)
	}
	if got := s.ask(t, query(`"start_event_id":5`)); got[:len(`{"Events"`)] != `{"Events"` {
		t.Errorf("the oldest event that is there: %.100s", got)
	}
}

// TestDumpsRebuildWhatIsHeld stores and removes at random, leaves first as engines do, and rebuilds from the dump.
func TestDumpsRebuildWhatIsHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &rankPublisher{workerID: 9, held: make(map[uint64]heldBlock), channel: &channel{}}
		held := holding{}
		steps := rapid.IntRange(1, 3000).Draw(t, "steps")
		draw := rapid.Uint64Range(0, 40)
		random := draw.Draw(t, "seed")
		next := func(n uint64) uint64 {
			random = random*6364136223846793005 + 1442695040888963407
			return (random >> 33) % n
		}
		for range steps {
			hash := next(40)
			_, known := held[hash]
			switch parent := hash / 2; {
			case known:
				if _, left := held[2*hash]; left {
					continue
				}
				if _, right := held[2*hash+1]; right && hash != 0 {
					continue
				}
				delete(held, hash)
				delete(r.held, hash)
			case hash < 2:
				held[hash] = heldBlock{local: 7 * hash}
				r.note(0, false, []sim.Block{{Hash: hash, Local: 7 * hash}})
			default:
				if _, ok := held[parent]; !ok {
					continue
				}
				held[hash] = heldBlock{parent, true, 7 * hash}
				r.note(parent, true, []sim.Block{{Hash: hash, Local: 7 * hash}})
			}
		}
		var batch kvevents.Batch
		dump := r.appendDump(nil)
		at := slices.Index(dump, 's') // the end of "events"
		for string(dump[at-5:at+1]) != "events" {
			at++
		}
		end := len(dump)
		for string(dump[end-len("\xadlast_event_id"):end]) != "\xadlast_event_id" {
			end--
		}
		if err := batch.Decode(dump[at+1 : end-len("\xadlast_event_id")]); err != nil {
			t.Fatal(err)
		}
		sink := &books{ranks: map[kvindex.Rank]holding{{WorkerID: 9}: {}}}
		for _, event := range batch.Events {
			if err := sink.Apply(event.Change); err != nil {
				t.Fatalf("event %+v: %v", event, err)
			}
		}
		if !sink.equal(kvindex.Rank{WorkerID: 9}, held) {
			t.Fatalf("rebuilt %v, want %v", sink.ranks, held)
		}
		if len(r.order) > max(1024, 2*len(held))+1 {
			t.Fatalf("%d hashes are remembered for %d blocks", len(r.order), len(held))
		}
	})
}
