package tcp

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"

	"signalbox/inference"
)

// pool holds the request connections to one worker process.
type pool struct {
	client  *Client
	address string
	senders int // requests that are being sent; guarded by client.mu

	mu     sync.Mutex
	links  []*link
	dials  []*dialing
	closed bool
}

// dialing is a connection that is being made. Its goroutine belongs to the client and not to a request: one that is cancelled
// takes the connection from nobody, and the requests of a burst share a few.
type dialing struct {
	done chan struct{} // closed when link or err is set
	link *link
	err  error

	waiting int // requests; guarded by the pool's mu
}

const (
	// pipelined is how many requests may wait on one connection before another one is opened.
	pipelined = 4
	// dialsPerHost bounds the connections that are being made to one host, so that one that does not answer leaves room for
	// the others.
	dialsPerHost = 8
)

// link returns a connection for one more request: one with room, else a new one. fresh demands a new one.
func (p *pool) link(ctx context.Context, fresh bool) (*link, error) {
	p.mu.Lock()
	var best *link
	least := 0
	for _, l := range p.links {
		if load, alive := l.load(); alive && (best == nil || load < least) {
			best, least = l, load
		}
	}
	full := len(p.links)+len(p.dials) >= p.client.options.PoolSize
	if best != nil && (full || least < pipelined && !fresh) {
		p.mu.Unlock()
		return best, nil
	}
	d, begun := p.join(full)
	p.mu.Unlock()
	if begun && !p.client.own(func() { p.connect(d) }) {
		p.conclude(d, nil, net.ErrClosed)
	}
	select {
	case <-d.done:
	case <-ctx.Done():
		return nil, cancelled(ctx)
	}
	if d.err != nil {
		return nil, &inference.Error{Kind: inference.CannotConnect, Message: "connect to worker at " + p.address, Cause: d.err}
	}
	return d.link, nil
}

// join returns a dial with room for one more request, or a new one that is to begin. The caller holds mu.
func (p *pool) join(full bool) (d *dialing, begun bool) {
	for _, have := range p.dials {
		if d == nil || have.waiting < d.waiting {
			d = have
		}
	}
	if d == nil || d.waiting >= pipelined && !full && len(p.dials) < dialsPerHost {
		d, begun = &dialing{done: make(chan struct{})}, true
		p.dials = append(p.dials, d)
	}
	d.waiting++
	return d, begun
}

// connect makes the connection of one dial.
func (p *pool) connect(d *dialing) {
	conn, err := p.dial()
	if err != nil {
		p.conclude(d, nil, err)
		return
	}
	l := &link{pool: p, conn: conn, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if !p.client.own(l.read) || !p.client.own(l.write) {
		l.fail(net.ErrClosed)
		p.conclude(d, nil, net.ErrClosed)
		return
	}
	p.conclude(d, l, nil)
}

// conclude ends a dial with its link or its error.
func (p *pool) conclude(d *dialing, l *link, err error) {
	d.link, d.err = l, err
	p.mu.Lock()
	p.dials = slices.DeleteFunc(p.dials, func(have *dialing) bool { return have == d })
	closed := p.closed
	if l != nil && !closed {
		if _, alive := l.load(); alive { // a dead one has been removed already, before it was here
			p.links = append(p.links, l)
		}
	}
	p.mu.Unlock()
	if l != nil && closed {
		l.fail(net.ErrClosed)
	}
	close(d.done)
	p.client.prune(p)
}

func (p *pool) dial() (net.Conn, error) {
	c := p.client
	ctx, cancel := context.WithTimeout(c.base, c.options.ConnectTimeout)
	defer cancel()
	select {
	case c.dials <- struct{}{}:
		defer func() { <-c.dials }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// The wait for a slot takes nothing from the dial's own time.
	ctx, cancel = context.WithTimeout(c.base, c.options.ConnectTimeout)
	defer cancel()
	return dial(ctx, p.address, c.options.ClientTLS)
}

func dial(ctx context.Context, address string, config *tls.Config) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil || config == nil {
		return conn, err
	}
	secured := config.Clone()
	if secured.ServerName == "" {
		secured.ServerName, _, _ = net.SplitHostPort(address)
	}
	wrapped := tls.Client(conn, secured)
	if err := wrapped.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return wrapped, nil
}

func (p *pool) remove(l *link) {
	p.mu.Lock()
	p.links = slices.DeleteFunc(p.links, func(have *link) bool { return have == l })
	p.mu.Unlock()
	p.client.prune(p)
}

// idle tells whether the pool holds nothing. The caller holds client.mu.
func (p *pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.senders == 0 && len(p.links) == 0 && len(p.dials) == 0
}

func (p *pool) close() {
	p.mu.Lock()
	links := slices.Clone(p.links)
	p.closed = true
	p.mu.Unlock()
	for _, l := range links {
		l.fail(net.ErrClosed)
	}
}

func cancelled(ctx context.Context) error {
	return &inference.Error{Kind: inference.Cancelled, Message: "the request was cancelled", Cause: ctx.Err()}
}

func closedError() error {
	return inference.Errorf(inference.Unavailable, "the transport is closed")
}

// deadline is when an operation that begins now must have ended.
func deadline(limit time.Duration) time.Time { return time.Now().Add(limit) }
