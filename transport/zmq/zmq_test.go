package zmq

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of the tests.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-ticker.C {
		if condition() {
			return
		}
	}
	t.Fatalf("it did not happen in %v: %s", patience, what)
}

func newPublisher(t *testing.T) *Publisher {
	t.Helper()
	p, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// inbox collects what a subscription tells.
type inbox struct {
	mu        sync.Mutex
	messages  []string // the parts, joined
	connected int
	lost      []error
}

func (i *inbox) events() Events {
	return Events{
		Connected: func() { i.mu.Lock(); i.connected++; i.mu.Unlock() },
		Message: func(parts [][]byte) {
			i.mu.Lock()
			i.messages = append(i.messages, string(bytes.Join(parts, []byte("|"))))
			i.mu.Unlock()
		},
		Lost: func(err error) { i.mu.Lock(); i.lost = append(i.lost, err); i.mu.Unlock() },
	}
}

func (i *inbox) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.messages)
}

// subscribe runs a subscription until the test ends.
func subscribe(t *testing.T, port int, topic string) *inbox {
	t.Helper()
	box := &inbox{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with the test
		defer close(done)
		if err := Subscribe(ctx, fmt.Sprintf("tcp://127.0.0.1:%d", port), topic, box.events()); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return box
}

func TestMessagesArriveInOrderAtThoseWhoAskedForThem(t *testing.T) {
	p := newPublisher(t)
	all, some := subscribe(t, p.Port(), ""), subscribe(t, p.Port(), "kv-")
	eventually(t, "both have subscribed", func() bool { return p.Subscribers() == 2 })
	big := strings.Repeat("x", 3<<20)
	p.Publish([]byte("kv-events"), []byte(""), []byte(big))
	for n := range 1000 {
		p.Publish([]byte("kv-events"), fmt.Append(nil, n))
		p.Publish([]byte("load"), fmt.Append(nil, n))
	}
	eventually(t, "all messages are there", func() bool { return all.count() == 2001 && some.count() == 1001 })
	if all.messages[0] != "kv-events||"+big {
		t.Errorf("the big message has %d bytes", len(all.messages[0]))
	}
	for n := range 1000 {
		if want := fmt.Sprint("kv-events|", n); some.messages[n+1] != want || all.messages[2*n+1] != want {
			t.Fatalf("message %d: %q and %q, want %q", n, some.messages[n+1], all.messages[2*n+1], want)
		}
	}
}

func TestASubscriptionComesBackWithItsPublisher(t *testing.T) {
	p := newPublisher(t)
	port := p.Port()
	box := subscribe(t, port, "")
	eventually(t, "it has subscribed", func() bool { return p.Subscribers() == 1 })
	p.Publish([]byte("first"))
	eventually(t, "the first message is there", func() bool { return box.count() == 1 })
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is noticed", func() bool { box.mu.Lock(); defer box.mu.Unlock(); return len(box.lost) > 0 })
	again, err := Listen(fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	t.Cleanup(func() { _ = again.Close() })
	eventually(t, "it has subscribed again", func() bool { return again.Subscribers() == 1 })
	again.Publish([]byte("second"))
	eventually(t, "the second message is there", func() bool { return box.count() == 2 })
	if box.connected != 2 {
		t.Errorf("connected %d times, want 2", box.connected)
	}
}

func TestASlowSubscriberLosesMessagesAlone(t *testing.T) {
	p := newPublisher(t)
	p.limit = 8 << 20
	quick := subscribe(t, p.Port(), "")
	gate := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	received := 0
	go func() { // ends with the test
		defer close(done)
		_ = Subscribe(ctx, fmt.Sprintf("tcp://127.0.0.1:%d", p.Port()), "", Events{Message: func([][]byte) {
			<-gate
			received++
		}})
	}()
	eventually(t, "both have subscribed", func() bool { return p.Subscribers() == 2 })
	// The quick one keeps up only when it is waited for: what is tested is that the slow one doesn't hold it back.
	payload := make([]byte, 1<<20)
	sent := 0
	for p.Dropped() == 0 && sent < 1000 {
		p.Publish([]byte("m"), payload)
		sent++
		eventually(t, "the quick one has it", func() bool { return quick.count() == sent })
	}
	if p.Dropped() == 0 {
		t.Errorf("%d messages of %d bytes were all kept for a subscriber that reads nothing", sent, len(payload))
	}
	close(gate)
	cancel()
	<-done
	if received >= sent {
		t.Errorf("the slow one received %d of %d messages", received, sent)
	}
}

// TestPeersThatDontFollowTheProtocol checks what a subscription says of each, and that it tries again.
func TestPeersThatDontFollowTheProtocol(t *testing.T) {
	curve := greeting()
	copy(curve[12:], "CURVE")
	old := greeting()
	old[10] = 2
	ready := append(greeting(), readyCommand("PUB")...)
	cases := map[string]struct {
		says []byte
		want string
	}{
		"http":           {[]byte("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"), "does not speak ZMTP"},
		"hangs up":       {nil, "unexpected EOF"},
		"curve":          {curve, `the mechanism "CURVE"`},
		"version 2":      {old, "speaks ZMTP 2"},
		"error":          {appendCommand(greeting(), "ERROR", []byte("\x04full")), `refuses: "full"`},
		"message first":  {appendFrame(greeting(), 0, []byte("m")), "before it got ready"},
		"other command":  {appendCommand(greeting(), "HELLO", nil), `the command "HELLO"`},
		"nameless":       {appendFrame(greeting(), flagCommand, []byte{9, 'x'}), "without a name"},
		"huge frame":     {append(slices.Clone(ready), flagLong, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "a frame of"},
		"too many parts": {append(slices.Clone(ready), bytes.Repeat([]byte{flagMore, 0}, maxParts+1)...), "more than 64 parts"},
		"cut message":    {append(slices.Clone(ready), flagMore, 1, 'x'), "unexpected EOF"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() { // ends with the listener
				defer close(served)
				for range 2 {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Write(c.says)
					_ = conn.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}
			}()
			ctx, cancel := context.WithCancel(t.Context())
			var lost []error
			err = Subscribe(ctx, "tcp://"+listener.Addr().String(), "", Events{
				Message: func(parts [][]byte) { t.Errorf("a message: %q", parts) },
				Lost: func(err error) {
					if lost = append(lost, err); len(lost) == 2 {
						cancel()
					}
				},
			})
			cancel()
			_ = listener.Close()
			<-served
			if err != nil || len(lost) != 2 || !strings.Contains(lost[0].Error(), c.want) || !strings.Contains(lost[1].Error(), c.want) {
				t.Errorf("Subscribe: %v; lost %v, want %q", err, lost, c.want)
			}
		})
	}
}

func TestOnlyTCP(t *testing.T) {
	if err := Subscribe(t.Context(), "ipc:///tmp/x", "", Events{}); err == nil || !strings.Contains(err.Error(), `"ipc:///tmp/x"`) {
		t.Errorf("Subscribe to ipc: %v", err)
	}
}

// dialRaw connects to a publisher by hand.
func dialRaw(t *testing.T, p *Publisher) (net.Conn, *frameReader) {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	reader := &frameReader{source: bufio.NewReader(conn), limit: maxMessage}
	if err := handshake(conn, reader, "SUB"); err != nil {
		t.Fatal(err)
	}
	return conn, reader
}

func TestHeartbeatsAndLaterSubscriptions(t *testing.T) {
	p := newPublisher(t)
	conn, reader := dialRaw(t, p)
	wire := appendCommand(nil, "PING", []byte{0, 10, 'c', 't', 'x'})
	wire = appendCommand(wire, "SUBSCRIBE", []byte("a"))
	wire = appendFrame(wire, 0, []byte("\x01b"))
	wire = appendFrame(wire, 0, []byte("\x01b")) // counted: cancelled once, it stays
	wire = appendFrame(wire, 0, []byte("\x00b"))
	wire = appendCommand(wire, "CANCEL", []byte("a"))
	wire = appendCommand(wire, "CANCEL", []byte("never"))
	if _, err := conn.Write(wire); err != nil {
		t.Fatal(err)
	}
	pongs := ""
	errPong := errors.New("pong")
	_, err := reader.message(func(name string, data []byte) error { pongs = name + " " + string(data); return errPong })
	if !errors.Is(err, errPong) || pongs != "PONG ctx" {
		t.Fatalf("answer to the heartbeat: %v %q", err, pongs)
	}
	eventually(t, "the subscriptions are in force", func() bool {
		p.Publish([]byte("b")) // until it arrives
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := reader.source.Peek(1)
		return err == nil
	})
	p.Publish([]byte("a"))
	p.Publish([]byte("b"), []byte("last"))
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	for {
		parts, err := reader.message(func(string, []byte) error { return nil })
		if err != nil || string(parts[0]) != "b" {
			t.Fatalf("%q, %v", parts, err)
		}
		if len(parts) == 2 {
			return
		}
	}
}

func TestASubscriberThatAsksForTooMuchIsPutOut(t *testing.T) {
	many := []byte(nil)
	for n := range topicLimit + 1 {
		many = appendFrame(many, 0, fmt.Append([]byte{1}, n))
	}
	for name, wire := range map[string][]byte{"topics": many, "a long topic": appendFrame(nil, 0, make([]byte, requestLimit+1))} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(t)
			conn, _ := dialRaw(t, p)
			_, _ = conn.Write(wire)
			if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the connection was not closed: %v", err)
			}
			eventually(t, "it is forgotten", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.peers) == 0 })
		})
	}
}

// TestFramesRoundTrip writes messages, cuts them anywhere, and reads them back.
func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 20), rapid.Map(rapid.IntRange(200, 70000), func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n) }))
		messages := rapid.SliceOfN(rapid.SliceOfN(part, 1, 5), 0, 5).Draw(t, "messages")
		var wire []byte
		for _, parts := range messages {
			wire = appendCommand(wire, "PING", nil)
			wire = appendMessage(wire, parts)
		}
		end := rapid.IntRange(0, len(wire)).Draw(t, "end")
		reader := &frameReader{source: bufio.NewReaderSize(iotest.HalfReader(bytes.NewReader(wire[:end])), 16), limit: maxMessage}
		pings, got := 0, 0
		var err error
		for ; err == nil; got++ {
			var parts [][]byte
			if parts, err = reader.message(func(string, []byte) error { pings++; return nil }); err != nil {
				break
			}
			if !slices.EqualFunc(parts, messages[got], bytes.Equal) {
				t.Fatalf("message %d differs", got)
			}
		}
		if end == len(wire) && (got != len(messages) || pings != len(messages) || err != io.EOF) {
			t.Fatalf("%d messages and %d heartbeats of %d, then %v", got, pings, len(messages), err)
		}
	})
}

func FuzzFrames(f *testing.F) {
	f.Add(appendMessage(nil, [][]byte{[]byte("kv-events"), make([]byte, 8), make([]byte, 300)}))
	f.Add(appendCommand(nil, "PING", []byte{0, 1, 2}))
	f.Add([]byte{flagLong, 0, 0, 0, 0, 4, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, wire []byte) {
		reader := &frameReader{source: bufio.NewReader(bytes.NewReader(wire)), limit: 1 << 20}
		for {
			parts, err := reader.message(func(string, []byte) error { return nil })
			if err != nil {
				return
			}
			size := 0
			for _, part := range parts {
				size += len(part)
			}
			if len(parts) == 0 || len(parts) > maxParts || size > len(wire) {
				t.Fatalf("%d parts of %d bytes out of %d", len(parts), size, len(wire))
			}
		}
	})
}

func BenchmarkPublishAndReceive(b *testing.B) {
	p, err := Listen("127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithCancel(b.Context())
	credit := make(chan struct{}, 10000)
	done := make(chan struct{})
	go func() { // ends with the benchmark
		defer close(done)
		_ = Subscribe(ctx, fmt.Sprintf("tcp://127.0.0.1:%d", p.Port()), "", Events{Message: func([][]byte) { <-credit }})
	}()
	for p.Subscribers() == 0 {
		time.Sleep(time.Millisecond)
	}
	payload := make([]byte, 400)
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		credit <- struct{}{}
		p.Publish([]byte("kv-events"), payload[:8], payload[:8], payload)
	}
	cancel()
	<-done
}
