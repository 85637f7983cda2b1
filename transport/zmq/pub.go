package zmq

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// queueLimit and queueBytes bound what waits for one subscriber, in messages and in bytes; a message too many is dropped for
	// that subscriber alone, as ZeroMQ does at its high-water mark.
	queueLimit = 100000
	queueBytes = 256 << 20
	// topicLimit and requestLimit bound what a subscriber may ask for: topics, and the bytes of one.
	topicLimit   = 1024
	requestLimit = 4096
)

// Publisher is a PUB socket that listens. Close ends it.
type Publisher struct {
	listener net.Listener
	limit    int // queueBytes
	dropped  atomic.Uint64

	mu     sync.Mutex
	peers  map[*subscriber]struct{}
	closed bool
	wait   sync.WaitGroup
}

// subscriber is one connected SUB socket.
type subscriber struct {
	conn  net.Conn
	limit int           // of bytes
	wake  chan struct{} // holds one token when something waits

	mu      sync.Mutex
	topics  map[string]int
	waiting net.Buffers
	bytes   int
}

// Listen starts a publisher at the address; port 0 lets the system choose.
func Listen(address string) (*Publisher, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	listener, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("event publisher: %w", err)
	}
	p := &Publisher{listener: listener, limit: queueBytes, peers: make(map[*subscriber]struct{})}
	p.wait.Go(p.accept)
	return p, nil
}

// Port returns the port that subscribers connect to.
func (p *Publisher) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Dropped counts messages that subscribers were too slow for.
func (p *Publisher) Dropped() uint64 { return p.dropped.Load() }

// Subscribers counts connected sockets that have subscribed to something.
func (p *Publisher) Subscribers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := 0
	for s := range p.peers {
		s.mu.Lock()
		if len(s.topics) > 0 {
			count++
		}
		s.mu.Unlock()
	}
	return count
}

// Publish sends the message to everyone who subscribed to a prefix of its first part. It never waits. The parts are copied.
func (p *Publisher) Publish(parts ...[]byte) {
	if len(parts) == 0 {
		return
	}
	topic := string(parts[0])
	var wire []byte // made for the first subscriber, shared by all
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.peers {
		s.mu.Lock()
		if s.wants(topic) {
			if wire == nil {
				size := 0
				for _, part := range parts {
					size += 9 + len(part)
				}
				wire = appendMessage(make([]byte, 0, size), parts)
			}
			if !s.queue(wire) {
				p.dropped.Add(1)
			}
		}
		s.mu.Unlock()
	}
}

// Close ends all connections; what waits for subscribers is dropped.
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

// accept takes subscribers until the listener closes.
func (p *Publisher) accept() {
	for {
		conn, err := p.listener.Accept()
		p.mu.Lock()
		switch {
		case p.closed:
			p.mu.Unlock()
			if err == nil {
				_ = conn.Close()
			}
			return
		case err != nil:
			p.mu.Unlock()
			time.Sleep(10 * time.Millisecond) // out of file descriptors, most likely: let some go
			continue
		}
		s := &subscriber{conn: conn, limit: p.limit, wake: make(chan struct{}, 1), topics: make(map[string]int)}
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
	reader := &frameReader{source: bufio.NewReader(s.conn), limit: requestLimit}
	if handshake(s.conn, reader, "PUB") != nil {
		return
	}
	_ = s.conn.SetDeadline(time.Time{})
	writer.Go(func() { s.write(stop) })
	for {
		parts, err := reader.message(s.command)
		if err != nil {
			return
		}
		if request := parts[0]; len(request) > 0 && request[0] <= 1 {
			if !s.change(string(request[1:]), request[0] == 1) {
				return // asks for too much
			}
		}
	}
}

// command answers heartbeats, and takes the subscriptions that later versions write as commands.
func (s *subscriber) command(name string, data []byte) error {
	switch name {
	case "PING":
		s.mu.Lock()
		s.queue(pong(data))
		s.mu.Unlock()
	case "SUBSCRIBE", "CANCEL":
		if !s.change(string(data), name == "SUBSCRIBE") {
			return fmt.Errorf("more than %d topics", topicLimit)
		}
	}
	return nil
}

// queue adds a message to what waits; false when there is no room. The caller holds mu.
func (s *subscriber) queue(wire []byte) bool {
	if len(s.waiting) >= queueLimit || s.bytes+len(wire) > s.limit {
		return false
	}
	s.waiting = append(s.waiting, wire)
	s.bytes += len(wire)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// write sends what waits until stop, all of it at once; a failure closes the connection, which ends the reader too.
func (s *subscriber) write(stop <-chan struct{}) {
	var spare net.Buffers
	for {
		select {
		case <-stop:
			return
		case <-s.wake:
		}
		s.mu.Lock()
		batch := s.waiting
		s.waiting, s.bytes = spare[:0], 0
		s.mu.Unlock()
		out := batch // WriteTo consumes the slice that it is called on
		if _, err := out.WriteTo(s.conn); err != nil {
			_ = s.conn.Close()
			return
		}
		clear(batch)
		spare = batch[:0]
		if cap(spare) > 1024 {
			spare = nil
		}
	}
}

// change adds or takes away one subscription; false when there are too many.
func (s *subscriber) change(topic string, add bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case add:
		s.topics[topic]++
	case s.topics[topic] > 1:
		s.topics[topic]--
	default:
		delete(s.topics, topic)
	}
	return len(s.topics) <= topicLimit
}

// wants tells whether the subscriber asked for the topic. The caller holds mu.
func (s *subscriber) wants(topic string) bool {
	for prefix := range s.topics {
		if strings.HasPrefix(topic, prefix) {
			return true
		}
	}
	return false
}
