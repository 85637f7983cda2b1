package kvevents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/kvindex"
)

// bubble runs a test with a fleet of one worker process on a clock of its own.
func bubble(t *testing.T, change func(*Options), test func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		worker := f.store.Open(mem.Options{})
		sink := newBooks()
		s := f.start(t, sink, change)
		defer f.close(s, worker)
		test(t, f, worker, s, sink)
	})
}

// expect checks the sink and the state of a rank once all is quiet.
func expect(t *testing.T, s *Subscriber, sink *books, r *fakeRank, state State) {
	t.Helper()
	synctest.Wait()
	if got, want := sink.of(r.rank), r.truth(); state == Live && !maps.Equal(got, want) {
		t.Errorf("the sink holds %v, the rank %v", got, want)
	}
	for _, status := range s.Status() {
		if status.Rank == r.rank && status.State == state {
			return
		}
	}
	t.Errorf("%+v, want %s", s.Status(), state)
}

func TestTwoPublishersForOneRankAreNotBelieved(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		first := f.join(worker, 0, 1, true, 1, 2)
		expect(t, s, sink, first, Live)
		second := f.join(worker, 0, 2, true, 7)
		expect(t, s, sink, first, Ambiguous)
		if len(sink.of(first.rank)) > 0 {
			t.Error("the rank does not count as empty")
		}
		first.leave()
		expect(t, s, sink, second, Live)
		second.leave()
		synctest.Wait()
		if len(s.Status())+len(sink.ranks) > 0 {
			t.Errorf("%v %v", s.Status(), sink.ranks)
		}
	})
}

func TestAWorkerThatLeavesIsForgotten(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		other := f.store.Open(mem.Options{})
		defer other.Close(context.Background())
		a, b, c := f.join(worker, 0, 1, true), f.join(worker, 1, 2, true), f.join(other, 0, 3, true)
		for _, r := range []*fakeRank{a, b, c} {
			r.publish(r.store(kvindex.Device, 0, 1), r.store(kvindex.HostPinned, 0, 1))
			expect(t, s, sink, r, Live)
		}
		a.leave()
		synctest.Wait()
		if len(sink.ranks) != 2 || sink.ranks[a.rank] != nil {
			t.Errorf("after one rank left: %v", sink.ranks)
		}
		_ = worker.Close(context.Background())
		a.publish(a.store(kvindex.Device, 1, 9))
		b.publish(b.store(kvindex.Device, 1, 9))
		synctest.Wait()
		if len(sink.ranks) != 1 || sink.ranks[c.rank] == nil {
			t.Errorf("after the worker left: %v", sink.ranks)
		}
	})
}

func TestWorkersThatPublishNothingAreNamed(t *testing.T) {
	var log bytes.Buffer
	bubble(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		s.Expect(4711, 0, 1)
		s.Expect(4712, 0)
		s.Expect(worker.InstanceID(), 0)
		f.join(worker, 0, 1, true)
		time.Sleep(5 * time.Second)
		if err := s.Silent(); err != nil {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		var silent *SilentError
		if err := s.Silent(); !errors.As(err, &silent) || len(silent.Ranks) != 3 || !strings.Contains(err.Error(), "worker 4711 rank 1, worker 4712 rank 0") {
			t.Errorf("%v", err)
		}
		if n := strings.Count(log.String(), "worker 4711 rank 0"); n != 1 || !strings.Contains(log.String(), "dynamo/backend/generate") {
			t.Errorf("named %d times: %s", n, log.String())
		}
		if status := s.Status(); len(status) != 4 || status[0].State != Silent || status[0].Rank.WorkerID != 4711 {
			t.Errorf("%+v", status)
		}
		s.Leave(4711)
		s.Leave(4712)
		if err := s.Silent(); err != nil {
			t.Errorf("after they left: %v", err)
		}
	})
}

func TestAWorkerThatComesBackIsAskedAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		r := f.join(worker, 0, 1, true, 1, 2)
		s.Expect(r.rank.WorkerID, 0)
		expect(t, s, sink, r, Live)
		s.Leave(r.rank.WorkerID) // its instance has gone, its publisher not yet
		sink.RemoveWorker(r.rank.WorkerID)
		r.publish(r.store(kvindex.Device, 0, 3))
		synctest.Wait()
		s.Expect(r.rank.WorkerID, 0)
		time.Sleep(time.Second)
		expect(t, s, sink, r, Live)
		if c := s.Counters(); c.Dumps != 2 {
			t.Errorf("%+v", c)
		}
		s.Leave(r.rank.WorkerID)
		r.leave()
		synctest.Wait()
		if len(s.left) > 0 {
			t.Error("a worker that has left for good is remembered")
		}
	})
}

func TestAPublisherWithoutAChannelIsSilent(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		r := f.join(worker, 0, 1, true)
		must(discovery.Withdraw(context.Background(), worker, r.channel))
		s.Expect(r.rank.WorkerID, 0)
		time.Sleep(time.Minute)
		expect(t, s, sink, r, Unreachable)
		if err := s.Silent(); err == nil || len(s.Status()) != 1 {
			t.Errorf("%v %+v", err, s.Status())
		}
		if err := s.WaitSynced(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestWithoutRecoveryAGapEmptiesTheRank(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		r := f.join(worker, 0, 1, false)
		synctest.Wait()
		r.publish(r.store(kvindex.Device, 0, 1))
		r.publish(r.store(kvindex.Device, 1, 2))
		expect(t, s, sink, r, Live)
		r.store(kvindex.Device, 1, 3) // lost
		r.publish(r.store(kvindex.Device, 0, 4))
		synctest.Wait()
		if got := sink.of(r.rank); !maps.Equal(got, holding{place{kvindex.Device, 4}: {0, 12}}) {
			t.Errorf("after the gap: %v", got)
		}
		r.disconnect()
		synctest.Wait()
		if got := sink.of(r.rank); len(got) != 0 {
			t.Errorf("without a connection: %v", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		r.restart()
		r.publish(r.store(kvindex.Device, 0, 5))
		expect(t, s, sink, r, Live)
		time.Sleep(time.Millisecond)
		r.restart()
		r.publish(r.store(kvindex.Device, 0, 6))
		expect(t, s, sink, r, Live)
		if c := s.Counters(); c.Gaps != 1 || c.Restarts != 1 || c.Disconnects != 1 || f.queries != 0 {
			t.Errorf("%+v, %d queries", c, f.queries)
		}
	})
}

func TestALegacyClearMakesARecoveryPointless(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		f.querying = func(ctx context.Context, _ *uint64) error { <-ctx.Done(); return ctx.Err() }
		r := f.join(worker, 0, 1, true)
		r.legacy = true
		synctest.Wait()
		r.publish(r.store(kvindex.Device, 0, 1))
		expect(t, s, sink, r, Joining)
		r.publish(r.clear(), r.store(kvindex.Device, 0, 2))
		expect(t, s, sink, r, Live)
	})
}

func TestWhatIsGivenUpIsTriedAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		f.querying = func(context.Context, *uint64) error { return errRefused }
		r := f.join(worker, 0, 1, true, 1)
		synctest.Wait()
		r.publish(r.store(kvindex.Device, 0, 2))
		expect(t, s, sink, r, Joining)
		time.Sleep(45 * time.Second)
		expect(t, s, sink, r, Degraded)
		if got := sink.of(r.rank); len(got) != 1 {
			t.Errorf("what came meanwhile: %v", got)
		}
		r.publish(r.store(kvindex.Device, 0, 3))
		synctest.Wait()
		if got := sink.of(r.rank); len(got) != 2 {
			t.Errorf("what came after: %v", got)
		}
		f.mu.Lock()
		f.querying = nil
		f.mu.Unlock()
		time.Sleep(time.Minute)
		expect(t, s, sink, r, Live)
		if c := s.Counters(); c.FailedQueries != 8 || c.FailedRecoveries != 1 || c.Dumps != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// TestTheFirstEventsOfASubscription loses the event that a publisher sent before it knew of the subscription; nothing follows it.
func TestTheFirstEventsOfASubscription(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		r := f.join(worker, 0, 1, true)
		expect(t, s, sink, r, Live)
		r.store(kvindex.Device, 0, 1, 2)
		time.Sleep(2 * time.Second)
		expect(t, s, sink, r, Live)
		time.Sleep(time.Hour)
		if f.queries != 2 { // and that is all: nobody polls
			t.Errorf("%d queries", f.queries)
		}
	})
}

func TestAPublisherThatBeginsWithEventZero(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		r := f.join(worker, 0, 1, true)
		synctest.Wait()
		r.eventID--
		r.publish(r.store(kvindex.Device, 0, 1))
		r.publish(r.store(kvindex.Device, 1, 2))
		expect(t, s, sink, r, Live)
		if c := s.Counters(); c.Stored != 2 || c.Gaps != 0 {
			t.Errorf("%+v", c)
		}
	})
}

func TestMessagesAboutOtherRanksAreDropped(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		r, other := f.join(worker, 0, 1, true), f.join(worker, 1, 2, true)
		synctest.Wait()
		r.publish(r.appendEvent(nil, 1, kvindex.Device, appendStored(0, kvindex.Block{Hash: 1, Local: 1})), other.appendEvent(nil, 2, kvindex.Device, appendCleared))
		synctest.Wait()
		if c := s.Counters(); c.Foreign != 1 || c.Stored+c.Cleared != 0 {
			t.Errorf("%+v", c)
		}
	})
}

func TestEventsOfNoUseCount(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		r := f.join(worker, 0, 1, true)
		synctest.Wait()
		r.publish(r.emit(kvindex.Device, func(dst []byte) []byte { return append(dst, pack(pairs{"moved", pairs{}})...) }))
		r.publish(r.store(kvindex.Device, 0, 1))
		expect(t, s, sink, r, Live)
		if c := s.Counters(); c.Unusable != 1 || c.Gaps != 0 || c.Stored != 1 || c.StoredBlocks != 1 {
			t.Errorf("%+v", c)
		}
	})
}

func TestAPublisherThatMovesIsFollowed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		r := f.join(worker, 0, 1, true, 1)
		expect(t, s, sink, r, Live)
		moved := *r.channel
		moved.Transport.ZMQ = "tcp://elsewhere:1"
		must(discovery.Republish(context.Background(), worker, &moved))
		expect(t, s, sink, r, Live)
		if c := s.Counters(); c.Dumps != 2 {
			t.Errorf("%+v", c)
		}
		must(discovery.Withdraw(context.Background(), worker, &moved))
		synctest.Wait()
		if len(sink.of(r.rank)) > 0 {
			t.Error("a rank without a channel does not count as empty")
		}
		must(discovery.Publish(context.Background(), worker, &moved))
		expect(t, s, sink, r, Live)
	})
}

func TestOnlySoManyQueriesAtOnce(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxQueries = 3 }, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		running, most := 0, 0
		f.querying = func(ctx context.Context, _ *uint64) error {
			f.mu.Lock()
			running++
			most = max(most, running)
			f.mu.Unlock()
			sleep(ctx, time.Second)
			f.mu.Lock()
			running--
			f.mu.Unlock()
			return nil
		}
		var ranks []*fakeRank
		for i := range 10 {
			ranks = append(ranks, f.join(worker, uint32(i), uint64(i+1), true, uint64(i+1)))
		}
		synctest.Wait() // all are found
		began := time.Now()
		if err := s.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		if took := time.Since(began); took != 4*time.Second || most != 3 {
			t.Errorf("%d queries at once, all done after %v", most, took)
		}
		f.mu.Unlock()
		for _, r := range ranks {
			expect(t, s, sink, r, Live)
		}
	})
}

// gatedSink holds calls back and counts those under way.
type gatedSink struct {
	*books
	gate          chan struct{}
	mu            sync.Mutex
	running, most int
}

func (s *gatedSink) count(by int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += by
	s.most = max(s.most, s.running)
	return s.running
}

func (s *gatedSink) Apply(event kvindex.Event) error {
	s.count(1)
	defer s.count(-1)
	<-s.gate
	return s.books.Apply(event)
}

func TestOnlySoManyThreads(t *testing.T) { // on the real clock: a call that is held back holds a lock
	f := newFleet()
	worker := f.store.Open(mem.Options{})
	sink := &gatedSink{books: newBooks(), gate: make(chan struct{})}
	s := f.start(t, sink, func(o *Options) { o.Threads = 2 })
	defer f.close(s, worker)
	var ranks []*fakeRank
	for i := range 5 {
		ranks = append(ranks, f.join(worker, uint32(i), uint64(i+1), true, 1, 2))
	}
	eventually(t, "two calls are under way", func() bool { return sink.count(0) == 2 })
	close(sink.gate)
	for _, r := range ranks {
		eventually(t, "the sink is equal", func() bool { return maps.Equal(sink.of(r.rank), r.truth()) })
	}
	s.Close()
	if sink.most != 2 {
		t.Errorf("%d at once", sink.most)
	}
}

// eventually waits on the real clock.
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

func TestCloseEndsAllAndEmptiesTheSink(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fleet, worker *mem.Backend, s *Subscriber, sink *books) {
		r := f.join(worker, 0, 1, true, 1)
		expect(t, s, sink, r, Live)
		f.mu.Lock()
		f.querying = func(ctx context.Context, _ *uint64) error { <-ctx.Done(); return ctx.Err() }
		f.mu.Unlock()
		f.join(worker, 1, 2, true)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.WaitSynced(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one rank is still joining: %v", err)
		}
		s.Close()
		if len(sink.ranks) > 0 {
			t.Errorf("the sink holds %v", sink.ranks)
		}
	})
}

func TestWhatCannotStart(t *testing.T) {
	f := newFleet()
	defer f.frontend.Close(context.Background())
	for want, options := range map[string]Options{
		"must be set":   {Backend: f.frontend, Endpoint: testEndpoint, Sink: newBooks()},
		"-1 threads":    {Backend: f.frontend, Endpoint: testEndpoint, Queries: f, Sink: newBooks(), Threads: -1},
		"and 1 queries": {Backend: f.frontend, Endpoint: testEndpoint, Queries: f, Sink: newBooks(), Threads: -1, MaxQueries: 1},
	} {
		if _, err := Start(t.Context(), options); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "dynamo/backend/generate") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_ = f.frontend.Close(context.Background())
	if _, err := Start(t.Context(), Options{Backend: f.frontend, Endpoint: testEndpoint, Queries: f, Sink: newBooks()}); !errors.Is(err, discovery.ErrClosed) {
		t.Errorf("%v", err)
	}
	channel := &discovery.EventChannel{Topic: "t", PublisherID: 5, Transport: discovery.EventTransport{NATSSubjectPrefix: "namespace.x"}}
	if err := (ZMQ{}).Receive(t.Context(), channel, Receiver{}); err == nil || !strings.Contains(err.Error(), "publisher 5") {
		t.Errorf("%v", err)
	}
}

// TestTheIndexFollows runs the same protocol with the index that the product uses.
func TestTheIndexFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index, err := kvindex.New(kvindex.Options{Shards: 2})
		if err != nil {
			t.Fatal(err)
		}
		f := newFleet()
		worker := f.store.Open(mem.Options{})
		s := f.start(t, index, nil)
		defer f.close(s, worker)
		r := f.join(worker, 3, 1, true, 1, 2, 3)
		synctest.Wait()
		r.publish(r.remove(kvindex.Device, 3), r.store(kvindex.HostPinned, 2, 3))
		synctest.Wait()
		var matches kvindex.Matches
		index.Find(&matches, kvindex.Query{Locals: []uint64{3, 6, 9}})
		if got := matches.Of(r.rank).Blocks; got != [kvindex.Tiers]uint32{2, 1} {
			t.Errorf("blocks by tier: %v", got)
		}
		r.leave()
		synctest.Wait()
		if total := index.Stats().Total(); total != 0 || len(index.Ranks()) != 0 {
			t.Errorf("%d blocks, ranks %v", total, index.Ranks())
		}
	})
}

func ExampleStart() {
	var store mem.Store
	backend := store.Open(mem.Options{})
	defer backend.Close(context.Background())
	index, _ := kvindex.New(kvindex.Options{Shards: 4})
	var client Queries = newFleet() // a *tcp.Client
	subscriber, err := Start(context.Background(), Options{
		Backend: backend, Endpoint: discovery.EndpointID{Namespace: "dynamo", Component: "backend", Name: "generate"},
		Queries: client, Sink: index,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscriber.Close()
	_ = subscriber.WaitSynced(context.Background())
	fmt.Println(subscriber.Counters().Dumps, "ranks were read whole")
	// Output: 0 ranks were read whole
}
