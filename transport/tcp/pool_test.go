package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/transport/wire"
)

// TestConnectionsAreReused sends requests one after the other: one connection serves them all.
func TestConnectionsAreReused(t *testing.T) {
	client, _ := pair(t, Options{})
	worker := answering(t, func(c *wire.Control) []byte { return join(begin(c), token(1), final(), sentinel()) }, false, nil)
	for range 20 {
		stream, err := client.Send(t.Context(), worker.target(), request(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(t, stream); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the acknowledgement is read, which an answer may overtake", func() bool { return unacknowledged(client, worker) == 0 })
	}
	if n := worker.accepted(); n != 1 {
		t.Errorf("%d connections for requests that came one by one", n)
	}
}

// unacknowledged is how many requests wait for the worker's acknowledgement.
func unacknowledged(c *Client, w *fakeWorker) (count int) {
	c.mu.Lock()
	p := c.pools[w.listener.Addr().String()]
	c.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		load, _ := l.load()
		count += load
	}
	return count
}

// TestABurstSharesConnections sends many requests at once to a worker that takes none of them until all are there.
func TestABurstSharesConnections(t *testing.T) {
	const requests, poolSize = 100, 5
	client, _ := pair(t, Options{PoolSize: poolSize})
	var arrived sync.WaitGroup
	arrived.Add(requests)
	worker := newFake(t, func(w *fakeWorker, conn net.Conn) {
		for {
			control := take(conn)
			if control == nil {
				return
			}
			arrived.Done()
			w.wait.Go(func() {
				arrived.Wait()
				if home := callHome(control); home != nil {
					defer home.Close()
					_, _ = home.Write(join(begin(control), token(1), final(), sentinel()))
					listenForWord(home)
				}
			})
		}
	})
	var wait sync.WaitGroup
	for range requests {
		wait.Go(func() {
			stream, err := client.Send(context.Background(), worker.target(), request(1))
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := stream.Next(context.Background()); err != nil {
				t.Error(err)
			}
			if _, err := stream.Next(context.Background()); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := worker.accepted(); n > poolSize {
		t.Errorf("%d connections, at most %d are allowed", n, poolSize)
	}
}

// TestAFailedDialFailsAllWhoWait sends a burst to an address where nobody listens.
func TestAFailedDialFailsAllWhoWait(t *testing.T) {
	client, _ := pair(t, Options{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := inference.Target{WorkerID: 9, Address: listener.Addr().String() + "/p"}
	listener.Close()
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			if _, err := client.Send(context.Background(), nobody, request(1)); inference.KindOf(err) != inference.CannotConnect {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	eventually(t, "nothing is remembered of the address", func() bool {
		client.mu.Lock()
		defer client.mu.Unlock()
		return len(client.pools) == 0
	})
}

// TestAnIdleConnectionThatDiedIsReplaced ends connections that had served before: the worker lives, and the client notices
// nothing.
func TestAnIdleConnectionThatDiedIsReplaced(t *testing.T) {
	client, _ := pair(t, Options{})
	const perConnection = 3
	worker := newFake(t, func(w *fakeWorker, conn net.Conn) {
		for served := 0; ; served++ {
			control := take(conn)
			if control == nil || served == perConnection {
				return // without a word, as when something between had dropped the connection
			}
			acknowledge(conn, "")
			home := callHome(control)
			if home == nil {
				return
			}
			_, _ = home.Write(join(begin(control), token(1), final(), sentinel()))
			listenForWord(home)
			home.Close()
		}
	})
	for i := range 10 {
		stream, err := client.Send(t.Context(), worker.target(), request(1))
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if _, err := readAll(t, stream); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if n := worker.accepted(); n != 4 {
		t.Errorf("%d connections for 10 requests at %d each", n, perConnection)
	}
}

// TestAddressesAreForgotten: workers come and go, and nothing may be left of those that went.
func TestAddressesAreForgotten(t *testing.T) {
	client, _ := pair(t, Options{})
	for range 5 {
		worker := answering(t, func(c *wire.Control) []byte { return join(begin(c), token(1), final(), sentinel()) }, false, nil)
		stream, err := client.Send(t.Context(), worker.target(), request(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(t, stream); err != nil {
			t.Fatal(err)
		}
		worker.stop()
	}
	eventually(t, "all addresses are forgotten", func() bool {
		client.mu.Lock()
		defer client.mu.Unlock()
		return len(client.pools) == 0 && len(client.running) == 0 && len(client.pending) == 0
	})
}

// TestOneDeadHostLeavesDialsToOthers fills a host that never answers with requests; another worker is reached all the same.
func TestOneDeadHostLeavesDialsToOthers(t *testing.T) {
	client, server := pair(t, Options{ConnectLimit: dialsPerHost + 1})
	server.Handle("p", counting(false, nil))
	// A listener whose backlog is full takes no further connections: dials hang.
	dead, full := deadHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for range 100 {
		wait.Go(func() { _, _ = client.Send(ctx, inference.Target{WorkerID: 9, Address: dead + "/p"}, request(1)) })
	}
	if full {
		eventually(t, "the dials hang", func() bool { return len(client.dials) == dialsPerHost })
	}
	stream, err := client.Send(t.Context(), target(server, "p", inference.MessagePack), request(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(t, stream); err != nil {
		t.Error(err)
	}
	cancel()
	wait.Wait()
}

// deadHost returns an address that accepts no connections and refuses none; false where the system has no such thing.
func deadHost(t *testing.T) (string, bool) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Skip(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Skip(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Skip(err)
	}
	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}).String()
	for range 16 {
		conn, err := net.DialTimeout("tcp", address, 50*time.Millisecond)
		if err != nil {
			return address, true
		}
		t.Cleanup(func() { conn.Close() })
	}
	return address, false
}

// TestLimits checks that what is too large is refused by the side that sends it, before anything leaves, and by the side that
// gets it.
func TestLimits(t *testing.T) {
	client, _ := pair(t, Options{MaxMessage: 4 << 10})
	generous, server := pair(t, Options{})
	server.options.MaxMessage = 4 << 10
	server.Handle("p", counting(false, nil))
	large := request(1)
	large.TokenIDs = make([]uint32, 8<<10)
	_, err := client.Send(t.Context(), target(server, "p", inference.MessagePack), large)
	if inference.KindOf(err) != inference.InvalidArgument || !strings.Contains(err.Error(), "the limit is 4096") {
		t.Errorf("own limit: %v", err)
	}
	if len(client.pools) != 0 {
		t.Error("a connection was made for a request that cannot be sent")
	}
	if _, err := generous.Send(t.Context(), target(server, "p", inference.MessagePack), large); inference.KindOf(err) != inference.CannotConnect {
		t.Errorf("the worker's limit: %v", err)
	}
	if _, err := generous.Send(t.Context(), target(server, "p", inference.MessagePack), request(1)); err != nil {
		t.Errorf("after that: %v", err)
	}
	if _, err := generous.Send(t.Context(), inference.Target{Address: server.Address()}, request(1)); inference.KindOf(err) != inference.CannotConnect {
		t.Errorf("an address without a path: %v", err)
	}
	talkative := request(1)
	talkative.Metadata = map[string]string{"a": strings.Repeat("\xff", wire.MaxControl/3)} // each becomes three bytes
	if _, err := generous.Send(t.Context(), target(server, "p", inference.MessagePack), talkative); inference.KindOf(err) != inference.InvalidArgument {
		t.Errorf("control JSON that a worker would drop: %v", err)
	}
	long := target(server, strings.Repeat("p", 1<<16), inference.MessagePack)
	if _, err := generous.Send(t.Context(), long, request(1)); inference.KindOf(err) != inference.InvalidArgument {
		t.Errorf("a path that no frame can hold: %v", err)
	}
}

// TestProbesAreTaken sends the body that probes of workers send: it names no model.
func TestProbesAreTaken(t *testing.T) {
	client, server := pair(t, Options{})
	got := make(chan *inference.Request, 1)
	server.Handle("p", Generate(func(_ context.Context, r *inference.Request) (inference.Stream, error) {
		got <- r
		return &once{}, nil
	}))
	for _, codec := range []inference.Codec{inference.JSON, inference.MessagePack} {
		stream, err := client.SendRaw(t.Context(), target(server, "p", codec), "probe",
			[]byte(`{"token_ids":[1],"stop_conditions":{"max_tokens":1,"ignore_eos":true},"sampling_options":{"temperature":0.0},"_HEALTH_CHECK":true}`))
		if err != nil {
			t.Fatal(err)
		}
		r := receive(t, "the request is there", got)
		if !r.HealthCheck || r.ID != "probe" || len(r.TokenIDs) != 1 || *r.Stop.MaxTokens != 1 || !*r.Stop.IgnoreEOS || *r.Sampling.Temperature != 0 {
			t.Errorf("%v: %+v", codec, r)
		}
		item, err := stream.Next(t.Context())
		if err != nil || !strings.Contains(string(item.Body), `"token_ids":[7]`) {
			t.Errorf("%v: %s, %v", codec, item.Body, err)
		}
		if _, err := stream.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
}

// once is an answer of one token.
type once struct{ done bool }

func (o *once) Next(context.Context) (*inference.Output, error) {
	if o.done {
		return nil, io.EOF
	}
	o.done = true
	return &inference.Output{TokenIDs: []uint32{7}, Finish: inference.FinishLength}, nil
}
func (o *once) Buffered() bool { return true }
func (o *once) Close() error   { return nil }

// TestBodiesThatCannotBeReadAreAnswered: the reference's workers never call home then, ours says what is wrong.
func TestBodiesThatCannotBeReadAreAnswered(t *testing.T) {
	client, server := pair(t, Options{})
	server.Handle("p", Generate(func(context.Context, *inference.Request) (inference.Stream, error) { return &once{}, nil }))
	stream, err := client.SendRaw(t.Context(), target(server, "p", inference.JSON), "r", []byte(`{"token_ids":"none"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(t.Context()); inference.KindOf(err) != inference.InvalidArgument || !strings.Contains(err.Error(), "an array was expected") {
		t.Error(err)
	}
}

// TestSilenceBetweenItemsEndsAStream plays a worker that stops in mid-stream without a word, as one whose machine has died.
func TestSilenceBetweenItemsEndsAStream(t *testing.T) {
	client, _ := pair(t, Options{IdleTimeout: 20 * time.Millisecond})
	heard := make(chan wire.ControlWord, 1)
	worker := answering(t, func(c *wire.Control) []byte { return join(begin(c), token(1)) }, false, heard)
	stream, err := client.Send(t.Context(), worker.target(), request(1))
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(t, stream)
	if inference.KindOf(err) != inference.ResponseTimeout || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if word := receive(t, "the worker is told", heard); word != wire.Kill {
		t.Errorf("the worker heard %q", word)
	}
}

// TestSmallMessagesAreNotHeldBack asks the system whether each of the plane's four kinds of socket sends at once (TCP_NODELAY):
// a token that waits for an acknowledgement waits 40 ms.
func TestSmallMessagesAreNotHeldBack(t *testing.T) {
	client, server := pair(t, Options{})
	workerHome := make(chan net.Conn, 1)
	hold := make(chan struct{})
	server.Handle("p", func(ctx context.Context, call *Call) error {
		workerHome <- call.conn
		<-hold
		return nil
	})
	sent, err := client.Send(t.Context(), target(server, "p", inference.MessagePack), request(1))
	if err != nil {
		t.Fatal(err)
	}
	defer sent.Close()
	defer close(hold)
	s := sent.(*stream)
	receive(t, "the worker calls home", s.home)
	conns := map[string]net.Conn{"worker, call home": receive(t, "the handler runs", workerHome), "frontend, call home": s.conn}
	client.mu.Lock()
	conns["frontend, requests"] = client.pools[server.Address()].links[0].conn
	client.mu.Unlock()
	server.mu.Lock()
	for conn := range server.conns {
		conns["worker, requests"] = conn
	}
	server.mu.Unlock()
	for name, conn := range conns {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			if value, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_NODELAY); err != nil || value == 0 {
				t.Errorf("%s: TCP_NODELAY is %d (error %v)", name, value, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(conns) != 4 {
		t.Errorf("%d kinds of socket were looked at", len(conns))
	}
}
