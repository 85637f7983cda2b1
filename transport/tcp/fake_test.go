package tcp

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/transport/wire"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// fakeWorker is the worker's side of the plane, played by hand: for what a Server of ours never does.
type fakeWorker struct {
	t        testing.TB
	listener net.Listener
	wait     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	count int
}

// newFake plays a worker whose request connections are each served by serve.
func newFake(t testing.TB, serve func(w *fakeWorker, conn net.Conn)) *fakeWorker {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &fakeWorker{t: t, listener: listener}
	w.wait.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			w.own(conn)
			w.wait.Go(func() {
				defer conn.Close()
				serve(w, conn)
			})
		}
	})
	t.Cleanup(w.stop)
	return w
}

// own closes the connection with the worker.
func (w *fakeWorker) own(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, conn)
	w.count++
}

// accepted is how many request connections there have been.
func (w *fakeWorker) accepted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// hangUp closes all connections there are.
func (w *fakeWorker) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		_ = conn.Close()
	}
	w.conns = nil
}

func (w *fakeWorker) stop() {
	_ = w.listener.Close()
	w.hangUp()
	w.wait.Wait()
}

func (w *fakeWorker) target() inference.Target {
	return inference.Target{WorkerID: 9, Address: w.listener.Addr().String() + "/p", Codec: inference.MessagePack}
}

// take reads one request; nil when the connection has ended.
func take(conn net.Conn) *wire.Control {
	frame, err := wire.ReadRequestFrame(conn, wire.DefaultMaxMessage)
	if err != nil {
		return nil
	}
	message, err := wire.ParseMessage(frame.Payload, wire.DefaultMaxMessage)
	if err != nil {
		return nil
	}
	control, err := wire.ParseControl(message.Header)
	if err != nil {
		return nil
	}
	return control
}

func acknowledge(conn net.Conn, text string) { _, _ = conn.Write(wire.AppendAck(nil, text)) }

// callHome opens the connection that the request asks for, without a word.
func callHome(control *wire.Control) net.Conn {
	conn, err := net.Dial("tcp", control.CallHome.Address)
	if err != nil {
		return nil
	}
	return conn
}

// answering plays a worker that takes every request and sends the same bytes home, then ends the connection if told to, else
// reads what comes.
func answering(t testing.TB, bytesHome func(*wire.Control) []byte, hangUp bool, heard chan<- wire.ControlWord) *fakeWorker {
	return newFake(t, func(w *fakeWorker, conn net.Conn) {
		for {
			control := take(conn)
			if control == nil {
				return
			}
			acknowledge(conn, "")
			home := callHome(control)
			if home == nil {
				return
			}
			w.wait.Go(func() {
				defer home.Close()
				_, _ = home.Write(bytesHome(control))
				if !hangUp {
					listen := listenForWord(home)
					if heard != nil {
						heard <- listen
					}
				}
			})
		}
	})
}

// listenForWord reads what a frontend says on a call-home connection; "" for nothing before its end.
func listenForWord(home net.Conn) wire.ControlWord {
	_ = home.SetReadDeadline(time.Now().Add(patience))
	message, err := wire.NewMessageReader(home, wire.MaxControl).Next()
	if err != nil {
		return ""
	}
	return wire.ParseControlWord(message.Header)
}

// begin is the handshake and the prologue of an answer.
func begin(control *wire.Control) []byte {
	return wire.AppendPrologue(wire.AppendHandshake(nil, control.CallHome.Subject, wire.ResponseStream), nil)
}

func token(id uint32) []byte {
	encoder := wire.ItemEncoder{Codec: inference.MessagePack}
	item, err := encoder.AppendOutput(nil, &inference.Output{TokenIDs: []uint32{id}})
	if err != nil {
		panic(err)
	}
	return item
}

func final() []byte {
	encoder := wire.ItemEncoder{Codec: inference.MessagePack}
	return encoder.AppendFinal(nil)
}

func sentinel() []byte { return wire.AppendControlWord(nil, wire.Sentinel) }

// data is a message without a header.
func data(body string) []byte { return wire.AppendMessage(nil, nil, []byte(body)) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// readAll reads a stream to its end and returns its tokens.
func readAll(t testing.TB, stream inference.Stream) (ids []uint32, end error) {
	t.Helper()
	for {
		item, err := stream.Next(t.Context())
		if err == io.EOF {
			return ids, nil
		}
		if err != nil {
			return ids, err
		}
		ids = append(ids, item.TokenIDs...)
	}
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !condition() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// receive waits for a value.
func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatalf("not in time: %s", what)
		panic("unreachable")
	}
}
