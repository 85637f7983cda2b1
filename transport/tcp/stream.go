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
	client       *Client
	subject      string
	workerID     uint64
	decoder      wire.ItemDecoder
	stopWatching func() bool

	home chan struct{} // closed when conn or failure is set

	mu      sync.Mutex
	conn    net.Conn
	reader  *wire.MessageReader
	failure error // why the stream can't go on
	ended   bool  // read to its clean end, or closed

	begun bool // the prologue was read; only Next touches it
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

// dispatch sends the request and waits until the worker takes it: by its acknowledgement, or by calling home.
func (s *stream) dispatch(ctx context.Context, p *pool, frame []byte) error {
	reply, err := p.send(ctx, frame)
	if err != nil {
		return err
	}
	timer := time.NewTimer(s.client.options.AckTimeout)
	defer timer.Stop()
	select {
	case got := <-reply:
		if got.err != nil {
			return &inference.Error{Kind: inference.CannotConnect, Message: "the worker closed the connection before it took the request", Cause: got.err}
		}
		if got.text != "" {
			return inference.Errorf(wire.KindOfAck(got.text), "the worker refused the request: %.200s", got.text)
		}
		return nil
	case <-s.home:
		return s.failed()
	case <-timer.C:
		return inference.Errorf(inference.ConnectionTimeout, "the worker did not take the request within %v", s.client.options.AckTimeout)
	case <-ctx.Done():
		return cancelled(ctx)
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
		_, _ = conn.Write(wire.AppendControlWord(nil, wire.Kill))
		_ = conn.Close()
		giveReader(reader)
		return
	}
	s.conn, s.reader = conn, reader
	close(s.home)
	s.mu.Unlock()
}

// fail ends a stream that has no connection yet.
func (s *stream) fail(failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil && s.failure == nil && !s.ended {
		s.failure = failure
		close(s.home)
	}
}

// Next implements inference.Stream.
func (s *stream) Next(ctx context.Context) (*inference.Output, error) {
	if !s.begun {
		if err := s.begin(ctx); err != nil {
			return nil, s.settle(err)
		}
		s.begun = true
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
		timer := time.NewTimer(s.client.options.CallHomeTimeout)
		defer timer.Stop()
		select {
		case <-s.home:
		case <-ctx.Done():
			return cancelled(ctx)
		case <-timer.C:
			return inference.Errorf(inference.ResponseTimeout, "the worker took the request and did not call home within %v", s.client.options.CallHomeTimeout)
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

func (s *stream) read() (wire.Message, error) {
	s.mu.Lock()
	conn, reader := s.conn, s.reader
	if s.ended || reader == nil {
		s.mu.Unlock()
		return wire.Message{}, net.ErrClosed
	}
	s.mu.Unlock()
	if idle := s.client.options.IdleTimeout; idle > 0 && !reader.Buffered() {
		_ = conn.SetReadDeadline(time.Now().Add(idle))
	}
	return reader.Next()
}

// broken words a failed read.
func (s *stream) broken(ctx context.Context, err error) error {
	var format *wire.FormatError
	s.mu.Lock()
	closed := s.ended
	s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return cancelled(ctx)
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
	s.end(errors.Is(err, io.EOF))
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

// end closes the connection once; an answer that is not complete is cancelled at the worker.
func (s *stream) end(complete bool) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	conn := s.conn
	s.mu.Unlock()
	if s.stopWatching != nil {
		s.stopWatching()
	}
	if conn == nil {
		s.client.forget(s.subject)
		return
	}
	if complete {
		_ = conn.Close()
		s.recycle()
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(wire.AppendControlWord(nil, wire.Kill))
	// Closing with unread data would reset the connection, and the worker might never read the word: what is on its way is read
	// and dropped until the worker closes, for a moment.
	_ = conn.SetReadDeadline(time.Now())
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	if !s.client.own(func() { drop(conn) }) {
		_ = conn.Close()
	}
}

// recycle returns the reader; only the goroutine that reads may call it.
func (s *stream) recycle() {
	s.mu.Lock()
	reader := s.reader
	s.reader = nil
	s.mu.Unlock()
	giveReader(reader)
}

// drop reads a connection to its end, for at most a second.
func drop(conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}
