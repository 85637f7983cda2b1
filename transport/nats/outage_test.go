package nats

import (
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
)

// TestARequestUnderWayIsSentAgainAfterAnOutage: whoever waits for an answer that was lost with the connection does not wait until its
// patience ends.
func TestARequestUnderWayIsSentAgainAfterAnOutage(t *testing.T) {
	s := start(t, &server.Options{})
	port := s.Addr().(*net.TCPAddr).Port
	worker, err := client.Connect(s.ClientURL(), client.MaxReconnects(-1), client.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(worker.Close)
	taken := make(chan struct{}, 8)
	if _, err := worker.QueueSubscribe("ns_backend.generate-7", queueGroup, func(request *client.Msg) {
		if taken <- struct{}{}; len(taken) > 1 { // the first one is swallowed
			_ = request.Respond(nil)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := worker.Flush(); err != nil {
		t.Fatal(err)
	}
	c := connect(t, s, func(o *Options) { o.RequestTimeout = 30 * time.Second })
	delivered := make(chan error, 1)
	go func() { delivered <- c.Deliver(t.Context(), "ns_backend.generate-7", nil, []byte("x")) }()
	eventually(t, "the worker has the request", func() bool { return len(taken) == 1 })
	stop(s)
	start(t, &server.Options{Port: port})
	if err := <-delivered; err != nil {
		t.Errorf("the request was not delivered: %v", err)
	}
	if n := len(taken); n < 2 {
		t.Errorf("the request was sent %d times, want it again after the outage", n)
	}
}
