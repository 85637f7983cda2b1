package tcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"signalbox/inference"
	"signalbox/transport/wire"
)

// Call is one request at a worker. The handler answers by the methods and returns; nil ends the stream cleanly.
type Call struct {
	// Body is the request's body in Codec.
	Body  []byte
	Codec inference.Codec
	// ID names the request; Metadata came with it.
	ID       string
	Metadata map[string]string

	conn    net.Conn
	encoder wire.ItemEncoder
	buffer  []byte
}

// Handler serves one endpoint. ctx ends when the frontend cancels or goes away. An *inference.Error that is returned travels to
// the frontend; one of kind Disconnected breaks the connection off, as a dying worker does.
type Handler func(ctx context.Context, call *Call) error

// Generate returns a handler that decodes requests and streams what the engine answers.
func Generate(engine func(ctx context.Context, request *inference.Request) (inference.Stream, error)) Handler {
	return func(ctx context.Context, call *Call) error {
		request, err := wire.DecodeRequest(call.Body, call.Codec)
		if err != nil {
			return &inference.Error{Kind: inference.InvalidArgument, Message: err.Error(), Cause: err}
		}
		request.ID, request.Metadata = call.ID, call.Metadata
		stream, err := engine(ctx, request)
		if err != nil {
			return err
		}
		defer stream.Close()
		for {
			output, err := stream.Next(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := call.Emit(output); err != nil {
				return err
			}
			if !stream.Buffered() {
				if err := call.Flush(); err != nil {
					return err
				}
			}
		}
	}
}

// maxUnsent is how many bytes of items are gathered at most before they are sent.
const maxUnsent = 64 << 10

// Emit adds one item; Flush sends what was added. Much of it is sent at once.
func (c *Call) Emit(output *inference.Output) error {
	buffer, err := c.encoder.AppendOutput(c.buffer, output)
	c.buffer = buffer
	if err == nil && len(buffer) >= maxUnsent {
		return c.Flush()
	}
	return err
}

// EmitValue adds one item whose data is a value in the call's codec, without the wrapper of generation.
func (c *Call) EmitValue(value []byte) { c.buffer = c.encoder.AppendData(c.buffer, value) }

// Flush sends what was added.
func (c *Call) Flush() error {
	if len(c.buffer) == 0 {
		return nil
	}
	_, err := c.conn.Write(c.buffer)
	c.buffer = c.buffer[:0]
	return err
}

// Server is a worker's listener: all its endpoints in one.
type Server struct {
	options  Options
	listener net.Listener
	logger   *slog.Logger
	running  chan struct{}
	refusing chan struct{}

	mu       sync.Mutex
	handlers map[string]Handler
	conns    map[net.Conn]struct{}
	closed   bool
	wait     sync.WaitGroup
	base     context.Context
	cancel   context.CancelFunc
}

// NewServer starts to listen. Close ends it.
func NewServer(options Options, logger *slog.Logger) (*Server, error) {
	options = options.withDefaults()
	listener, err := listen(options)
	if err != nil {
		return nil, err
	}
	if logger == nil {
		logger = slog.Default()
	}
	base, cancel := context.WithCancel(context.Background())
	s := &Server{options: options, listener: listener, logger: logger, running: make(chan struct{}, options.MaxRunning), refusing: make(chan struct{}, maxRefusing),
		handlers: make(map[string]Handler), conns: make(map[net.Conn]struct{}), base: base, cancel: cancel}
	s.wait.Go(s.accept)
	return s, nil
}

// Address returns host:port as it is advertised.
func (s *Server) Address() string { return advertised(s.listener.Addr()) }

// Host returns the host part of the address: where others reach what listens on all of the machine's addresses.
func (s *Server) Host() string {
	host, _, _ := net.SplitHostPort(s.Address())
	return host
}

// Handle serves the endpoint path; a nil handler takes it away.
func (s *Server) Handle(path string, handler Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if handler == nil {
		delete(s.handlers, path)
		return
	}
	s.handlers[path] = handler
}

// Close ends all connections; running requests are cancelled.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.cancel()
	err := s.listener.Close()
	s.wait.Wait()
	return err
}

// Drain waits until no request runs, or until ctx ends; it tells whether none does. Taking away the handlers before keeps new ones out.
func (s *Server) Drain(ctx context.Context) bool {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if len(s.running) == 0 {
			return true
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return len(s.running) == 0
		}
	}
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			if s.base.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.conns[conn] = struct{}{}
		s.wait.Go(func() { s.serve(conn) })
		s.mu.Unlock()
	}
}

// ackTimeout bounds the write of an acknowledgement: a frontend that reads none is not served.
const ackTimeout = 10 * time.Second

// serve reads the requests of one connection until it ends, and acknowledges them in order.
func (s *Server) serve(conn net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		_ = conn.Close()
	}()
	reader := bufio.NewReaderSize(conn, 16<<10)
	for {
		frame, err := wire.ReadRequestFrame(reader, s.options.MaxMessage)
		if err != nil {
			if !errors.Is(err, io.EOF) && s.base.Err() == nil {
				s.logger.Debug("a request connection ended", "from", conn.RemoteAddr().String(), "error", err)
			}
			return
		}
		ack := wire.AppendAck(nil, s.take(frame))
		_ = conn.SetWriteDeadline(deadline(ackTimeout))
		if _, err := conn.Write(ack); err != nil {
			return
		}
	}
}

// take begins the request and returns the acknowledgement's text: "" for taken.
func (s *Server) take(frame wire.RequestFrame) string {
	s.mu.Lock()
	handler := s.handlers[frame.Path]
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return wire.UnavailableAck + " worker is shutting down"
	case handler == nil:
		return wire.UnavailableAck + " unknown endpoint " + frame.Path
	}
	select {
	case s.running <- struct{}{}:
	default:
		return wire.OverloadedAck + " worker at capacity"
	}
	s.wait.Go(func() {
		defer func() { <-s.running }()
		if err := s.answer(handler, frame); err != nil {
			s.logger.Debug("a request was not answered", "path", frame.Path, "error", err)
		}
	})
	return ""
}

// maxRefusing bounds the refused requests that are told so at one time; more are dropped, and the frontend's own patience ends them.
const maxRefusing = 256

// Take takes a request that came by another way than a connection: a two-part message for the endpoint path. It must not be
// changed afterwards. Such a way carries no refusal, so that the refused are called home and told.
func (s *Server) Take(path string, message []byte) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.wait.Add(1) // before Close can wait
	s.mu.Unlock()
	defer s.wait.Done()
	frame := wire.RequestFrame{Path: path, Payload: message}
	refusal := s.take(frame)
	if refusal == "" {
		return
	}
	select {
	case s.refusing <- struct{}{}:
	default:
		return
	}
	s.wait.Go(func() {
		defer func() { <-s.refusing }()
		if err := s.refuse(frame, refusal); err != nil {
			s.logger.Debug("a request was refused and could not be told", "path", path, "refusal", refusal, "error", err)
		}
	})
}

// refuse calls the frontend back and tells that the work has not begun.
func (s *Server) refuse(frame wire.RequestFrame, refusal string) error {
	control, _, conn, err := s.callHome(frame)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(s.base, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(deadline(ackTimeout))
	text := wire.AppendHandshake(nil, control.CallHome.Subject, wire.ResponseStream)
	text = wire.AppendPrologue(text, wire.Refused(refusal))
	if _, err := conn.Write(text); err != nil {
		return err
	}
	_, _ = wire.NewMessageReader(conn, wire.MaxControl).Next() // until the frontend closes
	return nil
}

// callHome reads the request's control message and connects to the frontend.
func (s *Server) callHome(frame wire.RequestFrame) (*wire.Control, wire.Message, net.Conn, error) {
	message, err := wire.ParseMessage(frame.Payload, s.options.MaxMessage)
	if err != nil {
		return nil, message, nil, err
	}
	control, err := wire.ParseControl(message.Header)
	if err != nil {
		return nil, message, nil, err
	}
	dialContext, cancelDial := context.WithTimeout(s.base, s.options.ConnectTimeout)
	conn, err := dial(dialContext, control.CallHome.Address, s.options.ClientTLS)
	cancelDial()
	if err != nil {
		return nil, message, nil, fmt.Errorf("call home to %s: %w", control.CallHome.Address, err)
	}
	return control, message, conn, nil
}

// answer calls the frontend back and runs the handler.
func (s *Server) answer(handler Handler, frame wire.RequestFrame) error {
	control, message, conn, err := s.callHome(frame)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(s.base)
	// A write to a frontend that does not read ends with the request.
	unblock := context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Now()) })
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watch(conn, cancel)
	}()
	defer func() {
		unblock()
		cancel()
		_ = conn.Close()
		<-watched
	}()
	call := &Call{Body: message.Data, Codec: control.Codec, ID: control.ID, Metadata: control.Metadata, conn: conn, encoder: wire.ItemEncoder{Codec: control.Codec}}
	call.buffer = wire.AppendHandshake(call.buffer, control.CallHome.Subject, wire.ResponseStream)
	call.buffer = wire.AppendPrologue(call.buffer, nil)
	if err := call.Flush(); err != nil {
		return err
	}
	err = handler(ctx, call)
	if err := s.conclude(ctx, call, err); err != nil {
		return err
	}
	// The frontend closes when it has read everything.
	select {
	case <-watched:
	case <-time.After(10 * time.Second):
	case <-s.base.Done():
	}
	return nil
}

// conclude ends the stream as the handler's result says.
func (s *Server) conclude(ctx context.Context, call *Call, result error) error {
	if ctx.Err() != nil {
		return nil // cancelled: the frontend expects nothing more
	}
	if result != nil {
		failure := wire.AsError(result)
		if failure.Kind == inference.Disconnected {
			_ = call.Flush()
			return call.conn.Close()
		}
		call.buffer = call.encoder.AppendFailure(call.buffer, failure)
	}
	call.buffer = call.encoder.AppendFinal(call.buffer)
	call.buffer = wire.AppendControlWord(call.buffer, wire.Sentinel)
	return call.Flush()
}

// watch cancels the request when the frontend says stop or kill, or goes away.
func (s *Server) watch(conn net.Conn, cancel context.CancelFunc) {
	defer cancel()
	reader := wire.NewMessageReader(conn, wire.MaxControl)
	for {
		message, err := reader.Next()
		if err != nil || wire.ParseControlWord(message.Header) != "" {
			return
		}
	}
}
