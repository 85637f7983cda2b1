package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/transport/wire"
)

// TestBrokenAnswers sends home what a worker should never send, and what an old or a new one may. Each gives one clear error of
// the right kind to the one request, and the worker is told that nobody listens any more.
func TestBrokenAnswers(t *testing.T) {
	huge := binary.BigEndian.AppendUint64(nil, 1<<40)
	huge = append(huge, make([]byte, 16)...)
	for name, test := range map[string]struct {
		home   func(*wire.Control) []byte
		hangUp bool
		tokens []uint32
		want   inference.Kind // "" for a clean end
	}{
		"clean":              {home: func(c *wire.Control) []byte { return join(begin(c), token(1), token(2), final(), sentinel()) }, tokens: []uint32{1, 2}},
		"clean, no sentinel": {home: func(c *wire.Control) []byte { return join(begin(c), token(1), final()) }, hangUp: true, tokens: []uint32{1}},
		"last token and end in one": {home: func(c *wire.Control) []byte {
			return join(begin(c), data("\x82\xa4data\x81\xa4data\x81\xa9token_ids\x91\x05\xaecomplete_final\xc3"))
		}, tokens: []uint32{5}},
		"words of a later version": {home: func(c *wire.Control) []byte {
			return join(begin(c), wire.AppendMessage(nil, []byte(`{"pace":1}`), nil), token(1), final())
		}, tokens: []uint32{1}},
		"items with unknown members": {home: func(c *wire.Control) []byte {
			return join(begin(c), data("\x82\xa3new\x93\x01\x02\x03\xa4data\x81\xa4data\x82\xa1x\xc0\xa9token_ids\x91\x05"), final())
		}, tokens: []uint32{5}},
		"prologue is no JSON": {home: func(c *wire.Control) []byte {
			return join(wire.AppendHandshake(nil, c.CallHome.Subject, wire.ResponseStream), wire.AppendMessage(nil, []byte("oops"), nil))
		}, want: inference.ProtocolViolation},
		"prologue reports a failure": {home: func(c *wire.Control) []byte {
			return wire.AppendPrologue(wire.AppendHandshake(nil, c.CallHome.Subject, wire.ResponseStream), inference.Errorf(inference.ResourceExhausted, "full"))
		}, want: inference.ResourceExhausted},
		"prologue with a text alone": {home: func(c *wire.Control) []byte {
			return join(wire.AppendHandshake(nil, c.CallHome.Subject, wire.ResponseStream), wire.AppendMessage(nil, []byte(`{"error":"no engine"}`), nil))
		}, want: inference.CannotConnect},
		"item is no MessagePack": {home: func(c *wire.Control) []byte { return join(begin(c), token(1), data("\xc1garbage")) }, tokens: []uint32{1}, want: inference.ProtocolViolation},
		"item is JSON":           {home: func(c *wire.Control) []byte { return join(begin(c), data(`{"data":{"data":{"token_ids":[1]}}}`)) }, want: inference.ProtocolViolation},
		"token ids are texts": {home: func(c *wire.Control) []byte {
			return join(begin(c), data("\x81\xa4data\x81\xa4data\x81\xa9token_ids\x91\xa1x"))
		}, want: inference.ProtocolViolation},
		"message beyond the limit": {home: func(c *wire.Control) []byte { return join(begin(c), token(1), huge) }, tokens: []uint32{1}, want: inference.ProtocolViolation},
		"end within a message":     {home: func(c *wire.Control) []byte { return join(begin(c), token(1), token(2)[:30]) }, hangUp: true, tokens: []uint32{1}, want: inference.Disconnected},
		"end before the end":       {home: func(c *wire.Control) []byte { return join(begin(c), token(1)) }, hangUp: true, tokens: []uint32{1}, want: inference.Disconnected},
		"end before the prologue": {home: func(c *wire.Control) []byte {
			return wire.AppendHandshake(nil, c.CallHome.Subject, wire.ResponseStream)
		}, hangUp: true, want: inference.Disconnected},
		"sentinel without an end": {home: func(c *wire.Control) []byte { return join(begin(c), token(1), sentinel()) }, tokens: []uint32{1}, want: inference.Disconnected},
		"failure after a token": {home: func(c *wire.Control) []byte {
			return join(begin(c), token(1), data("\x81\xa4data\x82\xa5event\xa5error\xa5error\x82\xaaerror_type\xafInvalidArgument\xa7message\xa1m"), final(), sentinel())
		}, tokens: []uint32{1}, want: inference.InvalidArgument},
		"handshake is no JSON":         {home: func(*wire.Control) []byte { return wire.AppendMessage(nil, []byte("hello"), nil) }, want: inference.ResponseTimeout},
		"handshake of another request": {home: func(*wire.Control) []byte { return wire.AppendHandshake(nil, "somebody", wire.ResponseStream) }, want: inference.ResponseTimeout},
		"handshake beyond the limit":   {home: func(*wire.Control) []byte { return huge }, want: inference.ResponseTimeout},
		"no handshake":                 {home: func(*wire.Control) []byte { return nil }, hangUp: true, want: inference.ResponseTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			options := Options{}
			if test.want == inference.ResponseTimeout {
				options.CallHomeTimeout = 20 * time.Millisecond
			}
			client, server := pair(t, options)
			server.Handle("p", counting(false, nil))
			worker := answering(t, test.home, test.hangUp, nil)
			stream, err := client.Send(t.Context(), worker.target(), request(1))
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(t, stream)
			if kind := kindOf(err); kind != test.want || !slices.Equal(got, test.tokens) {
				t.Errorf("tokens %v, error %v; want %v and kind %q", got, err, test.tokens, test.want)
			}
			if errors.Is(err, io.EOF) {
				t.Errorf("%v passes for the clean end of a stream", err)
			}
			if failure, ok := err.(*inference.Error); err != nil && (!ok || failure.WorkerID != 9) {
				t.Errorf("%v does not name the worker", err)
			}
			_ = stream.Close()
			// Nobody else is harmed.
			other, err := client.Send(t.Context(), target(server, "p", inference.MessagePack), request(2))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := readAll(t, other); err != nil || len(got) != 2 {
				t.Errorf("another worker's answer: %v, %v", got, err)
			}
		})
	}
}

func kindOf(err error) inference.Kind {
	if err == nil {
		return ""
	}
	return inference.KindOf(err)
}

// TestBrokenAcknowledgements plays workers that take requests in ways that make no sense.
func TestBrokenAcknowledgements(t *testing.T) {
	serve := func(answer func(conn net.Conn)) func(*fakeWorker, net.Conn) {
		return func(_ *fakeWorker, conn net.Conn) {
			if take(conn) != nil {
				answer(conn)
				_, _ = io.Copy(io.Discard, conn)
			}
		}
	}
	for name, test := range map[string]struct {
		answer func(net.Conn)
		want   inference.Kind
	}{
		"refused without a reason":  {func(conn net.Conn) { acknowledge(conn, "Unknown endpoint: p") }, inference.CannotConnect},
		"refused as overloaded":     {func(conn net.Conn) { acknowledge(conn, "Server overloaded: full") }, inference.WorkerOverloaded},
		"refused as unavailable":    {func(conn net.Conn) { acknowledge(conn, "Server unavailable: going") }, inference.CannotConnect},
		"an announcement of 4 GiB":  {func(conn net.Conn) { _, _ = conn.Write([]byte{0xff, 0xff, 0xff, 0xff}) }, inference.CannotConnect},
		"cut off":                   {func(conn net.Conn) { _, _ = conn.Write([]byte{0, 0, 0, 9, 'x'}); conn.Close() }, inference.CannotConnect},
		"closed instead":            {func(conn net.Conn) { conn.Close() }, inference.CannotConnect},
		"nothing at all":            {func(net.Conn) {}, inference.ConnectionTimeout},
		"half an acknowledgement":   {func(conn net.Conn) { _, _ = conn.Write([]byte{0, 0}) }, inference.ConnectionTimeout},
		"a text that is no UTF-8 ☹": {func(conn net.Conn) { acknowledge(conn, "Server overloaded: \xff\xfe") }, inference.WorkerOverloaded},
	} {
		t.Run(name, func(t *testing.T) {
			options := Options{}
			if test.want == inference.ConnectionTimeout {
				options.AckTimeout = 20 * time.Millisecond
			}
			client, _ := pair(t, options)
			worker := newFake(t, serve(test.answer))
			if _, err := client.Send(t.Context(), worker.target(), request(1)); inference.KindOf(err) != test.want {
				t.Errorf("%v, want kind %s", err, test.want)
			}
			if refused := test.want == inference.WorkerOverloaded || strings.HasPrefix(name, "refused"); !refused && name != "refused without a reason" {
				eventually(t, "the connection is given up", func() bool { return links(client, worker) == 0 })
			}
		})
	}
}

// links is how many request connections the client has to the worker.
func links(c *Client, w *fakeWorker) int {
	c.mu.Lock()
	p := c.pools[w.listener.Addr().String()]
	c.mu.Unlock()
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// TestUnaskedAcknowledgementsEndTheConnection floods a client with acknowledgements: it must not believe them for requests that
// are still to come, nor spend its time on them.
func TestUnaskedAcknowledgementsEndTheConnection(t *testing.T) {
	client, _ := pair(t, Options{})
	flooded := make(chan error, 1)
	worker := newFake(t, func(w *fakeWorker, conn net.Conn) {
		control := take(conn)
		if control == nil {
			return
		}
		acknowledge(conn, "")
		if home := callHome(control); home != nil {
			w.own(home)
			_, _ = home.Write(join(begin(control), token(1), final(), sentinel()))
		}
		var err error
		for err == nil {
			_, err = conn.Write(bytes.Repeat([]byte{0, 0, 0, 0}, 1024))
		}
		select {
		case flooded <- err:
		default:
		}
	})
	stream, err := client.Send(t.Context(), worker.target(), request(1))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, stream); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	receive(t, "the flood is cut off", flooded)
}

// TestAWorkerThatNeverReadsHoldsUpNobody fills the connection to a worker that reads nothing. Requests to it fail by their
// deadline or at once when they are cancelled; other workers are served meanwhile.
func TestAWorkerThatNeverReadsHoldsUpNobody(t *testing.T) {
	client, server := pair(t, Options{AckTimeout: 300 * time.Millisecond, PoolSize: 1})
	server.Handle("p", counting(false, nil))
	hold := make(chan struct{})
	worker := newFake(t, func(_ *fakeWorker, conn net.Conn) { <-hold })
	defer close(hold)
	large := request(1)
	large.TokenIDs = slices.Repeat([]uint32{1 << 31}, 4<<20) // 20 MiB: more than the kernel buffers
	failed := make(chan error, 1)
	go func() {
		_, err := client.Send(context.Background(), worker.target(), large)
		failed <- err
	}()
	eventually(t, "the connection is there", func() bool { return links(client, worker) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	queued := make(chan error, 1)
	go func() {
		_, err := client.Send(ctx, worker.target(), request(1))
		queued <- err
	}()
	cancel()
	if err := receive(t, "a cancelled request returns", queued); inference.KindOf(err) != inference.Cancelled {
		t.Errorf("cancelled: %v", err)
	}
	other, err := client.Send(t.Context(), target(server, "p", inference.MessagePack), request(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(t, other); err != nil {
		t.Error(err)
	}
	if err := receive(t, "the stuck request fails", failed); !inference.KindOf(err).Migratable() {
		t.Errorf("stuck: %v, want a kind that lets another worker be tried", err)
	}
	eventually(t, "the stuck connection is given up", func() bool { return links(client, worker) == 0 })
}

// TestAFloodOfTokensWaits sends tokens that nobody reads: the worker is slowed down, nothing is gathered here.
func TestAFloodOfTokensWaits(t *testing.T) {
	client, _ := pair(t, Options{})
	const burst = 64 << 20
	sent := make(chan int, 1)
	worker := newFake(t, func(w *fakeWorker, conn net.Conn) {
		control := take(conn)
		if control == nil {
			return
		}
		acknowledge(conn, "")
		home := callHome(control)
		if home == nil {
			return
		}
		defer home.Close()
		_, _ = home.Write(begin(control))
		items := bytes.Repeat(token(1), 1000)
		total := 0
		for total < burst {
			n, err := home.Write(items)
			total += n
			if err != nil {
				break
			}
		}
		sent <- total
	})
	stream, err := client.Send(t.Context(), worker.target(), request(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case total := <-sent:
		t.Errorf("the worker could send %d bytes that nobody read", total)
	default:
	}
	_ = stream.Close()
	if total := receive(t, "the worker is cut off", sent); total >= burst {
		t.Errorf("all %d bytes were taken", total)
	}
}

// TestAFloodOfEmptyMessagesCanBeCancelled: messages without data are skipped, for as long as somebody waits.
func TestAFloodOfEmptyMessagesCanBeCancelled(t *testing.T) {
	client, _ := pair(t, Options{})
	worker := newFake(t, func(w *fakeWorker, conn net.Conn) {
		control := take(conn)
		if control == nil {
			return
		}
		acknowledge(conn, "")
		home := callHome(control)
		if home == nil {
			return
		}
		defer home.Close()
		_, _ = home.Write(begin(control))
		empty := bytes.Repeat(wire.AppendMessage(nil, []byte("{}"), nil), 1000)
		for {
			if _, err := home.Write(empty); err != nil {
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.Send(ctx, worker.target(), request(1))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := stream.Next(ctx)
		ended <- err
	}()
	cancel()
	if err := receive(t, "the wait ends", ended); inference.KindOf(err) != inference.Cancelled {
		t.Error(err)
	}
}

// TestSilentConnectionsMakeRoom opens more connections to the listener for answers than it keeps, and says nothing on them.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	client, server := pair(t, Options{})
	server.Handle("p", counting(false, nil))
	var silent []net.Conn
	defer func() {
		for _, conn := range silent {
			conn.Close()
		}
	}()
	for range maxGreeted {
		conn, err := net.Dial("tcp", client.address)
		if err != nil {
			t.Skipf("not enough file descriptors: %v", err)
		}
		silent = append(silent, conn)
	}
	eventually(t, "all are noted", func() bool {
		client.mu.Lock()
		defer client.mu.Unlock()
		return len(client.greeted) == maxGreeted
	})
	stream, err := client.Send(t.Context(), target(server, "p", inference.MessagePack), request(2))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, stream); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	_ = silent[0].SetReadDeadline(time.Now().Add(patience))
	closed := 0
	for _, conn := range silent[:1] {
		if _, err := conn.Read(make([]byte, 1)); err == io.EOF {
			closed++
		}
	}
	if closed != 1 {
		t.Error("the oldest silent connection was not the one that made room")
	}
}
