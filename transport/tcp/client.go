package tcp

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"signalbox/inference"
	"signalbox/transport/wire"
)

// Client sends requests to workers. It implements inference.Sender.
type Client struct {
	options  Options
	listener net.Listener
	address  string // advertised to workers
	dials    chan struct{}

	// base ends with the client: dials belong to it, not to a request.
	base   context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	pools   map[string]*pool
	pending map[string]*stream // by subject, until the worker calls home
	running map[*stream]struct{}
	greeted map[net.Conn]time.Time // connections that have not said yet what they are, since when
	gone    map[uint64]time.Time
	closed  bool
	wait    sync.WaitGroup

	sent, received, backoffs atomic.Uint64
}

// Traffic counts what went over connections for requests since the start; answers come over others.
type Traffic struct {
	// Sent and Received are bytes: requests out, acknowledgements in.
	Sent, Received uint64
	// AcceptBackoffs are the times that no connection could be accepted.
	AcceptBackoffs uint64
}

// Traffic returns the counts.
func (c *Client) Traffic() Traffic {
	return Traffic{Sent: c.sent.Load(), Received: c.received.Load(), AcceptBackoffs: c.backoffs.Load()}
}

// tombstone is how long a worker that discovery dropped fails requests that race with the news.
const tombstone = 5 * time.Second

// NewClient starts the listener for answers. Close ends it.
func NewClient(options Options) (*Client, error) {
	options = options.withDefaults()
	listener, err := listen(options)
	if err != nil {
		return nil, err
	}
	base, cancel := context.WithCancel(context.Background())
	c := &Client{options: options, listener: listener, address: advertised(listener.Addr()), dials: make(chan struct{}, options.ConnectLimit),
		base: base, cancel: cancel, pools: make(map[string]*pool), pending: make(map[string]*stream), running: make(map[*stream]struct{}),
		greeted: make(map[net.Conn]time.Time), gone: make(map[uint64]time.Time)}
	c.own(c.accept)
	return c, nil
}

// own runs a goroutine that Close waits for; false when the client is closed.
func (c *Client) own(run func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wait.Go(run)
	return true
}

// Close ends all connections; streams that still run fail.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	pools, running, greeted := c.pools, c.running, c.greeted
	c.pools, c.pending, c.running, c.greeted = nil, nil, nil, nil
	c.mu.Unlock()
	c.cancel()
	err := c.listener.Close()
	for _, p := range pools {
		p.close()
	}
	for s := range running {
		s.abort(closedError())
	}
	for conn := range greeted {
		_ = conn.Close()
	}
	c.wait.Wait()
	return err
}

// Gone tells that discovery no longer knows the worker: requests that wait for it to call home fail at once.
func (c *Client) Gone(workerID uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for id, since := range c.gone {
		if now.Sub(since) > tombstone {
			delete(c.gone, id)
		}
	}
	c.gone[workerID] = now
	for subject, s := range c.pending {
		if s.workerID == workerID {
			delete(c.pending, subject)
			s.fail(inference.Errorf(inference.Disconnected, "the worker is gone from discovery"))
		}
	}
}

// Back takes a Gone back: the worker is registered again.
func (c *Client) Back(workerID uint64) {
	c.mu.Lock()
	delete(c.gone, workerID)
	c.mu.Unlock()
}

// Send implements inference.Sender.
func (c *Client) Send(ctx context.Context, target inference.Target, request *inference.Request) (inference.Stream, error) {
	return c.send(ctx, target, request.ID, request, func(dst []byte) ([]byte, error) {
		return wire.AppendRequest(dst, request, target.Codec)
	}, wire.ItemDecoder{Codec: target.Codec})
}

// SendRaw sends a body that is JSON of any shape; the items of the stream carry raw JSON bodies.
func (c *Client) SendRaw(ctx context.Context, target inference.Target, id string, body []byte) (inference.Stream, error) {
	return c.send(ctx, target, id, &inference.Request{ID: id}, func(dst []byte) ([]byte, error) {
		if target.Codec == inference.JSON {
			return append(dst, body...), nil
		}
		return wire.AppendMessagePack(dst, body)
	}, wire.ItemDecoder{Codec: target.Codec, Raw: true})
}

// SendValue sends a body that is in the target's codec already, to an endpoint that answers without the wrapper of generation;
// the items of the stream carry bodies in the same codec.
func (c *Client) SendValue(ctx context.Context, target inference.Target, id string, body []byte) (inference.Stream, error) {
	return c.send(ctx, target, id, &inference.Request{ID: id}, func(dst []byte) ([]byte, error) {
		return append(dst, body...), nil
	}, wire.ItemDecoder{Codec: target.Codec, Plain: true})
}

func (c *Client) send(ctx context.Context, target inference.Target, id string, request *inference.Request, body func([]byte) ([]byte, error), decoder wire.ItemDecoder) (inference.Stream, error) {
	host, path, direct := strings.Cut(target.Address, "/")
	if !direct && c.options.Courier == nil {
		return nil, inference.Errorf(inference.CannotConnect, "worker address %q has no endpoint path", target.Address)
	}
	if ctx.Err() != nil {
		return nil, cancelled(ctx)
	}
	s := newStream(c, target, uuid.NewString(), decoder)
	if !direct {
		return c.started(ctx, s, c.sendByCourier(ctx, s, target, id, request, body))
	}
	p, err := c.register(host, s)
	if err != nil {
		return nil, err
	}
	frame, err := c.frame(path, id, s.subject, target.Codec, request, body)
	if err == nil {
		err = s.dispatch(ctx, p, frame)
	}
	c.release(p)
	return c.started(ctx, s, err)
}

// started returns the stream of a request that a worker took, or ends it with the failure.
func (c *Client) started(ctx context.Context, s *stream, err error) (inference.Stream, error) {
	if err != nil {
		_ = s.Close() // the worker may have called home meanwhile
		failure := wire.AsError(err)
		failure.WorkerID = s.workerID
		return nil, failure
	}
	s.watch(ctx)
	return s, nil
}

// register makes the subject known before the request leaves: the worker may call home before it acknowledges.
func (c *Client) register(host string, s *stream) (*pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.expect(s); err != nil {
		return nil, err
	}
	p := c.pools[host]
	if p == nil {
		p = &pool{client: c, address: host}
		c.pools[host] = p
	}
	p.senders++
	return p, nil
}

// expect takes the stream into the books. The caller holds mu.
func (c *Client) expect(s *stream) error {
	if c.closed {
		return closedError()
	}
	if since, ok := c.gone[s.workerID]; ok && time.Since(since) < tombstone {
		return &inference.Error{Kind: inference.Disconnected, Message: "the worker has just gone from discovery", WorkerID: s.workerID}
	}
	c.pending[s.subject] = s
	c.running[s] = struct{}{}
	return nil
}

// release ends the hold on the pool that register took.
func (c *Client) release(p *pool) {
	c.mu.Lock()
	p.senders--
	c.mu.Unlock()
	c.prune(p)
}

// prune forgets a pool that holds nothing: workers come and go, and their addresses with them.
func (c *Client) prune(p *pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pools[p.address] == p && p.idle() {
		delete(c.pools, p.address)
	}
}

// forget takes a stream that has ended out of the books.
func (c *Client) forget(s *stream) {
	c.mu.Lock()
	delete(c.pending, s.subject)
	delete(c.running, s)
	c.mu.Unlock()
}

// frame writes the whole request frame into one buffer.
func (c *Client) frame(path, id, subject string, codec inference.Codec, request *inference.Request, body func([]byte) ([]byte, error)) ([]byte, error) {
	headers := requestHeaders(id, request)
	headers["x-endpoint-path"] = path
	payload, err := c.message(id, subject, codec, request, body)
	if err != nil {
		return nil, err
	}
	frame, err := wire.AppendRequestFrame(make([]byte, 0, len(payload)+512), wire.RequestFrame{Path: path, Headers: wire.AppendHeaders(nil, headers), Payload: payload}, c.options.MaxMessage)
	if err != nil {
		return nil, &inference.Error{Kind: inference.InvalidArgument, Message: err.Error(), Public: err.Error()}
	}
	return frame, nil
}

// requestHeaders are what travels beside a request, for the worker's logs and traces.
func requestHeaders(id string, request *inference.Request) map[string]string {
	headers := map[string]string{"request-id": id, "x-frontend-send-ts-ns": timestamp()}
	for name, value := range map[string]string{"traceparent": request.TraceParent, "tracestate": request.TraceState, "x-request-id": request.ClientRequestID} {
		if value != "" {
			headers[name] = value
		}
	}
	return headers
}

// message writes the two-part message: control and body.
func (c *Client) message(id, subject string, codec inference.Codec, request *inference.Request, body func([]byte) ([]byte, error)) ([]byte, error) {
	control := wire.AppendControl(nil, &wire.Control{ID: id, Codec: codec, Metadata: request.Metadata,
		CallHome: wire.CallHome{Address: c.address, Subject: subject, Context: id, StreamType: wire.ResponseStream}})
	if len(control) > wire.MaxControl {
		// A worker would drop the request without a word, and look as if it were dead.
		text := fmt.Sprintf("the request's metadata make a control message of %d bytes, the limit is %d", len(control), wire.MaxControl)
		return nil, &inference.Error{Kind: inference.InvalidArgument, Message: text, Public: text}
	}
	payload := wire.AppendPrefix(make([]byte, 0, 1024+len(control)+5*len(request.TokenIDs)), len(control), 0)
	payload = append(payload, control...)
	start := len(payload)
	payload, err := body(payload)
	if err != nil {
		return nil, &inference.Error{Kind: inference.InvalidArgument, Message: "encode the request", Cause: err}
	}
	wire.AppendPrefix(payload[:0], len(control), len(payload)-start)
	return payload, nil
}

// accept takes the connections of workers until the listener closes.
func (c *Client) accept() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			c.mu.Lock()
			closed := c.closed
			c.mu.Unlock()
			if closed {
				return
			}
			c.backoffs.Add(1)
			time.Sleep(10 * time.Millisecond) // out of file descriptors, most likely: let some go
			continue
		}
		if !c.own(func() { c.greet(conn) }) {
			_ = conn.Close()
		}
	}
}

const (
	// handshakeTimeout bounds the time from a worker's connection to its first message.
	handshakeTimeout = 10 * time.Second
	// maxGreeted bounds the connections that have not said yet what they are. Workers say it at once: beyond the limit the
	// one that has been silent for longest is closed.
	maxGreeted = 1024
)

// greet reads the handshake and hands the connection to the stream that waits for it.
func (c *Client) greet(conn net.Conn) {
	if !c.welcome(conn) {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(deadline(handshakeTimeout))
	reader := takeReader(conn, wire.PrefixSize+wire.MaxControl)
	handshake, err := readHandshake(reader)
	s := c.introduce(conn, handshake.Subject)
	if err != nil {
		_ = conn.Close()
		giveReader(reader)
		return
	}
	if s == nil {
		// Nobody waits any more: the request was cancelled meanwhile.
		c.turnAway(conn)
		giveReader(reader)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	reader.SetLimit(c.options.MaxMessage)
	s.arrived(conn, reader)
}

func readHandshake(reader *wire.MessageReader) (wire.Handshake, error) {
	message, err := reader.Next()
	if err != nil {
		return wire.Handshake{}, err
	}
	return wire.ParseHandshake(message.Header)
}

// welcome notes a connection that has said nothing yet; false when the client is closed.
func (c *Client) welcome(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if len(c.greeted) >= maxGreeted {
		var oldest net.Conn
		var since time.Time
		for have, at := range c.greeted {
			if oldest == nil || at.Before(since) {
				oldest, since = have, at
			}
		}
		delete(c.greeted, oldest)
		_ = oldest.Close()
	}
	c.greeted[conn] = time.Now()
	return true
}

// introduce ends the greeting and returns who waits for the subject; nil for nobody.
func (c *Client) introduce(conn net.Conn, subject string) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.greeted, conn)
	s := c.pending[subject]
	delete(c.pending, subject)
	return s
}

// turnAway tells a worker to stop the work that nobody wants any more.
func (c *Client) turnAway(conn net.Conn) {
	_ = conn.SetWriteDeadline(deadline(time.Second))
	_, _ = conn.Write(wire.AppendControlWord(nil, wire.Kill))
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	if !c.own(func() { drop(conn) }) {
		_ = conn.Close()
	}
}

// maxDropped bounds what is read of an answer that nobody wants, in bytes: what lies in the buffers on the way.
const maxDropped = 8 << 20

// drop reads a connection to its end, for at most a second: closing it with unread data would reset it, and the worker might
// never read the word that was sent.
func drop(conn net.Conn) {
	_ = conn.SetReadDeadline(deadline(time.Second))
	_, _ = io.CopyN(io.Discard, conn, maxDropped)
	_ = conn.Close()
}
