package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"signalbox/inference"
	"signalbox/transport/wire"
)

// stream is one answer. Before the worker calls home it waits for that; then Next reads the connection.
type stream struct {
	client   *Client
	subject  string
	workerID uint64
	decoder  wire.ItemDecoder

	home chan struct{} // closed when conn or failure is set

	mu           sync.Mutex
	conn         net.Conn
	reader       *wire.MessageReader
	stopWatching func() bool
	failure      error // why the stream can't go on
	ended        bool  // read to its clean end, or closed
	reading      bool  // Next reads the connection now

	// Only Next touches these.
	begun bool // the prologue was read
	final bool // the item that was returned last is the last
}

var readers = sync.Pool{New: func() any { return wire.NewMessageReader(nil, 0) }}

func takeReader(source io.Reader, limit int) *wire.MessageReader {
	r := readers.Get().(*wire.MessageReader)
	r.Reset(source, limit)
	return r
}

func giveReader(r *wire.MessageReader) {
	r.Reset(nil, 0)
	readers.Put(r)
}

func timestamp() string { return strconv.FormatInt(time.Now().UnixNano(), 10) }

func newStream(c *Client, target inference.Target, subject string, decoder wire.ItemDecoder) *stream {
	return &stream{client: c, subject: subject, workerID: target.WorkerID, decoder: decoder, home: make(chan struct{})}
}

// dispatch sends the request and waits until the worker takes it: by its acknowledgement, or by calling home. A connection that
// had died while nobody used it is replaced once.
func (s *stream) dispatch(ctx context.Context, p *pool, frame []byte) error {
	timer := time.NewTimer(s.client.options.AckTimeout)
	defer timer.Stop()
	for fresh := false; ; fresh = true {
		l, err := p.link(ctx, fresh)
		if err != nil {
			return err
		}
		timer.Reset(s.client.options.AckTimeout)
		sent := l.send(frame)
		select {
		case got := <-sent.reply:
			switch {
			case got.stale && !fresh:
				continue
			case got.err != nil:
				return &inference.Error{Kind: inference.CannotConnect, Message: "the connection ended before the worker took the request", Cause: got.err}
			case got.text != "":
				return wire.Refused(got.text)
			}
			return nil
		case <-s.home:
			return s.failed()
		case <-timer.C:
			l.fail(errSilent)
			return inference.Errorf(inference.ConnectionTimeout, "the worker did not take the request within %v", s.client.options.AckTimeout)
		case <-ctx.Done():
			l.withdraw(sent)
			return cancelled(ctx)
		}
	}
}

// watch ends the stream with the context.
func (s *stream) watch(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.stopWatching = context.AfterFunc(ctx, func() { _ = s.Close() })
	}
}

func (s *stream) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// arrived gives the stream its connection.
func (s *stream) arrived(conn net.Conn, reader *wire.MessageReader) {
	s.mu.Lock()
	if s.ended || s.failure != nil {
		s.mu.Unlock()
		s.client.turnAway(conn)
		giveReader(reader)
		return
	}
	s.conn, s.reader = conn, reader
	close(s.home)
	s.mu.Unlock()
}

// fail ends the wait of a stream that has no connection yet.
func (s *stream) fail(failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil && s.failure == nil && !s.ended {
		s.failure = failure
		close(s.home)
	}
}

// abort ends the stream, whatever its state; its reader is given the failure.
func (s *stream) abort(failure error) {
	s.fail(failure)
	s.mu.Lock()
	if s.failure == nil && !s.ended {
		s.failure = failure
	}
	s.mu.Unlock()
	s.end(false)
}

// Next implements inference.Stream.
func (s *stream) Next(ctx context.Context) (*inference.Output, error) {
	if !s.begun {
		if err := s.begin(ctx); err != nil {
			return nil, s.settle(err)
		}
		s.begun = true
	}
	if s.final {
		return nil, s.settle(io.EOF)
	}
	for {
		message, err := s.read()
		if err != nil {
			return nil, s.settle(s.broken(ctx, err))
		}
		if len(message.Data) == 0 {
			if wire.ParseControlWord(message.Header) == wire.Sentinel {
				return nil, s.settle(inference.Errorf(inference.Disconnected, "stream ended before generation completed"))
			}
			continue // header-only messages of a later version
		}
		item, err := s.decoder.Decode(message.Data)
		switch {
		case err != nil:
			return nil, s.settle(&inference.Error{Kind: inference.ProtocolViolation, Message: "the worker sent an item that cannot be read", Cause: err})
		case item.Failure != nil:
			return nil, s.settle(item.Failure)
		case item.Output != nil:
			s.final = item.Final
			return item.Output, nil
		case item.Final:
			return nil, s.settle(io.EOF)
		}
	}
}

// begin waits for the worker to call home and reads the prologue.
func (s *stream) begin(ctx context.Context) error {
	select {
	case <-s.home:
	default:
		patience := s.client.options.CallHomeTimeout
		if idle := s.client.options.IdleTimeout; idle > 0 {
			patience = min(patience, idle) // a worker that stalls may do so here
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-s.home:
		case <-ctx.Done():
			return cancelled(ctx)
		case <-timer.C:
			return inference.Errorf(inference.ResponseTimeout, "the worker took the request and did not call home within %v", patience)
		}
	}
	if err := s.failed(); err != nil {
		return err
	}
	message, err := s.read()
	if err != nil {
		return s.broken(ctx, err)
	}
	failure, err := wire.ParsePrologue(message.Header)
	if err != nil {
		return &inference.Error{Kind: inference.ProtocolViolation, Message: "the worker sent a prologue that cannot be read", Cause: err}
	}
	if failure != nil {
		return failure
	}
	return nil
}

// read returns the next message. Whoever ends the stream meanwhile interrupts it, and leaves the connection to it.
func (s *stream) read() (wire.Message, error) {
	s.mu.Lock()
	conn, reader := s.conn, s.reader
	if s.ended || reader == nil {
		s.mu.Unlock()
		return wire.Message{}, net.ErrClosed
	}
	if idle := s.client.options.IdleTimeout; idle > 0 && !reader.Buffered() {
		_ = conn.SetReadDeadline(deadline(idle))
	}
	s.reading = true
	s.mu.Unlock()
	message, err := reader.Next()
	s.mu.Lock()
	s.reading = false
	ended := s.ended
	if ended {
		s.reader = nil
	}
	s.mu.Unlock()
	if ended {
		giveReader(reader)
		s.client.turnAway(conn)
		return wire.Message{}, net.ErrClosed
	}
	return message, err
}

// broken words a failed read.
func (s *stream) broken(ctx context.Context, err error) error {
	var format *wire.FormatError
	s.mu.Lock()
	closed, failure := s.ended, s.failure
	s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return cancelled(ctx)
	case failure != nil:
		return failure
	case closed:
		return inference.Errorf(inference.Cancelled, "the stream was closed")
	case errors.As(err, &format):
		return &inference.Error{Kind: inference.ProtocolViolation, Message: "the worker sent a frame that cannot be read", Cause: err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return inference.Errorf(inference.ResponseTimeout, "the worker sent nothing for %v", s.client.options.IdleTimeout)
	case errors.Is(err, net.ErrClosed):
		return inference.Errorf(inference.Cancelled, "the stream was closed")
	}
	return &inference.Error{Kind: inference.Disconnected, Message: "stream ended before generation completed", Cause: err}
}

// settle ends the stream with the error that its reader is given.
func (s *stream) settle(err error) error {
	if failure, ok := err.(*inference.Error); ok && failure.WorkerID == 0 {
		failure.WorkerID = s.workerID
	}
	s.end(err == io.EOF)
	return err
}

// Buffered implements inference.Stream.
func (s *stream) Buffered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reader != nil && !s.ended && s.begun && s.reader.Buffered()
}

// Close implements inference.Stream.
func (s *stream) Close() error {
	s.end(false)
	return nil
}

// end closes the connection once; an answer that is not complete is cancelled at the worker. Only who reads may say complete:
// the reader's memory is given away then.
func (s *stream) end(complete bool) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	conn, stopWatching, reading := s.conn, s.stopWatching, s.reading
	if conn == nil && s.failure == nil { // somebody may wait for the worker to call home
		s.failure = inference.Errorf(inference.Cancelled, "the stream was closed")
		close(s.home)
	}
	if reading {
		_ = conn.SetReadDeadline(time.Now()) // who reads does the rest
	}
	if complete {
		giveReader(s.reader)
		s.reader = nil
	}
	s.mu.Unlock()
	if stopWatching != nil {
		stopWatching()
	}
	s.client.forget(s)
	switch {
	case conn == nil || reading:
	case complete:
		_ = conn.Close()
	default:
		s.client.turnAway(conn)
	}
}
