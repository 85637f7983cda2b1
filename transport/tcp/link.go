package tcp

import (
	"bufio"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"signalbox/transport/wire"
)

// link is one request connection. Two goroutines live as long as it does: one writes the frames that wait, so that a worker
// that reads slowly holds up no request that is cancelled meanwhile, the other hands out acknowledgements, which come in the
// order of the requests.
type link struct {
	pool *pool
	conn net.Conn
	wake chan struct{} // there are frames to write
	done chan struct{} // closed with the link

	mu      sync.Mutex
	frames  []*sending // not yet written, oldest first
	waiting []*sending // not yet acknowledged, oldest first; includes those in frames
	proven  bool       // a request was acknowledged
	failed  error
}

// sending is one request on a link.
type sending struct {
	frame []byte
	reply chan ack // of capacity 1
}

// ack is a worker's reply to a request.
type ack struct {
	text string
	err  error
	// stale tells that the connection had served before and was found dead: an idle one that the peer, or something between,
	// had dropped. Nothing speaks against the worker then.
	stale bool
}

// load is how many requests wait for their acknowledgement; false for a link that has ended.
func (l *link) load() (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting), l.failed == nil
}

// send queues the frame; its acknowledgement arrives in reply.
func (l *link) send(frame []byte) *sending {
	s := &sending{frame: frame, reply: make(chan ack, 1)}
	l.mu.Lock()
	if l.failed != nil {
		s.reply <- ack{err: l.failed, stale: l.proven}
		l.mu.Unlock()
		return s
	}
	l.frames = append(l.frames, s)
	l.waiting = append(l.waiting, s)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return s
}

// withdraw takes a frame back if it hasn't been written yet.
func (l *link) withdraw(s *sending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(l.frames, s); at >= 0 {
		l.frames = slices.Delete(l.frames, at, at+1)
		l.waiting = slices.DeleteFunc(l.waiting, func(have *sending) bool { return have == s })
	}
}

// write sends what waits, all at once, until the link ends.
func (l *link) write() {
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
		l.mu.Lock()
		batch := make(net.Buffers, len(l.frames))
		for i, s := range l.frames {
			batch[i], s.frame = s.frame, nil
		}
		l.frames = l.frames[:0]
		l.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		_ = l.conn.SetWriteDeadline(deadline(l.pool.client.options.AckTimeout))
		written, err := batch.WriteTo(l.conn)
		l.pool.client.sent.Add(uint64(written))
		if err != nil {
			l.fail(err)
			return
		}
	}
}

var errUnasked = errors.New("the worker acknowledged a request that it was not sent")

// read hands out acknowledgements until the connection ends.
func (l *link) read() {
	reader := bufio.NewReaderSize(l.conn, 512)
	for {
		text, err := wire.ReadAck(reader)
		if err == nil {
			l.pool.client.received.Add(uint64(wire.PrefixOfAck + len(text)))
			err = l.acknowledge(text)
		}
		if err != nil {
			l.fail(err)
			return
		}
	}
}

func (l *link) acknowledge(text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == len(l.frames) { // nothing was written that isn't acknowledged
		return errUnasked
	}
	l.waiting[0].reply <- ack{text: text}
	l.waiting = slices.Delete(l.waiting, 0, 1)
	l.proven = true
	return nil
}

// fail ends the link, once; who waits is told why.
func (l *link) fail(reason error) {
	l.mu.Lock()
	if l.failed != nil {
		l.mu.Unlock()
		return
	}
	l.failed = reason
	var format *wire.FormatError
	stale := l.proven && !errors.As(reason, &format) && !errors.Is(reason, errUnasked) && !errors.Is(reason, errSilent)
	for _, s := range l.waiting {
		s.reply <- ack{err: reason, stale: stale}
	}
	l.waiting, l.frames = nil, nil
	close(l.done)
	l.mu.Unlock()
	_ = l.conn.SetDeadline(time.Now()) // a write under way ends; closing a TLS connection waits for it
	_ = l.conn.Close()
	l.pool.remove(l)
}

// errSilent ends a connection whose worker did not acknowledge in time: it is half open, or the worker hangs.
var errSilent = errors.New("the worker did not acknowledge an earlier request in time")
