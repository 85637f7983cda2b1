package tcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"signalbox/inference"
	"signalbox/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t testing.TB, options Options) (*Client, *Server) {
	t.Helper()
	options.Host = "127.0.0.1"
	server, err := NewServer(options, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	client, err := NewClient(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

func target(s *Server, path string, codec inference.Codec) inference.Target {
	return inference.Target{WorkerID: 7, Address: s.Address() + "/" + path, Codec: codec}
}

// counting emits the numbers from 0 up to max_tokens, then waits for the end of ctx when told to.
func counting(hang bool, ended chan<- struct{}) Handler {
	return func(ctx context.Context, call *Call) error {
		request, err := wire.DecodeRequest(call.Body, call.Codec)
		if err != nil {
			return err
		}
		for i := range *request.Stop.MaxTokens {
			if err := call.Emit(&inference.Output{TokenIDs: []uint32{i}}); err != nil {
				return err
			}
			if err := call.Flush(); err != nil {
				return err
			}
		}
		if hang {
			<-ctx.Done()
			close(ended)
		}
		return nil
	}
}

func request(tokens uint32) *inference.Request {
	return &inference.Request{ID: "r", Model: "m", TokenIDs: []uint32{1, 2, 3}, Stop: inference.StopConditions{MaxTokens: &tokens}}
}

func TestStreamsInBothCodecs(t *testing.T) {
	client, server := pair(t, Options{})
	server.Handle("p", counting(false, nil))
	for _, codec := range []inference.Codec{inference.JSON, inference.MessagePack} {
		stream, err := client.Send(t.Context(), target(server, "p", codec), request(5))
		if err != nil {
			t.Fatal(err)
		}
		var got []uint32
		for {
			item, err := stream.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, item.TokenIDs...)
		}
		if !slices.Equal(got, []uint32{0, 1, 2, 3, 4}) {
			t.Errorf("%v: %v", codec, got)
		}
	}
}

func TestManyAtOnceOverFewConnections(t *testing.T) {
	client, server := pair(t, Options{PoolSize: 2})
	server.Handle("p", counting(false, nil))
	var wait sync.WaitGroup
	for range 200 {
		wait.Go(func() {
			stream, err := client.Send(context.Background(), target(server, "p", inference.MessagePack), request(3))
			if err != nil {
				t.Error(err)
				return
			}
			defer stream.Close()
			for range 3 {
				if _, err := stream.Next(context.Background()); err != nil {
					t.Error(err)
				}
			}
			if _, err := stream.Next(context.Background()); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := len(client.pools[server.Address()].links); n > 2 {
		t.Errorf("%d connections, at most 2 are allowed", n)
	}
}

func TestCancellationReachesTheWorker(t *testing.T) {
	for name, cancelBy := range map[string]func(cancel context.CancelFunc, stream inference.Stream){
		"context": func(cancel context.CancelFunc, _ inference.Stream) { cancel() },
		"close":   func(_ context.CancelFunc, stream inference.Stream) { stream.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t, Options{})
			ended := make(chan struct{})
			server.Handle("p", counting(true, ended))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := client.Send(ctx, target(server, "p", inference.MessagePack), request(1))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Next(ctx); err != nil {
				t.Fatal(err)
			}
			cancelBy(cancel, stream)
			select {
			case <-ended:
			case <-time.After(5 * time.Second):
				t.Fatal("the worker was not told")
			}
			if _, err := stream.Next(ctx); inference.KindOf(err) != inference.Cancelled {
				t.Errorf("after the cancellation: %v", err)
			}
		})
	}
}

func TestFailuresByKind(t *testing.T) {
	client, server := pair(t, Options{})
	fail := func(failure error) Handler { return func(context.Context, *Call) error { return failure } }
	server.Handle("invalid", fail(&inference.Error{Kind: inference.InvalidArgument, Message: "bad", Public: "bad"}))
	server.Handle("died", fail(inference.Errorf(inference.Disconnected, "dead")))
	for path, want := range map[string]inference.Kind{"invalid": inference.InvalidArgument, "died": inference.Disconnected, "unknown": inference.CannotConnect} {
		stream, err := client.Send(t.Context(), target(server, path, inference.MessagePack), request(1))
		if err == nil {
			_, err = stream.Next(t.Context())
			stream.Close()
		}
		if got := inference.KindOf(err); got != want {
			t.Errorf("%s: %v, want kind %s", path, err, want)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	if _, err := client.Send(t.Context(), inference.Target{Address: address + "/p"}, request(1)); inference.KindOf(err) != inference.CannotConnect {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestAWorkerAtCapacityIsOverloaded(t *testing.T) {
	client, server := pair(t, Options{MaxRunning: 1})
	server.Handle("p", counting(true, make(chan struct{})))
	first, err := client.Send(t.Context(), target(server, "p", inference.MessagePack), request(1))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := client.Send(t.Context(), target(server, "p", inference.MessagePack), request(1)); inference.KindOf(err) != inference.WorkerOverloaded {
		t.Errorf("second request: %v", err)
	}
}

func TestAWorkerThatLeavesFailsWhoWaits(t *testing.T) {
	client, server := pair(t, Options{})
	// A fake worker that takes requests and never calls home: the real one does so when it cannot read a body.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_ = server
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := wire.ReadRequestFrame(conn, 1<<20); err == nil {
			_, _ = conn.Write(wire.AppendAck(nil, ""))
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	stream, err := client.Send(t.Context(), inference.Target{WorkerID: 9, Address: listener.Addr().String() + "/p"}, request(1))
	if err != nil {
		t.Fatal(err)
	}
	client.Gone(9)
	if _, err := stream.Next(t.Context()); inference.KindOf(err) != inference.Disconnected {
		t.Errorf("after Gone: %v", err)
	}
	if _, err := client.Send(t.Context(), inference.Target{WorkerID: 9, Address: listener.Addr().String() + "/p"}, request(1)); inference.KindOf(err) != inference.Disconnected {
		t.Errorf("right after Gone: %v", err)
	}
}

func BenchmarkItem(b *testing.B) {
	client, server := pair(b, Options{})
	server.Handle("p", Generate(func(context.Context, *inference.Request) (inference.Stream, error) { return endless{}, nil }))
	stream, err := client.Send(context.Background(), target(server, "p", inference.MessagePack), request(1))
	if err != nil {
		b.Fatal(err)
	}
	defer stream.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := stream.Next(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

type endless struct{}

func (endless) Next(ctx context.Context) (*inference.Output, error) {
	return &inference.Output{TokenIDs: []uint32{1}}, ctx.Err()
}
func (endless) Buffered() bool { return false }
func (endless) Close() error   { return nil }

// BenchmarkRequest is a whole request: sent, acknowledged, one token, the end.
func BenchmarkRequest(b *testing.B) {
	client, server := pair(b, Options{})
	server.Handle("p", counting(false, nil))
	b.ReportAllocs()
	for b.Loop() {
		stream, err := client.Send(context.Background(), target(server, "p", inference.MessagePack), request(1))
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = stream.Next(context.Background())
		}
		if !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
}
