package frontend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/inference"
)

const (
	crowd        = 1000
	crowdTokens  = 24
	floodedBytes = 64 << 10 // text of one item for the client that does not read
)

// crowdWorker answers most requests with few tokens, one item per token, all of them at the same pace: a step is given to everybody at
// once. Requests with a prompt of one token get text without end.
type crowdWorker struct {
	waiting  sync.WaitGroup // streams of the crowd that have not begun
	begin    chan struct{}
	flooding chan struct{} // closed when the endless stream was closed
}

func (w *crowdWorker) Send(ctx context.Context, _ inference.Target, r *inference.Request) (inference.Stream, error) {
	return &crowdStream{worker: w, endless: len(r.TokenIDs) == 1}, nil
}

type crowdStream struct {
	worker  *crowdWorker
	endless bool
	item    inference.Output
	sent    int
	once    sync.Once
}

func (s *crowdStream) Next(ctx context.Context) (*inference.Output, error) {
	if s.endless {
		if ctx.Err() != nil {
			return nil, inference.Errorf(inference.Cancelled, "cancelled")
		}
		s.item = inference.Output{TokenIDs: []uint32{'x'}, Text: strings.Repeat("x", floodedBytes), HasText: true}
		return &s.item, nil
	}
	if s.sent == 0 {
		s.worker.waiting.Done()
		select {
		case <-s.worker.begin:
		case <-ctx.Done():
			return nil, inference.Errorf(inference.Cancelled, "cancelled")
		}
	}
	if s.sent == crowdTokens {
		return nil, io.EOF
	}
	s.sent++
	s.item = inference.Output{TokenIDs: []uint32{'a'}}
	if s.sent == crowdTokens {
		s.item.Finish = inference.FinishLength
	}
	return &s.item, nil
}

func (s *crowdStream) Buffered() bool { return s.endless }

func (s *crowdStream) Close() error {
	if s.endless {
		s.once.Do(func() { close(s.worker.flooding) })
	}
	return nil
}

// request writes a chat request on a new connection.
func (f *fixture) request(text string) (net.Conn, error) {
	connection, err := net.Dial("tcp", f.frontend.Address())
	if err != nil {
		return nil, err
	}
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":99,"stream":true}`, text)
	_, err = fmt.Fprintf(connection, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return connection, err
}

// TestAThousandStreamsAndOneThatIsNotRead opens a thousand streams and one whose client reads nothing while its worker writes without
// end. The latter is dropped once it has taken nothing for the stated time, and its worker is told; the others get every token, in
// one piece each, and end well.
func TestAThousandStreamsAndOneThatIsNotRead(t *testing.T) {
	worker := &crowdWorker{begin: make(chan struct{}), flooding: make(chan struct{})}
	worker.waiting.Add(crowd)
	const stall = 4 * time.Second // long enough for a machine that is busy with other tests
	f := start(t, func(o *Options) { o.API.WriteTimeout = stall })
	f.addWorker(worker)
	f.waitReady(1)
	slow, err := f.request("s")
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	results := make(chan error, crowd)
	for range crowd {
		go func() { results <- f.readStream() }() // ends with its stream
	}
	worker.waiting.Wait() // all are open at one time
	close(worker.begin)
	for range crowd {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	select {
	case <-worker.flooding:
	case <-time.After(30 * time.Second):
		t.Fatal("the stream that nobody reads was not given up")
	}
	// What was under way when the client was dropped may be read; then the connection is over, without an end marker.
	_ = slow.SetReadDeadline(time.Now().Add(30 * time.Second))
	rest, err := io.ReadAll(slow)
	if errors.Is(err, context.DeadlineExceeded) || strings.Contains(string(rest[max(0, len(rest)-200):]), "[DONE]") {
		t.Errorf("%v after %d bytes; the stream is said to be complete", err, len(rest))
	}
	waitFor(t, func() bool {
		return strings.Contains(f.get("/metrics"), `dynamo_frontend_disconnected_clients 1`)
	})
	if metrics := f.get("/metrics"); !strings.Contains(metrics, fmt.Sprintf(`requests_total{endpoint="chat_completions",error_type="",model="m",request_type="stream",status="success"} %d`, crowd)) ||
		!strings.Contains(metrics, `requests_total{endpoint="chat_completions",error_type="cancelled",model="m",request_type="stream",status="error"} 1`) {
		t.Error("the metrics tell another story")
	}
}

// readStream reads one stream of the crowd.
func (f *fixture) readStream() error {
	connection, err := f.request("crowd")
	if err != nil {
		return err
	}
	defer connection.Close()
	tokens, done := 0, false
	lines := bufio.NewScanner(connection)
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == "data: [DONE]":
			done = true
		case strings.Contains(line, `"error"`):
			return errors.New(line)
		case strings.Contains(line, `"content":"a"`):
			tokens++
		}
	}
	if tokens != crowdTokens || !done {
		return fmt.Errorf("a stream of the crowd has %d tokens, ended: %v, %v", tokens, done, lines.Err())
	}
	return nil
}
