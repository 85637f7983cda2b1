package inference

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Kind classifies a failure; it decides the status that the client sees, whether another worker may be tried, and whether the
// worker is set aside. The names are those of the Dynamo request plane.
type Kind string

const (
	Unknown            Kind = "Unknown"
	InvalidArgument    Kind = "InvalidArgument"
	CannotConnect      Kind = "CannotConnect"
	Disconnected       Kind = "Disconnected"
	ConnectionTimeout  Kind = "ConnectionTimeout"
	ResponseTimeout    Kind = "ResponseTimeout"
	Cancelled          Kind = "Cancelled"
	ResourceExhausted  Kind = "ResourceExhausted"
	WorkerOverloaded   Kind = "WorkerOverloaded"
	Unavailable        Kind = "Unavailable"
	EngineShutdown     Kind = "EngineShutdown"   // Backend(EngineShutdown) on the wire
	StreamIncomplete   Kind = "StreamIncomplete" // Backend(StreamIncomplete) on the wire
	BackendUnknown     Kind = "BackendUnknown"   // Backend(Unknown) and other backend failures without a kind of their own
	BackendInvalid     Kind = "BackendInvalid"   // Backend(InvalidArgument)
	Unauthenticated    Kind = "Unauthenticated"
	PayloadTooLarge    Kind = "PayloadTooLarge"
	RateLimited        Kind = "RateLimited"
	NotImplemented     Kind = "NotImplemented"
	ProtocolViolation  Kind = "Protocol"
	ContextLengthLimit Kind = "ContextLength"
	// Unroutable is a failure of the router itself, most often that no worker meets what the request demands. It is never on a wire.
	Unroutable Kind = "Unroutable"
	// RequestFailed is a worker's failure at this very request, which says nothing of its health: another one may do better. It is never
	// on a wire.
	RequestFailed Kind = "RequestFailed"
)

// Error is a failure with a kind. Message says what, in words for an operator; Public is what the client may read when the
// worker named a text for it.
type Error struct {
	Kind    Kind
	Message string
	Public  string
	// Status is an HTTP status that the worker asserted; 0 for none.
	Status int
	// WorkerID is the worker that failed; 0 when unknown.
	WorkerID uint64
	Cause    error
}

// Error implements error.
func (e *Error) Error() string {
	text := string(e.Kind)
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause. One that is io.EOF counts as io.ErrUnexpectedEOF: readers of streams take io.EOF for their clean end, which
// no failure is.
func (e *Error) Unwrap() error {
	if errors.Is(e.Cause, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return e.Cause
}

// Errorf makes an Error of the kind.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// KindOf returns the kind of err: that of the *Error inside, Cancelled for a cancelled context, else Unknown.
func KindOf(err error) Kind {
	var typed *Error
	switch {
	case errors.As(err, &typed):
		return typed.Kind
	case errors.Is(err, context.Canceled):
		return Cancelled
	case errors.Is(err, context.DeadlineExceeded):
		return ResponseTimeout
	}
	return Unknown
}

// Migratable tells whether another worker may take over after a failure of this kind.
func (k Kind) Migratable() bool {
	switch k {
	case CannotConnect, Disconnected, ConnectionTimeout, ResponseTimeout, WorkerOverloaded, EngineShutdown, StreamIncomplete, RequestFailed:
		return true
	}
	return false
}

// MarksDown tells whether the worker that failed so is set aside until discovery or time says otherwise.
func (k Kind) MarksDown() bool {
	switch k {
	case CannotConnect, Disconnected, ConnectionTimeout, ResponseTimeout, EngineShutdown, StreamIncomplete:
		return true
	}
	return false
}
