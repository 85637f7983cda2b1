package frontend

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/model/card"
	"signalbox/transport/tcp"
	plane "signalbox/transport/wire"
)

// overTCP starts a frontend whose workers are reached over the request plane.
func overTCP(t *testing.T, change func(*Options)) *fixture {
	t.Helper()
	client, err := tcp.NewClient(tcp.Options{Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return start(t, func(o *Options) {
		o.Transport = TCP{client}
		if change != nil {
			change(o)
		}
	})
}

func plainCard() *card.Card {
	return &card.Card{DisplayName: "m", Slug: "m", BlockSize: 4, ModelType: card.Chat | card.Completions, ModelInput: card.TokensInput,
		WorkerType: card.AggregatedWorker, Runtime: card.DefaultRuntimeConfig()}
}

// workerAt registers a worker whose endpoint is served by the handler.
func (f *fixture) workerAt(handler tcp.Handler) *tcp.Server {
	f.t.Helper()
	server, err := tcp.NewServer(tcp.Options{Host: "127.0.0.1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { server.Close() })
	server.Handle("e", handler)
	f.publish(plainCard(), "backend", server.Address()+"/e")
	f.waitReady(1)
	return server
}

// client is an HTTP client that can leave in the middle of anything: a bare connection.
type client struct {
	net.Conn
	*bufio.Reader
}

func (c client) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func (f *fixture) ask(stream bool) client {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.frontend.Address())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":1000000,"stream":%v}`, stream)
	_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if err != nil {
		f.t.Fatal(err)
	}
	return client{conn, bufio.NewReader(conn)}
}

// soon waits for a signal and logs how long it took since the client left; the product promises 100 ms.
func soon(t *testing.T, left time.Time, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
		t.Logf("the worker was told %.1f ms after the client had left", time.Since(left).Seconds()*1000)
	case <-time.After(10 * time.Second):
		t.Error("the worker was not told")
	}
}

// TestAClientThatLeavesInEveryPhase leaves while the worker is asked, before its first token, in the middle of the answer, and
// while it reads nothing of it: the work ends at the worker each time.
func TestAClientThatLeavesInEveryPhase(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			t.Run("before the first token", func(t *testing.T) {
				f := overTCP(t, nil)
				begun, ended := make(chan struct{}, 1), make(chan struct{}, 1)
				f.workerAt(func(ctx context.Context, call *tcp.Call) error {
					begun <- struct{}{}
					<-ctx.Done()
					ended <- struct{}{}
					return ctx.Err()
				})
				c := f.ask(stream)
				<-begun
				c.Close()
				soon(t, time.Now(), ended)
			})
			t.Run("in the middle", func(t *testing.T) {
				f := overTCP(t, nil)
				said, ended := make(chan struct{}, 1), make(chan struct{}, 1)
				f.workerAt(func(ctx context.Context, call *tcp.Call) error {
					if err := say(call, 'a', 3); err != nil {
						return err
					}
					said <- struct{}{}
					<-ctx.Done()
					ended <- struct{}{}
					return ctx.Err()
				})
				c := f.ask(stream)
				<-said
				if stream { // unary clients see nothing yet
					if line, err := c.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
						t.Fatalf("%q, %v", line, err)
					}
				}
				c.Close()
				soon(t, time.Now(), ended)
			})
			t.Run("while nothing is read", func(t *testing.T) {
				f := overTCP(t, nil)
				var said atomic.Int64
				ended := make(chan struct{}, 1)
				f.workerAt(func(ctx context.Context, call *tcp.Call) error {
					defer func() { ended <- struct{}{} }()
					for ctx.Err() == nil {
						if err := say(call, 'a', 1000); err != nil {
							return err
						}
						said.Add(1)
					}
					return ctx.Err()
				})
				c := f.ask(stream)
				last, same := int64(0), 0
				waitFor(t, func() bool { // until nothing moves any more; the whole answer of a unary request is read on and on
					now := said.Load()
					if now == last && now > 0 {
						same++
					} else {
						same = 0
					}
					last = now
					return same > 20 || !stream && now > 100
				})
				c.Close()
				soon(t, time.Now(), ended)
			})
		})
	}
}

// say emits tokens one by one and sends them.
func say(call *tcp.Call, id uint32, count int) error {
	for range count {
		if err := call.Emit(&inference.Output{TokenIDs: []uint32{id}}); err != nil {
			return err
		}
	}
	return call.Flush()
}

// TestAClientThatLeavesBeforeTheWorkerCallsHome plays a worker that takes the request, or does not even answer, and calls home
// only after the client has left: it hears that nobody waits.
func TestAClientThatLeavesBeforeTheWorkerCallsHome(t *testing.T) {
	for _, acknowledged := range []bool{true, false} {
		t.Run(fmt.Sprint("acknowledged ", acknowledged), func(t *testing.T) {
			f := overTCP(t, nil)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			taken, left, told := make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)
			done := make(chan struct{})
			go func() { // plays the worker; ends when it was told
				defer close(done)
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				frame, err := plane.ReadRequestFrame(conn, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				if acknowledged {
					_, _ = conn.Write(plane.AppendAck(nil, ""))
				}
				taken <- struct{}{}
				<-left
				message, _ := plane.ParseMessage(frame.Payload, 1<<20)
				control, err := plane.ParseControl(message.Header)
				if err != nil {
					t.Error(err)
					return
				}
				home, err := net.Dial("tcp", control.CallHome.Address)
				if err != nil {
					t.Error(err)
					return
				}
				defer home.Close()
				_, _ = home.Write(plane.AppendHandshake(nil, control.CallHome.Subject, plane.ResponseStream))
				_ = home.SetReadDeadline(time.Now().Add(10 * time.Second))
				word, err := plane.NewMessageReader(home, plane.MaxControl).Next()
				if err != nil || plane.ParseControlWord(word.Header) != plane.Kill {
					t.Errorf("the worker heard %q, %v", word.Header, err)
				}
				told <- struct{}{}
			}()
			f.publish(plainCard(), "backend", listener.Addr().String()+"/e")
			f.waitReady(1)
			c := f.ask(true)
			<-taken
			c.Close()
			gone := time.Now()
			// The frontend notices by itself; the worker calls home once it has.
			waitFor(t, func() bool { return f.inFlight() == 0 })
			close(left)
			soon(t, gone, told)
			<-done
		})
	}
}

// inFlight is how many requests the frontend counts as being served.
func (f *fixture) inFlight() int {
	f.t.Helper()
	response, err := http.Get("http://" + f.frontend.Address() + "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	total := 0
	for _, line := range strings.Split(string(text), "\n") {
		var value float64
		name, rest, _ := strings.Cut(line, " ")
		if strings.Contains(name, "inflight_requests") && !strings.HasPrefix(line, "#") {
			if _, err := fmt.Sscan(rest, &value); err == nil {
				total += int(value)
			}
		}
	}
	return total
}

// TestABrokenWorkerCostsItsClientsAlone sends garbage home for every request of one worker: with another one there nobody who has
// not seen a byte notices.
func TestABrokenWorkerCostsItsClientsAlone(t *testing.T) {
	f := overTCP(t, nil)
	f.workerAt(func(ctx context.Context, call *tcp.Call) error {
		if err := say(call, 'a', 2); err != nil {
			return err
		}
		return call.Emit(&inference.Output{TokenIDs: []uint32{'b'}, Finish: inference.FinishLength})
	})
	broken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // plays a worker that is none; ends with the listener
		defer close(done)
		for {
			conn, err := broken.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = conn.Close()
		}
	}()
	defer func() { broken.Close(); <-done }()
	f.publish(plainCard(), "backend", broken.Addr().String()+"/e")
	f.waitReady(2)
	for range 20 {
		if status, text := f.post("/v1/chat/completions", fmt.Sprintf(chatBody, "")); status != 200 || !strings.Contains(text, `"content":"aab"`) {
			t.Errorf("status %d, %s", status, text)
		}
	}
}
