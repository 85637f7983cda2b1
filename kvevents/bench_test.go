package kvevents

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/kvindex"
	"signalbox/transport/zmq"
)

// cpuTime is what this process has used of all cores.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// nullSink takes everything.
type nullSink struct{}

func (nullSink) Apply(kvindex.Event) error { return nil }
func (nullSink) RemoveRank(kvindex.Rank)   {}
func (nullSink) RemoveWorker(uint64)       {}

// BenchmarkEvents sends events over real sockets, one in a message as workers do, each storing 16 blocks, or removing the 16 that
// were stored 64 events before: the publisher's side is in the figures, too. The first case leaves the index out.
func BenchmarkEvents(b *testing.B) {
	index, err := kvindex.New(kvindex.Options{Shards: 4})
	if err != nil {
		b.Fatal(err)
	}
	for name, sink := range map[string]Sink{"without an index": nullSink{}, "with the index": index} {
		b.Run(name, func(b *testing.B) { benchmarkEvents(b, sink) })
	}
}

func benchmarkEvents(b *testing.B, sink Sink) {
	const publishers, blocksOfEvent, behind = 8, 16, 64
	f := newFleet()
	worker := f.store.Open(mem.Options{})
	defer worker.Close(context.Background())
	s, err := Start(b.Context(), Options{Backend: f.frontend, Endpoint: testEndpoint, Queries: f, Sink: sink, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer f.close(s)
	type publisher struct {
		*fakeRank
		socket *zmq.Publisher
		ring   [behind][]uint64
	}
	var list [publishers]*publisher
	for i := range list {
		socket, err := zmq.Listen("127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer socket.Close()
		r := f.join(worker, uint32(i), uint64(i+1), false)
		r.channel.Transport.ZMQ = "tcp://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(socket.Port()))
		must(discovery.Republish(context.Background(), worker, r.channel))
		list[i] = &publisher{fakeRank: r, socket: socket}
	}
	for _, p := range list {
		for p.socket.Subscribers() == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	send := func(i int) {
		p := list[i%publishers]
		slot := &p.ring[i/publishers%behind]
		data := appendRemoved(*slot...)
		if len(*slot) > 0 {
			*slot = nil
		} else {
			blocks := make([]kvindex.Block, blocksOfEvent)
			for j := range blocks {
				blocks[j] = kvindex.Block{Hash: random.Uint64(), Local: random.Uint64()}
				*slot = append(*slot, blocks[j].Hash)
			}
			data = appendStored(0, blocks...)
		}
		p.eventID++
		payload := p.appendEvent([]byte{0x91}, p.eventID, kvindex.Device, data)
		envelope := pack(pairs{"publisher_id", int(p.publisherID), "sequence", int(p.sequence), "published_at", 1, "topic", KVEventsTopic, "payload", payload})
		p.socket.Publish([]byte(KVEventsTopic), binary.BigEndian.AppendUint64(nil, p.publisherID), binary.BigEndian.AppendUint64(nil, p.sequence),
			append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(envelope))), envelope...))
		p.sequence++
	}
	applied := func() int { c := s.Counters(); return int(c.Stored + c.Removed) }
	start, used := applied(), cpuTime()
	b.ReportAllocs()
	sent := 0
	for b.Loop() {
		send(sent)
		if sent++; sent%1000 == 0 { // not more than fits into the queues
			for applied()-start < sent-20000 {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	for applied()-start < sent {
		time.Sleep(100 * time.Microsecond)
	}
	b.ReportMetric(float64(cpuTime()-used)/float64(sent), "cpu-ns/event")
	if c := s.Counters(); c.Gaps+c.Malformed > 0 {
		b.Fatalf("%+v", c)
	}
}
