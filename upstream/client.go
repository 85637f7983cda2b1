package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"signalbox/inference"
)

// ClientOptions configure how servers are reached. The zero value is fine.
type ClientOptions struct {
	// ConnectTimeout bounds making a connection; 0 means 5 s.
	ConnectTimeout time.Duration
	// IdleTimeout is how long a server may say nothing while it owes an answer; 0 waits for ever.
	IdleTimeout time.Duration
	// Grace is how long a stream may bring nothing after its server has left, before it ends: a server that is too busy to answer a look at
	// its health may well go on with what it does. 0 means 5 s.
	Grace time.Duration
	// TLS configures https; nil trusts what the system trusts.
	TLS *tls.Config
}

const (
	// idleConnection is shorter than the 5 s after which the servers of vLLM and SGLang close connections that nobody uses.
	idleConnection = 4 * time.Second
	// idleConnections bounds the connections to one server that are kept for later requests, maxConnections all of them.
	idleConnections = 256
	maxConnections  = 1 << 14
	// drainTime bounds what is waited for after the last event of an answer, so that its connection can be used again.
	drainTime = time.Second
)

// Client carries requests to servers over HTTP. It is safe for concurrent use; Close ends it.
type Client struct {
	options ClientOptions
	http    *http.Client
	wait    sync.WaitGroup // drains and reads that go on
}

// NewClient returns a client.
func NewClient(options ClientOptions) *Client {
	if options.ConnectTimeout <= 0 {
		options.ConnectTimeout = 5 * time.Second
	}
	if options.Grace <= 0 {
		options.Grace = 5 * time.Second
	}
	dialer := &net.Dialer{Timeout: options.ConnectTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: options.TLS, TLSHandshakeTimeout: options.ConnectTimeout,
		MaxIdleConnsPerHost: idleConnections, MaxConnsPerHost: maxConnections, IdleConnTimeout: idleConnection, DisableCompression: true}
	return &Client{options: options, http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Close ends kept connections and waits for what goes on in the background. Streams have to be closed before.
func (c *Client) Close() {
	c.wait.Wait()
	c.http.CloseIdleConnections()
}

// request makes a request to the server. The key is read anew each time, so that it never lies in a configuration.
func (s *Server) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, reader)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.KeyEnv != "" {
		r.Header.Set("Authorization", "Bearer "+os.Getenv(s.KeyEnv))
	}
	return r, nil
}

// get reads a small document of the server. status is 0 when there was no answer.
func (c *Client) get(ctx context.Context, s *Server, path string, limit int64) (body []byte, status int, err error) {
	r, err := s.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, 0, err
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = errors.New("the answer to GET " + path + " is too long")
	}
	return body, answer.StatusCode, err
}

// post sends a body and returns the answer once the server has begun it. about is the request's; it may be nil.
func (c *Client) post(ctx context.Context, s *Server, path string, body []byte, about *inference.Request, reading dialect) (*stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	made := &stream{client: c, server: s, context: ctx, cancel: cancel, reading: reading, expected: 1}
	made.stopWatching = context.AfterFunc(s.gone, made.await)
	if idle := c.options.IdleTimeout; idle > 0 {
		made.idle = time.AfterFunc(idle, func() {
			cancel(&inference.Error{Kind: inference.ResponseTimeout, WorkerID: s.ID, Message: "server " + s.URL + " said nothing for " + idle.String()})
		})
	}
	fail := func(err *inference.Error) (*stream, error) {
		made.release()
		cancel(nil)
		return nil, err
	}
	r, err := s.request(ctx, http.MethodPost, path, body)
	if err != nil {
		return fail(&inference.Error{Kind: inference.InvalidArgument, Message: "server " + s.URL, Cause: err})
	}
	if about != nil {
		label(r.Header, about)
		if rank := about.Routing.DPRank; rank != nil && s.RankCount() > 1 && s.About.Kind == VLLM {
			r.Header.Set("X-Data-Parallel-Rank", strconv.FormatUint(uint64(*rank), 10))
		}
		if n := about.Sampling.N; n != nil {
			made.expected = max(1, int(*n))
		}
	}
	// A connection that the server closed while it was unused is no failure of the server: this key, which is not sent, lets the
	// request be sent again on another one.
	r.Header["Idempotency-Key"] = nil
	answer, err := c.http.Do(r)
	if err != nil {
		return fail(unreachable(ctx, s, err))
	}
	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, maxErrorBody))
		_ = answer.Body.Close()
		return fail(refused(s, answer.StatusCode, said))
	}
	made.begin(answer)
	return made, nil
}

// label names the request to the server, for its logs and traces.
func label(h http.Header, r *inference.Request) {
	if r.ID != "" {
		h.Set("X-Request-Id", r.ID)
	}
	if r.TraceParent != "" {
		h.Set("Traceparent", r.TraceParent)
		if r.TraceState != "" {
			h.Set("Tracestate", r.TraceState)
		}
	}
}
