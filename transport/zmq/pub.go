package zmq

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// queueLimit is how many messages wait for a subscriber; one more is dropped for that subscriber alone, as ZeroMQ does.
const queueLimit = 100000

// handshakeTime bounds a peer's greeting.
const handshakeTime = 10 * time.Second

// Publisher is a PUB socket that listens. Close ends it.
type Publisher struct {
	listener net.Listener
	mu       sync.Mutex
	peers    map[*subscriber]struct{}
	closed   bool
	wait     sync.WaitGroup
	dropped  atomic.Uint64
}

// subscriber is one connected SUB socket.
type subscriber struct {
	conn   net.Conn
	mu     sync.Mutex
	topics map[string]int
	queue  chan []byte
}

// Listen starts a publisher at the address; port 0 lets the system choose.
func Listen(address string) (*Publisher, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("event publisher: %w", err)
	}
	p := &Publisher{listener: listener, peers: make(map[*subscriber]struct{})}
	p.wait.Go(p.accept)
	return p, nil
}

// Port returns the port that subscribers connect to.
func (p *Publisher) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Dropped counts messages that subscribers were too slow for.
func (p *Publisher) Dropped() uint64 { return p.dropped.Load() }

// Publish sends the message to everyone who subscribed to its first part. It never waits.
func (p *Publisher) Publish(parts ...[]byte) {
	wire := appendMessage(nil, parts)
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.peers {
		if !s.wants(parts[0]) {
			continue
		}
		select {
		case s.queue <- wire:
		default:
			p.dropped.Add(1)
		}
	}
}

// Close ends all connections.
func (p *Publisher) Close() error {
	p.mu.Lock()
	p.closed = true
	for s := range p.peers {
		_ = s.conn.Close()
	}
	p.mu.Unlock()
	err := p.listener.Close()
	p.wait.Wait()
	return err
}

func (p *Publisher) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		s := &subscriber{conn: conn, topics: make(map[string]int), queue: make(chan []byte, queueLimit)}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			_ = conn.Close()
			return
		}
		p.peers[s] = struct{}{}
		p.wait.Go(func() { p.serve(s) })
		p.mu.Unlock()
	}
}

// serve reads a subscriber's wishes until it leaves.
func (p *Publisher) serve(s *subscriber) {
	stop := make(chan struct{})
	var writer sync.WaitGroup
	defer func() {
		p.mu.Lock()
		delete(p.peers, s)
		p.mu.Unlock()
		_ = s.conn.Close()
		close(stop)
		writer.Wait()
	}()
	_ = s.conn.SetDeadline(time.Now().Add(handshakeTime))
	reader := bufio.NewReader(s.conn)
	if handshake(s.conn, reader, "PUB") != nil {
		return
	}
	_ = s.conn.SetDeadline(time.Time{})
	writer.Go(func() { s.write(stop) })
	for {
		flags, body, err := readFrame(reader)
		if err != nil {
			return
		}
		if flags&flagCommand != 0 || len(body) == 0 {
			continue
		}
		switch topic := string(body[1:]); body[0] {
		case 1:
			s.change(topic, 1)
		case 0:
			s.change(topic, -1)
		}
	}
}

// write sends what is queued until stop; a failure closes the connection, which ends the reader too.
func (s *subscriber) write(stop <-chan struct{}) {
	out := bufio.NewWriterSize(s.conn, 64<<10)
	for {
		select {
		case <-stop:
			return
		case message := <-s.queue:
			if _, err := out.Write(message); err != nil {
				_ = s.conn.Close()
				return
			}
			if len(s.queue) == 0 && out.Flush() != nil {
				_ = s.conn.Close()
				return
			}
		}
	}
}

func (s *subscriber) change(topic string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[topic] += by; s.topics[topic] <= 0 {
		delete(s.topics, topic)
	}
}

func (s *subscriber) wants(topic []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for prefix := range s.topics {
		if bytes.HasPrefix(topic, []byte(prefix)) {
			return true
		}
	}
	return false
}
