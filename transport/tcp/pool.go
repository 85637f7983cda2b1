package tcp

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"sync"

	"signalbox/inference"
	"signalbox/transport/wire"
)

// pool holds the request connections to one worker process.
type pool struct {
	client  *Client
	address string
	mu      sync.Mutex
	links   []*link
	dialing int
}

// link is one request connection. Requests are written by whoever sends; acknowledgements come back in the same order and are
// handed out by the link's goroutine, which ends with the connection.
type link struct {
	pool    *pool
	conn    net.Conn
	mu      sync.Mutex
	waiting []chan ack // oldest first; guarded by mu
	failed  error      // guarded by mu
}

// ack is a worker's reply to a request.
type ack struct {
	text string
	err  error
}

// pipelined is how many requests may wait on one connection before another one is opened.
const pipelined = 4

// send writes the frame on some connection and returns where its acknowledgement will arrive.
func (p *pool) send(ctx context.Context, frame []byte) (<-chan ack, error) {
	for {
		l, err := p.link(ctx)
		if err != nil {
			return nil, err
		}
		reply, err := l.send(frame)
		if err == nil {
			return reply, nil
		}
		// The connection had died while idle: the frame never left. Another one is tried; a dead worker fails the dial.
		p.remove(l)
	}
}

func (p *pool) link(ctx context.Context) (*link, error) {
	p.mu.Lock()
	var best *link
	least := 0
	for _, l := range p.links {
		if load := l.load(); best == nil || load < least {
			best, least = l, load
		}
	}
	if best != nil && (least < pipelined || len(p.links)+p.dialing >= p.client.options.PoolSize) {
		p.mu.Unlock()
		return best, nil
	}
	p.dialing++
	p.mu.Unlock()
	l, err := p.dial(ctx)
	p.mu.Lock()
	p.dialing--
	if err == nil {
		p.links = append(p.links, l)
	}
	p.mu.Unlock()
	return l, err
}

func (p *pool) dial(ctx context.Context) (*link, error) {
	c := p.client
	select {
	case c.dials <- struct{}{}:
		defer func() { <-c.dials }()
	case <-ctx.Done():
		return nil, cancelled(ctx)
	}
	dialContext, cancel := context.WithTimeout(ctx, c.options.ConnectTimeout)
	defer cancel()
	conn, err := dial(dialContext, p.address, c.options.ClientTLS)
	if err != nil {
		if ctx.Err() != nil {
			return nil, cancelled(ctx)
		}
		return nil, &inference.Error{Kind: inference.CannotConnect, Message: "connect to worker at " + p.address, Cause: err}
	}
	l := &link{pool: p, conn: conn}
	if !c.own(func() { l.read() }) {
		_ = conn.Close()
		return nil, inference.Errorf(inference.Unavailable, "the transport is closed")
	}
	return l, nil
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
	for i, have := range p.links {
		if have == l {
			p.links = append(p.links[:i:i], p.links[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	_ = l.conn.Close()
}

func (p *pool) close() {
	p.mu.Lock()
	links := p.links
	p.links = nil
	p.mu.Unlock()
	for _, l := range links {
		_ = l.conn.Close()
	}
}

func (l *link) load() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

func (l *link) send(frame []byte) (<-chan ack, error) {
	reply := make(chan ack, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return nil, l.failed
	}
	l.waiting = append(l.waiting, reply)
	if _, err := l.conn.Write(frame); err != nil {
		l.waiting = l.waiting[:len(l.waiting)-1]
		l.failed = err
		return nil, err
	}
	return reply, nil
}

// read hands out acknowledgements until the connection ends.
func (l *link) read() {
	reader := bufio.NewReaderSize(l.conn, 512)
	for {
		text, err := wire.ReadAck(reader)
		l.mu.Lock()
		if err != nil {
			l.failed = err
			for _, reply := range l.waiting {
				reply <- ack{err: err}
			}
			l.waiting = nil
			l.mu.Unlock()
			l.pool.remove(l)
			return
		}
		if len(l.waiting) > 0 {
			l.waiting[0] <- ack{text: text}
			l.waiting = l.waiting[1:]
		}
		l.mu.Unlock()
	}
}

func cancelled(ctx context.Context) error {
	return &inference.Error{Kind: inference.Cancelled, Message: "the request was cancelled", Cause: ctx.Err()}
}
