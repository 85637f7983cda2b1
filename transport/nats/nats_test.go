package nats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"signalbox/inference"
	"signalbox/internal/golden"
	"signalbox/transport/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, options *server.Options) *server.Server {
	t.Helper()
	if options.Port == 0 {
		options.Port = server.RANDOM_PORT
	}
	options.Host, options.NoSigs, options.NoLog = "127.0.0.1", true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start() // ends with Shutdown
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("NATS did not become ready")
	}
	t.Cleanup(func() { stop(s) })
	return s
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

func connect(t *testing.T, s *server.Server, change ...func(*Options)) *Conn {
	t.Helper()
	options := Options{Server: s.ClientURL(), Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&options)
	}
	c, err := Connect(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

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

// plane is a worker's side and a frontend's, over one bus.
func plane(t *testing.T, s *server.Server, handler tcp.Handler) (*tcp.Client, inference.Target) {
	t.Helper()
	work, err := tcp.NewServer(tcp.Options{Host: "127.0.0.1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = work.Close() })
	work.Handle("7/generate", handler)
	stop, err := connect(t, s).Serve("ns_backend.generate-7", "Dynamo component backend in namespace ns", func(message []byte) { work.Take("7/generate", message) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	frontend, err := tcp.NewClient(tcp.Options{Host: "127.0.0.1", Courier: connect(t, s)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = frontend.Close() })
	return frontend, inference.Target{WorkerID: 7, Address: "ns_backend.generate-7", Codec: inference.MessagePack}
}

func echo(_ context.Context, call *tcp.Call) error {
	call.EmitValue(call.Body)
	return call.Flush()
}

func TestRequestsAndAnswers(t *testing.T) {
	frontend, target := plane(t, start(t, &server.Options{}), echo)
	for i := range 50 {
		body := fmt.Sprintf("\xa4%04d", i)
		stream, err := frontend.SendValue(t.Context(), target, fmt.Sprint("id", i), []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		output, err := stream.Next(t.Context())
		if err != nil || string(output.Body) != body {
			t.Fatalf("got %v, %v", output, err)
		}
		if _, err := stream.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Fatalf("the end: %v", err)
		}
	}
}

func TestCancellationReachesTheWorker(t *testing.T) {
	cancelled := make(chan struct{})
	frontend, target := plane(t, start(t, &server.Options{}), func(ctx context.Context, call *tcp.Call) error {
		call.EmitValue([]byte{1})
		if err := call.Flush(); err != nil {
			return err
		}
		<-ctx.Done()
		close(cancelled)
		return nil
	})
	stream, err := frontend.SendValue(t.Context(), target, "id", []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = stream.Close()
	<-cancelled
}

func TestNobodyServesTheSubject(t *testing.T) {
	frontend, target := plane(t, start(t, &server.Options{}), echo)
	target.Address = "ns_backend.generate-8"
	_, err := frontend.SendValue(t.Context(), target, "id", []byte{1})
	if kind := inference.KindOf(err); kind != inference.CannotConnect {
		t.Errorf("kind %s of %v", kind, err)
	}
}

func TestARefusalComesHome(t *testing.T) {
	s := start(t, &server.Options{})
	work, err := tcp.NewServer(tcp.Options{Host: "127.0.0.1", MaxRunning: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = work.Close() })
	stop, err := connect(t, s).Serve("s", "", func(message []byte) { work.Take("nowhere", message) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	frontend, err := tcp.NewClient(tcp.Options{Host: "127.0.0.1", Courier: connect(t, s)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = frontend.Close() })
	stream, err := frontend.SendValue(t.Context(), inference.Target{WorkerID: 7, Address: "s"}, "id", []byte("{}"))
	if err == nil {
		_, err = stream.Next(t.Context())
		_ = stream.Close()
	}
	if kind := inference.KindOf(err); kind != inference.CannotConnect || !strings.Contains(err.Error(), "unknown endpoint nowhere") {
		t.Errorf("kind %s of %v", kind, err)
	}
}

func TestAMessageLargerThanTheServerCarries(t *testing.T) {
	frontend, target := plane(t, start(t, &server.Options{MaxPayload: 2000}), echo)
	_, err := frontend.SendValue(t.Context(), target, "id", make([]byte, 3000))
	if kind := inference.KindOf(err); kind != inference.InvalidArgument {
		t.Errorf("kind %s of %v", kind, err)
	}
}

// TestTheBusGoesAwayAndComesBack stops the server and starts it again on its port: a request that is sent meanwhile waits for it,
// and subscribers learn that they may have missed something.
func TestTheBusGoesAwayAndComesBack(t *testing.T) {
	first := start(t, &server.Options{})
	frontend, target := plane(t, first, echo)
	listener, publisher := connect(t, first), connect(t, first)
	var connected, lost, messages atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { // ends with ctx
		ended <- listener.Subscribe(ctx, "events", func([]byte) { messages.Add(1) }, func() { connected.Add(1) }, func(error) { lost.Add(1) })
	}()
	eventually(t, "the subscription is known", func() bool { return connected.Load() == 1 })
	if err := publisher.Publish("events", []byte("one")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first message", func() bool { return messages.Load() == 1 })
	port := first.Addr().String()
	stop(first)
	eventually(t, "the loss is told", func() bool { return lost.Load() == 1 })
	answered := make(chan error, 1)
	go func() { // ends with the answer
		stream, err := frontend.SendValue(t.Context(), target, "id", []byte{1})
		if err == nil {
			_, err = stream.Next(t.Context())
			_ = stream.Close()
		}
		answered <- err
	}()
	var number int
	if _, err := fmt.Sscanf(port[strings.LastIndex(port, ":")+1:], "%d", &number); err != nil {
		t.Fatal(err)
	}
	start(t, &server.Options{Port: number})
	eventually(t, "the subscription is back", func() bool { return connected.Load() == 2 })
	eventually(t, "messages come again", func() bool {
		_ = publisher.Publish("events", []byte("two"))
		return messages.Load() > 1
	})
	// It may have been published before the worker was back; it is sent again then.
	if err := <-answered; err != nil {
		t.Errorf("a request that was sent while the bus was away: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAuthentication(t *testing.T) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := pair.PublicKey()
	seed, _ := pair.Seed()
	user := start(t, &server.Options{Username: "user", Password: "user"})
	named := start(t, &server.Options{Username: "alice", Password: "secret"})
	token := start(t, &server.Options{Authorization: "t0ken"})
	key := start(t, &server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}})
	for name, c := range map[string]struct {
		server      *server.Server
		environment map[string]string
		fails       bool
	}{
		"nothing is user and user":      {user, nil, false},
		"nothing is not enough":         {named, nil, true},
		"user and password":             {named, map[string]string{"NATS_AUTH_USERNAME": "alice", "NATS_AUTH_PASSWORD": "secret"}, false},
		"a user without password":       {user, map[string]string{"NATS_AUTH_USERNAME": "alice"}, false},
		"the wrong password":            {named, map[string]string{"NATS_AUTH_USERNAME": "alice", "NATS_AUTH_PASSWORD": "no"}, true},
		"a token":                       {token, map[string]string{"NATS_AUTH_TOKEN": "t0ken"}, false},
		"the user is before the token":  {token, map[string]string{"NATS_AUTH_TOKEN": "t0ken", "NATS_AUTH_USERNAME": "a", "NATS_AUTH_PASSWORD": "b"}, true},
		"a key":                         {key, map[string]string{"NATS_AUTH_NKEY": string(seed)}, false},
		"a key that is none":            {key, map[string]string{"NATS_AUTH_NKEY": "SUAX"}, true},
		"a credentials file that isn't": {named, map[string]string{"NATS_AUTH_CREDENTIALS_FILE": "/does/not/exist"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"NATS_AUTH_USERNAME", "NATS_AUTH_PASSWORD", "NATS_AUTH_TOKEN", "NATS_AUTH_NKEY", "NATS_AUTH_CREDENTIALS_FILE"} {
				t.Setenv(variable, c.environment[variable])
			}
			t.Setenv("NATS_SERVER", c.server.ClientURL())
			options, err := OptionsFromEnvironment()
			if err != nil {
				t.Fatal(err)
			}
			options.Logger = slog.New(slog.DiscardHandler)
			conn, err := Connect(t.Context(), options)
			if (err != nil) != c.fails {
				t.Errorf("error %v", err)
			}
			if conn != nil {
				_ = conn.Close()
			}
		})
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	for want, options := range map[string]Options{
		"must start with nats:// or tls://": {Server: "localhost:4222"},
		"it must start with tls://":         {Server: "nats://localhost:4222", Insecure: true},
		"must be set together":              {Server: "tls://localhost:4222", ClientCertPath: "a.pem"},
	} {
		if err := options.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", options, err, want)
		}
	}
	t.Setenv("DYN_NATS_REQUEST_TIMEOUT_SECS", "0")
	if _, err := OptionsFromEnvironment(); err == nil {
		t.Error("a request timeout of 0 was taken")
	}
}

// TestGoldenRequest checks the bytes that a real frontend published against those that this one publishes.
func TestGoldenRequest(t *testing.T) {
	recorded, err := os.ReadFile(filepath.Join(golden.Dir(t, "request_plane"), "v161_nats_hpub_request.bin"))
	if err != nil {
		t.Fatal(err)
	}
	line, rest, _ := strings.Cut(string(recorded), "\r\n")
	var subject, inbox string
	var headSize, size int
	if _, err := fmt.Sscanf(line, "HPUB %s %s %d %d", &subject, &inbox, &headSize, &size); err != nil {
		t.Fatal(err)
	}
	s := start(t, &server.Options{})
	seen := make(chan *client.Msg, 1)
	worker := connect(t, s)
	if _, err := worker.nc.Subscribe(subject, func(m *client.Msg) {
		_ = m.Respond(nil)
		seen <- m
	}); err != nil {
		t.Fatal(err)
	}
	if err := worker.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	message := []byte(rest[headSize:size])
	if err := connect(t, s).Deliver(t.Context(), subject, map[string]string{"request-id": "r", "x-frontend-send-ts-ns": "1"}, message); err != nil {
		t.Fatal(err)
	}
	got := <-seen
	if string(got.Data) != string(message) || got.Header["request-id"][0] != "r" {
		t.Errorf("%d bytes of %d, headers %v", len(got.Data), len(message), got.Header)
	}
}
