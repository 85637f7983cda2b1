// Package sse writes server-sent event streams: events are gathered in one buffer and go out in one write when nothing more is
// ready, comments keep idle connections alive, and a client that does not read is given up after a stated time.
package sse

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"time"
)

// DefaultWriteTimeout is how long a client may take nothing at all before its stream is given up.
const DefaultWriteTimeout = 30 * time.Second

// MaxBuffered bounds what is gathered before it is written without being asked for.
const MaxBuffered = 64 << 10

// Writer writes one stream. It belongs to one goroutine.
type Writer struct {
	response   http.ResponseWriter
	controller *http.ResponseController
	buffer     []byte
	timeout    time.Duration
	deadline   time.Time
	started    bool
	err        error
}

// NewWriter prepares a stream; nothing is sent yet. writeTimeout 0 means DefaultWriteTimeout.
func NewWriter(w http.ResponseWriter, writeTimeout time.Duration) *Writer {
	if writeTimeout <= 0 {
		writeTimeout = DefaultWriteTimeout
	}
	return &Writer{response: w, controller: http.NewResponseController(w), buffer: make([]byte, 0, 1024), timeout: writeTimeout}
}

// Start sends the headers at once.
func (w *Writer) Start() error {
	if w.started {
		return w.err
	}
	w.started = true
	h := w.response.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	w.response.WriteHeader(http.StatusOK)
	return w.Flush()
}

// Started tells whether the headers are gone.
func (w *Writer) Started() bool { return w.started }

// Buffer returns the buffer for appending whole events; the caller hands the result back to SetBuffer.
func (w *Writer) Buffer() []byte { return w.buffer }

// SetBuffer takes the buffer back.
func (w *Writer) SetBuffer(buffer []byte) {
	w.buffer = buffer
	if len(buffer) > MaxBuffered {
		_ = w.Flush()
	}
}

// Data adds one unnamed event.
func (w *Writer) Data(data []byte) { w.Event("", data) }

// Event adds one event; name may be empty.
func (w *Writer) Event(name string, data []byte) {
	b := w.buffer
	if name != "" {
		b = append(b, "event: "...)
		b = append(b, name...)
		b = append(b, '\n')
	}
	w.SetBuffer(append(appendLines(b, "data: ", data), '\n'))
}

// Annotation adds an event without data: a name and comment lines.
func (w *Writer) Annotation(name string, comments ...string) {
	b := append(w.buffer, "event: "...)
	b = append(b, strings.NewReplacer("\n", " ", "\r", " ").Replace(name)...)
	b = append(b, '\n')
	for _, comment := range comments {
		b = appendLines(b, ": ", []byte(comment))
	}
	w.SetBuffer(append(b, '\n'))
}

// appendLines adds text with the field before each of its lines: a line break in it, which a worker may have sent, would
// otherwise end the event.
func appendLines(b []byte, field string, text []byte) []byte {
	for {
		end := bytes.IndexAny(text, "\r\n")
		if end < 0 {
			b = append(b, field...)
			b = append(b, text...)
			return append(b, '\n')
		}
		b = append(b, field...)
		b = append(b, text[:end]...)
		b = append(b, '\n')
		if text[end] == '\r' && end+1 < len(text) && text[end+1] == '\n' {
			end++
		}
		text = text[end+1:]
	}
}

// Comment adds a comment alone, which every reader of streams passes over.
func (w *Writer) Comment(text string) {
	w.SetBuffer(append(appendLines(w.buffer, ": ", []byte(text)), '\n'))
}

// KeepAlive sends an empty comment at once.
func (w *Writer) KeepAlive() error {
	w.buffer = append(w.buffer, ":\n\n"...)
	return w.Flush()
}

// Done adds the end marker of OpenAI's streams and sends everything.
func (w *Writer) Done() error {
	w.buffer = append(w.buffer, "data: [DONE]\n\n"...)
	return w.Flush()
}

// Flush sends what was gathered. After a failure every call returns it.
func (w *Writer) Flush() error {
	if w.err != nil {
		w.buffer = w.buffer[:0]
		return w.err
	}
	// The deadline moves only when half of it is used up: setting it costs more than a small write.
	now := time.Now()
	if w.deadline.Sub(now) < w.timeout/2 {
		w.deadline = now.Add(w.timeout)
		if err := w.controller.SetWriteDeadline(w.deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
			w.err = err
			return err
		}
	}
	if len(w.buffer) > 0 {
		if _, err := w.response.Write(w.buffer); err != nil {
			w.err = err
			return err
		}
		w.buffer = w.buffer[:0]
	}
	if err := w.controller.Flush(); err != nil {
		w.err = err
	}
	return w.err
}

// Err returns the first failure of writing.
func (w *Writer) Err() error { return w.err }

// Unsent returns how many bytes wait for a Flush.
func (w *Writer) Unsent() int { return len(w.buffer) }
