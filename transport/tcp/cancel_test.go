package tcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/transport/wire"
)

// TestCancellationInEveryPhase cancels a request at each step of its way. The caller is released at once, and a worker that has
// the request hears that nobody wants it any more.
func TestCancellationInEveryPhase(t *testing.T) {
	for _, how := range []string{"context", "close"} {
		for name, phase := range map[string]struct {
			// serve plays the worker: it signals reached when the request is where it is to be cancelled, and heard when the
			// worker was told.
			serve func(w *fakeWorker, conn net.Conn, reached chan<- struct{}, cancelled <-chan struct{}, heard chan<- wire.ControlWord)
			// sent tells that Send returns before the cancellation; items, how many Next returns.
			sent  bool
			items int
			// idle leaves the stream alone while it is cancelled: nobody is in Next.
			idle bool
		}{
			"unacknowledged": {serve: func(w *fakeWorker, conn net.Conn, reached chan<- struct{}, cancelled <-chan struct{}, heard chan<- wire.ControlWord) {
				control := take(conn)
				reached <- struct{}{}
				<-cancelled
				acknowledge(conn, "")
				heard <- homeAndListen(control, wire.AppendHandshake(nil, control.CallHome.Subject, wire.ResponseStream))
			}},
			"before the call home": {sent: true, serve: func(w *fakeWorker, conn net.Conn, reached chan<- struct{}, cancelled <-chan struct{}, heard chan<- wire.ControlWord) {
				control := take(conn)
				acknowledge(conn, "")
				reached <- struct{}{}
				<-cancelled
				heard <- homeAndListen(control, begin(control))
			}},
			"before the prologue": {sent: true, serve: func(w *fakeWorker, conn net.Conn, reached chan<- struct{}, cancelled <-chan struct{}, heard chan<- wire.ControlWord) {
				control := take(conn)
				acknowledge(conn, "")
				reached <- struct{}{}
				heard <- homeAndListen(control, wire.AppendHandshake(nil, control.CallHome.Subject, wire.ResponseStream))
			}},
			"before the first token": {sent: true, serve: func(w *fakeWorker, conn net.Conn, reached chan<- struct{}, cancelled <-chan struct{}, heard chan<- wire.ControlWord) {
				control := take(conn)
				acknowledge(conn, "")
				reached <- struct{}{}
				heard <- homeAndListen(control, begin(control))
			}},
			"in mid-stream": {sent: true, items: 2, serve: func(w *fakeWorker, conn net.Conn, reached chan<- struct{}, cancelled <-chan struct{}, heard chan<- wire.ControlWord) {
				control := take(conn)
				acknowledge(conn, "")
				reached <- struct{}{}
				heard <- homeAndListen(control, join(begin(control), token(1), token(2)))
			}},
			"in mid-stream, while nobody reads": {sent: true, items: 1, idle: true, serve: func(w *fakeWorker, conn net.Conn, reached chan<- struct{}, cancelled <-chan struct{}, heard chan<- wire.ControlWord) {
				control := take(conn)
				acknowledge(conn, "")
				reached <- struct{}{}
				heard <- homeAndListen(control, join(begin(control), bytes.Repeat(token(1), 100)))
			}},
		} {
			if how == "close" && !phase.sent {
				continue // there is nothing to close yet
			}
			t.Run(name+" by "+how, func(t *testing.T) {
				client, _ := pair(t, Options{})
				reached, heard := make(chan struct{}, 1), make(chan wire.ControlWord, 1)
				told := make(chan struct{})
				worker := newFake(t, func(w *fakeWorker, conn net.Conn) { phase.serve(w, conn, reached, told, heard) })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				type result struct {
					stream inference.Stream
					err    error
				}
				sent := make(chan result, 1)
				go func() {
					stream, err := client.Send(ctx, worker.target(), request(1))
					sent <- result{stream, err}
				}()
				receive(t, "the request is at the worker", reached)
				if !phase.sent {
					cancel()
					if got := receive(t, "Send returns", sent); inference.KindOf(got.err) != inference.Cancelled {
						t.Errorf("Send: %v", got.err)
					}
					close(told)
					if word := receive(t, "the worker is told", heard); word != wire.Kill {
						t.Errorf("the worker heard %q", word)
					}
					return
				}
				got := receive(t, "Send returns", sent)
				if got.err != nil {
					t.Fatal(got.err)
				}
				for range phase.items {
					if _, err := got.stream.Next(ctx); err != nil {
						t.Fatal(err)
					}
				}
				waiting := make(chan error, 1)
				if !phase.idle {
					go func() {
						_, err := got.stream.Next(ctx)
						waiting <- err
					}()
				}
				if how == "context" {
					cancel()
				} else {
					got.stream.Close()
				}
				close(told)
				if word := receive(t, "the worker is told", heard); word != wire.Kill {
					t.Errorf("the worker heard %q", word)
				}
				if phase.idle {
					_, err := got.stream.Next(ctx)
					waiting <- err
				}
				if err := receive(t, "the wait in Next ends", waiting); inference.KindOf(err) != inference.Cancelled {
					t.Errorf("Next: %v", err)
				}
				if got.stream.Buffered() {
					t.Error("a stream that was cancelled has items ready")
				}
			})
		}
	}
}

// homeAndListen calls home, says what there is to say, and returns what the frontend says.
func homeAndListen(control *wire.Control, say []byte) wire.ControlWord {
	home := callHome(control)
	if home == nil {
		return ""
	}
	defer home.Close()
	_, _ = home.Write(say)
	return listenForWord(home)
}

// TestCancellationWhileConnecting cancels a request whose connection is not made yet: the handshake of TLS never ends.
func TestCancellationWhileConnecting(t *testing.T) {
	options := Options{Host: "127.0.0.1", ClientTLS: &tls.Config{InsecureSkipVerify: true}} // the test never gets as far as a certificate
	client, err := NewClient(options)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	began := make(chan struct{}, 1)
	worker := newFake(t, func(_ *fakeWorker, conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		began <- struct{}{}
		_, _ = io.Copy(io.Discard, conn)
	})
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() {
		_, err := client.Send(ctx, worker.target(), request(1))
		sent <- err
	}()
	receive(t, "the handshake begins", began)
	cancel()
	if err := receive(t, "Send returns", sent); inference.KindOf(err) != inference.Cancelled {
		t.Error(err)
	}
}

// TestAnAlreadyCancelledRequestIsNotSent checks the shortest way of all.
func TestAnAlreadyCancelledRequestIsNotSent(t *testing.T) {
	client, server := pair(t, Options{})
	server.Handle("p", counting(false, nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		stream, err := client.Send(ctx, target(server, "p", inference.MessagePack), request(1))
		if err == nil {
			_, err = stream.Next(ctx)
		}
		if inference.KindOf(err) != inference.Cancelled {
			t.Fatal(err)
		}
	}
	client.mu.Lock()
	defer client.mu.Unlock()
	if len(client.running) != 0 || len(client.pending) != 0 {
		t.Errorf("%d streams running and %d pending are left", len(client.running), len(client.pending))
	}
}

// TestAWorkerStopsForWhateverAFrontendSays plays a frontend: each way of leaving cancels the handler, also one that is blocked
// because the frontend reads nothing.
func TestAWorkerStopsForWhateverAFrontendSays(t *testing.T) {
	for name, leave := range map[string]func(home net.Conn){
		"kill":    func(home net.Conn) { _, _ = home.Write(wire.AppendControlWord(nil, wire.Kill)) },
		"stop":    func(home net.Conn) { _, _ = home.Write(wire.AppendControlWord(nil, wire.Stop)) },
		"garbage": func(home net.Conn) { _, _ = home.Write(bytes.Repeat([]byte{0xff}, 64)) },
		"close":   func(home net.Conn) { _ = home.Close() },
		"half":    func(home net.Conn) { _ = home.(*net.TCPConn).CloseWrite() },
	} {
		for _, blocked := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				_, server := pair(t, Options{})
				cancelled, writing := make(chan error, 1), make(chan struct{}, 1)
				server.Handle("p", func(ctx context.Context, call *Call) error {
					writing <- struct{}{}
					var err error
					for blocked && err == nil {
						err = call.Emit(&inference.Output{TokenIDs: make([]uint32, 1000)})
					}
					<-ctx.Done()
					cancelled <- err
					return ctx.Err()
				})
				home := frontendOf(t, server)
				receive(t, "the handler runs", writing)
				leave(home)
				if err := receive(t, "the handler is cancelled", cancelled); blocked && err == nil {
					t.Error("the write to a frontend that reads nothing succeeded")
				}
			})
		}
	}
}

// frontendOf plays a frontend that sends one request and accepts the call home, of which it reads nothing.
func frontendOf(t *testing.T, server *Server) net.Conn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", server.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	control := wire.AppendControl(nil, &wire.Control{ID: "r", Codec: inference.JSON,
		CallHome: wire.CallHome{Address: listener.Addr().String(), Subject: "s", Context: "r", StreamType: wire.ResponseStream}})
	frame, err := wire.AppendRequestFrame(nil, wire.RequestFrame{Path: "p", Headers: []byte("{}"),
		Payload: wire.AppendMessage(nil, control, []byte(`{"token_ids":[1],"stop_conditions":{"max_tokens":1}}`))}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	if text, err := wire.ReadAck(conn); err != nil || text != "" {
		t.Fatalf("acknowledged with %q, %v", text, err)
	}
	home, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { home.Close() })
	return home
}

// TestClosingEndsEverything closes a client and a server in the middle of all that they do.
func TestClosingEndsEverything(t *testing.T) {
	options := Options{Host: "127.0.0.1"}
	client, err := NewClient(options)
	if err != nil {
		t.Fatal(err)
	}
	worker := answering(t, func(c *wire.Control) []byte { return join(begin(c), token(1)) }, false, nil)
	silent := newFake(t, func(_ *fakeWorker, conn net.Conn) {
		take(conn)
		acknowledge(conn, "")
		_, _ = io.Copy(io.Discard, conn)
	})
	stranger, err := net.Dial("tcp", client.address)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	waits := make(chan error, 2)
	for _, w := range []*fakeWorker{worker, silent} {
		stream, err := client.Send(t.Context(), w.target(), request(1))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := readAll(t, stream)
			waits <- err
		}()
	}
	closed := make(chan struct{})
	go func() {
		client.Close()
		close(closed)
	}()
	receive(t, "Close returns", closed)
	for range 2 {
		if err := receive(t, "a stream ends", waits); inference.KindOf(err) != inference.Unavailable {
			t.Errorf("%v, want the transport to be closed", err)
		}
	}
	if _, err := client.Send(t.Context(), worker.target(), request(1)); inference.KindOf(err) != inference.Unavailable {
		t.Errorf("after Close: %v", err)
	}
	_ = stranger.SetReadDeadline(time.Now().Add(patience))
	if _, err := stranger.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that had said nothing was kept")
	}
}

// TestClosingAServerReleasesBlockedHandlers closes a worker whose handler is blocked because the frontend reads nothing.
func TestClosingAServerReleasesBlockedHandlers(t *testing.T) {
	_, server := pair(t, Options{})
	writing, ended := make(chan struct{}, 1), make(chan struct{})
	server.Handle("p", func(ctx context.Context, call *Call) error {
		defer close(ended)
		for {
			if err := call.Emit(&inference.Output{TokenIDs: make([]uint32, 1000)}); err != nil {
				return err
			}
			select {
			case writing <- struct{}{}:
			default:
			}
		}
	})
	frontendOf(t, server)
	receive(t, "the worker writes", writing)
	go server.Close()
	receive(t, "the handler ends", ended)
}
