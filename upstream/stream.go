package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/inference"
)

// dialect reads the events of one kind of answer.
type dialect interface {
	// event appends what an event brings to the stream's queue. An *inference.Error ends the stream as it is.
	event(s *stream, data []byte) error
}

// stream is one answer on its way. It implements [inference.Stream].
type stream struct {
	client  *Client
	server  *Server
	context context.Context
	cancel  context.CancelCauseFunc
	body    io.ReadCloser
	events  eventReader
	whole   bool // the answer is one document, no stream
	reading dialect
	idle    *time.Timer // nil for none

	stopWatching func() bool // the server's going
	received     atomic.Uint64
	leaving      struct {
		sync.Mutex
		timer    *time.Timer // nil while the server is there
		released bool
	}

	queue []inference.Output
	head  int // how many of queue were handed out
	ids   []uint32
	// choices is what the dialect remembers of each choice; expected is how many there will be, finished how many have ended.
	choices            []choiceState
	expected, finished int
	usageFollows       bool // a dialect's events end with one that has usage
	held               bool // the dialect wants to see one more event before the queue is read

	pending chan struct{} // closed when a read that goes on is done; nil for none
	data    []byte        // what it read
	readErr error
	ended   error // why there is nothing more
	clean   atomic.Bool
	closing sync.Once
}

// choiceState is what a dialect remembers of a choice.
type choiceState struct {
	tokens uint32 // told so far
	done   bool
}

// maxChoices bounds the index of a choice.
const maxChoices = 128

func (s *stream) begin(answer *http.Response) {
	if s.idle != nil {
		s.idle.Stop()
	}
	s.body = answer.Body
	s.events.source = answer.Body
	s.whole = !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream")
}

// push appends an output for the dialect to fill in.
func (s *stream) push() *inference.Output {
	s.queue = append(s.queue, inference.Output{})
	return &s.queue[len(s.queue)-1]
}

// choice returns the memory of a choice; nil for an index that is out of reason.
func (s *stream) choice(index uint32) *choiceState {
	if index >= maxChoices {
		return nil
	}
	for int(index) >= len(s.choices) {
		s.choices = append(s.choices, choiceState{})
	}
	return &s.choices[index]
}

// finish notes that a choice has ended.
func (s *stream) finish(c *choiceState) {
	if !c.done {
		c.done = true
		s.finished++
	}
}

// Next implements [inference.Stream].
func (s *stream) Next(ctx context.Context) (*inference.Output, error) {
	for {
		if s.head < len(s.queue) && !s.holding() {
			s.head++
			return &s.queue[s.head-1], nil
		}
		if s.ended != nil {
			return nil, s.ended
		}
		if s.head == len(s.queue) {
			s.queue, s.head, s.ids = s.queue[:0], 0, s.ids[:0]
		}
		data, err := s.read(ctx)
		switch {
		case err == errGoesOn:
			return nil, &inference.Error{Kind: inference.KindOf(ctx.Err()), Message: "server " + s.server.URL, Cause: ctx.Err()}
		case err == io.EOF:
			s.end()
		case err != nil:
			s.ended = unreachable(s.context, s.server, err)
		case string(data) == "[DONE]":
			s.end()
		default:
			if err := s.reading.event(s, data); err != nil {
				s.ended = s.wrong(err)
			} else if s.whole {
				s.end()
			}
		}
	}
}

// holding tells whether the last word is held back: usage comes in an event behind the one that ends the answer, and who reads the end may
// go at once.
func (s *stream) holding() bool {
	return (s.held || s.usageFollows && s.finished >= s.expected) && s.ended == nil
}

// usage notes that usage has come, and with it all that is worth waiting for. It belongs to the last output, if there is one.
func (s *stream) usage(u *inference.Usage) {
	s.usageFollows = false
	if s.finished >= s.expected {
		s.clean.Store(true)
	}
	if s.head == len(s.queue) {
		s.push()
	}
	s.queue[len(s.queue)-1].Usage = u
}

// wrong makes an error of what a dialect cannot read.
func (s *stream) wrong(err error) error {
	if known, ok := err.(*inference.Error); ok {
		known.WorkerID = s.server.ID
		return known
	}
	return &inference.Error{Kind: inference.ProtocolViolation, WorkerID: s.server.ID, Message: "server " + s.server.URL, Cause: err}
}

// end is the end of the stream: a clean one when all choices have ended, or when there is no word about ends at all.
func (s *stream) end() {
	if _, opaque := s.reading.(asItIs); !opaque && s.finished < s.expected {
		s.ended = &inference.Error{Kind: inference.StreamIncomplete, WorkerID: s.server.ID, Message: "server " + s.server.URL + " ended its answer before it was complete"}
		return
	}
	s.ended = io.EOF
	s.clean.Store(true)
}

// errGoesOn tells that the caller's time is up while the stream goes on.
var errGoesOn = errors.New("the stream goes on")

// read returns the next event's data. A caller whose time is limited leaves without disturbing the stream: the read goes on meanwhile.
func (s *stream) read(ctx context.Context) ([]byte, error) {
	if s.pending == nil {
		if _, limited := ctx.Deadline(); !limited || s.events.buffered() {
			return s.readEvent()
		}
		pending := make(chan struct{})
		s.pending = pending
		s.client.wait.Go(func() { // ends with the event, or with the stream
			defer close(pending)
			s.data, s.readErr = s.readEvent()
		})
	}
	select {
	case <-s.pending:
		s.pending = nil
		return s.data, s.readErr
	case <-ctx.Done():
		return nil, errGoesOn
	}
}

func (s *stream) readEvent() ([]byte, error) {
	if s.idle != nil {
		s.idle.Reset(s.client.options.IdleTimeout)
		defer s.idle.Stop() // a client that takes its time is not the server's silence
	}
	defer s.received.Add(1)
	if s.whole {
		return s.events.all()
	}
	return s.events.next()
}

// Buffered implements [inference.Stream].
func (s *stream) Buffered() bool {
	return s.head < len(s.queue) && !s.holding() || s.ended != nil || s.pending == nil && s.events.buffered()
}

// await ends the stream of a server that has left, once it brings nothing any more.
func (s *stream) await() {
	s.leaving.Lock()
	defer s.leaving.Unlock()
	if s.leaving.released {
		return
	}
	before := s.received.Load()
	s.leaving.timer = time.AfterFunc(s.client.options.Grace, func() {
		if s.received.Load() == before {
			s.cancel(context.Cause(s.server.gone))
			return
		}
		s.await()
	})
}

// release ends what watches the stream.
func (s *stream) release() {
	s.stopWatching()
	s.leaving.Lock()
	s.leaving.released = true
	if s.leaving.timer != nil {
		s.leaving.timer.Stop()
	}
	s.leaving.Unlock()
	if s.idle != nil {
		s.idle.Stop()
	}
}

// Close implements [inference.Stream]. Before the end it breaks the connection off, which is how servers learn that nobody waits.
func (s *stream) Close() error {
	s.closing.Do(func() {
		s.release()
		if !s.clean.Load() {
			s.cancel(nil)
			_ = s.body.Close() // it is broken off
			return
		}
		s.client.wait.Go(func() { // ends by its own deadline
			deadline := time.AfterFunc(drainTime, func() { s.cancel(nil) })
			_, _ = io.Copy(io.Discard, io.LimitReader(s.body, firstBuffer))
			_ = s.body.Close()
			deadline.Stop()
			s.cancel(nil)
		})
	})
	return nil
}

// asItIs hands events out as they are.
type asItIs struct{}

// event implements dialect.
func (asItIs) event(s *stream, data []byte) error {
	if failure := failureIn(s, data); failure != nil {
		return failure
	}
	s.push().Body = data
	return nil
}

// failureIn is the error that an event tells of instead of an answer; nil for none.
func failureIn(s *stream, data []byte) error {
	scanner := scan{text: data}
	if !scanner.enter('{') {
		return nil
	}
	// It is told of first, or after the kind of object.
	for range 2 {
		switch key := scanner.key(); string(key) {
		case "error":
			if scanner.null() {
				return nil
			}
			text, code := errorIn(data)
			return s.failed(code, text)
		case "object":
			if scanner.str() == "error" {
				text, code := errorIn(data)
				return s.failed(code, text)
			}
			if !scanner.more('{') {
				return nil
			}
		default:
			return nil
		}
	}
	return nil
}

// failed is a failure that a server tells of in the stream. Without a code it is the server's.
func (s *stream) failed(code int, text string) *inference.Error {
	if code >= 400 && code < 500 {
		failure := refused(s.server, code, nil)
		if failure.Kind == inference.InvalidArgument {
			failure.Public = text
		}
		failure.Message += ": " + text
		return failure
	}
	return &inference.Error{Kind: inference.EngineShutdown, Message: "server " + s.server.URL + " broke its answer off: " + text}
}
