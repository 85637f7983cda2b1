// Package problem turns failures into what a client of the HTTP APIs may see: a status, a text, a metric class. Each protocol
// package writes the body in its own shape; the flat shape of the Dynamo frontend with an OpenAI-style error object is here,
// since every route that belongs to no protocol uses it.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"signalbox/inference"
	"signalbox/pipeline"
)

// StatusOverloaded is the default status of an overload; operators may set another one.
const StatusOverloaded = 529

// StatusClientClosed is the status of a request that was cancelled.
const StatusClientClosed = 499

// Problem is a failure as the client sees it.
type Problem struct {
	Status  int
	Message string
	// Type is the flat body's "type": the status's reason phrase unless set.
	Type string
	// Param names the request's field that is wrong; Code is a stable word for programs. Both may be empty.
	Param, Code string
	// Detail replaces Message in the OpenAI-style error object, where existing clients know only a general text; "" for none.
	Detail string
	// Details is a raw JSON value for the flat body's "details"; nil for none.
	Details []byte
	// Overload marks refusals for load, whatever status they carry.
	Overload bool
	// Class and Reason label the failure in metrics, e.g. "InvalidRequest", "request.invalid".
	Class, Reason string
	// Cause is for the log.
	Cause error
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Cause != nil {
		return p.Message + ": " + p.Cause.Error()
	}
	return p.Message
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// maxText bounds the text of an error, in bytes: it may quote a request that is much longer.
const maxText = 4 << 10

func bounded(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// Invalid is a client's mistake in the named field: status 400.
func Invalid(param, format string, args ...any) *Problem {
	return &Problem{Status: http.StatusBadRequest, Message: bounded(fmt.Sprintf(format, args...)), Param: bounded(param),
		Class: "InvalidRequest", Reason: "request.invalid"}
}

// Unsupported is a field that this service refuses by name: status 501, as existing clients expect.
func Unsupported(param, format string, args ...any) *Problem {
	return &Problem{Status: http.StatusNotImplemented, Message: fmt.Sprintf(format, args...), Param: param,
		Code: "unsupported_parameter", Class: "NotImplemented", Reason: "runtime.not_implemented"}
}

// ModelNotFound is a name that no model has.
func ModelNotFound() *Problem {
	return &Problem{Status: http.StatusNotFound, Message: "Model not found", Param: "model", Code: "model_not_found",
		Class: "NotFound", Reason: "request.not_found"}
}

// NotReady is a known model that nobody can serve at the moment.
func NotReady(model string) *Problem {
	return &Problem{Status: http.StatusServiceUnavailable, Class: "Unavailable", Reason: "backend.unavailable",
		Message: "Model `" + model + "` is not ready to serve requests yet. The deployment may still be starting up or is not fully provisioned. Please retry shortly."}
}

// Draining is the answer while the service shuts down.
func Draining() *Problem {
	return &Problem{Status: http.StatusServiceUnavailable, Message: "Service is not ready", Class: "Unavailable", Reason: "backend.unavailable"}
}

// ClientGone tells whether the request's context ended for the client's sake: it went away. A service that stops ends contexts with a
// Problem as the cause.
func ClientGone(ctx context.Context) bool {
	var stopped *Problem
	return ctx.Err() != nil && !errors.As(context.Cause(ctx), &stopped)
}

// Reason returns why a request failed: what ended its context when that was not the client, else err.
func Reason(ctx context.Context, err error) error {
	var stopped *Problem
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &stopped) {
		return stopped
	}
	return err
}

// Detailed is implemented by errors that carry a structured explanation for the client, such as a queue limit.
type Detailed interface {
	error
	// ProblemDetails returns a raw JSON object.
	ProblemDetails() []byte
}

// Mapper turns errors of the pipeline into problems.
type Mapper struct {
	// OverloadStatus replaces 529; 0 means 529.
	OverloadStatus int
}

func (m Mapper) overload(message string, details []byte) *Problem {
	status := m.OverloadStatus
	if status == 0 {
		status = StatusOverloaded
	}
	return &Problem{Status: status, Message: message, Type: "Overloaded", Overload: true, Details: details,
		Code: "overloaded", Class: "CapacityExhausted", Reason: "capacity.exhausted"}
}

// FromError maps a failure. afterFirst tells that the worker had already answered with something.
func (m Mapper) FromError(err error, afterFirst bool) *Problem {
	p := m.fromError(err, afterFirst)
	p.Cause = err
	return p
}

func (m Mapper) fromError(err error, afterFirst bool) *Problem {
	var known *Problem
	if errors.As(err, &known) {
		copied := *known
		return &copied
	}
	var prompt *pipeline.PromptError
	if errors.As(err, &prompt) {
		p := Invalid(prompt.Param, "%s", "Invalid request")
		p.Detail = bounded(prompt.Message)
		return p
	}
	var length *pipeline.ContextLengthError
	if errors.As(err, &length) {
		p := Invalid("messages", "%s", length.Error())
		p.Code = "context_length_exceeded"
		return p
	}
	var detailed Detailed
	if errors.As(err, &detailed) {
		return m.overload(detailed.Error(), detailed.ProblemDetails())
	}
	if errors.Is(err, pipeline.ErrNoWorkers) {
		return serviceUnavailable("backend.unavailable")
	}
	var typed *inference.Error
	if !errors.As(err, &typed) {
		switch {
		case errors.Is(err, context.Canceled):
			return cancelled()
		case errors.Is(err, io.ErrUnexpectedEOF):
			return serviceUnavailable("transport.disconnected")
		}
		return internal("Internal server error", "runtime.unclassified", nil)
	}
	return m.fromTyped(typed, afterFirst)
}

func (m Mapper) fromTyped(e *inference.Error, afterFirst bool) *Problem {
	if e.Status != 0 {
		return m.fromStatus(e, afterFirst)
	}
	switch e.Kind {
	case inference.InvalidArgument, inference.BackendInvalid:
		p := Invalid("", "Invalid request")
		p.Reason = "request.invalid_argument"
		if e.Kind == inference.BackendInvalid {
			p.Reason = "backend.invalid_argument"
		}
		if e.Public != "" {
			p.Message = e.Public
		}
		return p
	case inference.ContextLengthLimit, inference.PayloadTooLarge:
		p := Invalid("", "Invalid request")
		if e.Public != "" {
			p.Message = e.Public
		}
		return p
	case inference.ResourceExhausted, inference.WorkerOverloaded:
		return m.overload("Service temporarily overloaded", nil)
	case inference.RateLimited:
		return m.rateLimited()
	case inference.Unavailable:
		return serviceUnavailable("backend.unavailable")
	case inference.CannotConnect:
		return serviceUnavailable("transport.cannot_connect")
	case inference.Disconnected, inference.EngineShutdown, inference.StreamIncomplete, inference.ConnectionTimeout:
		return serviceUnavailable("transport.disconnected")
	case inference.ResponseTimeout:
		return &Problem{Status: http.StatusGatewayTimeout, Message: "Request deadline exceeded", Class: "Unavailable", Reason: "backend.timeout"}
	case inference.Cancelled:
		return cancelled()
	case inference.NotImplemented:
		return Unsupported("", "Not implemented by the worker")
	case inference.Unroutable:
		return internal("Failed to generate completions", "runtime.unclassified", nil)
	}
	var details []byte
	if !afterFirst {
		details = []byte(`{"backend_status":500}`)
	}
	return internal("Internal server error", "backend.unknown", details)
}

// fromStatus maps a failure whose worker asserted an HTTP status.
func (m Mapper) fromStatus(e *inference.Error, afterFirst bool) *Problem {
	switch s := e.Status; {
	case s == StatusClientClosed:
		return cancelled()
	case s == http.StatusTooManyRequests:
		return m.rateLimited()
	case s == http.StatusUnprocessableEntity, s == http.StatusBadRequest:
		p := Invalid("", "%s", http.StatusText(s))
		p.Reason = "backend.invalid_argument"
		return p
	case s >= 400 && s < 500:
		return &Problem{Status: s, Message: http.StatusText(s), Class: "InvalidRequest", Reason: "backend.invalid_argument"}
	case s == StatusOverloaded:
		return m.overload("Service temporarily overloaded", nil)
	case s == http.StatusServiceUnavailable:
		return &Problem{Status: s, Message: "Internal server error", Class: "Unavailable", Reason: "backend.unavailable"}
	}
	var details []byte
	if !afterFirst {
		details = fmt.Appendf(nil, `{"backend_status":%d}`, e.Status)
	}
	return internal("Internal server error", "backend.protocol", details)
}

func (m Mapper) rateLimited() *Problem {
	if m.OverloadStatus == http.StatusTooManyRequests {
		return m.overload("Service temporarily overloaded", nil)
	}
	return &Problem{Status: http.StatusTooManyRequests, Message: http.StatusText(http.StatusTooManyRequests), Class: "RateLimited", Reason: "request.rate_limited"}
}

func cancelled() *Problem {
	return &Problem{Status: StatusClientClosed, Message: "Request cancelled", Type: "Client Closed Request", Class: "Cancelled", Reason: "request.cancelled"}
}

func serviceUnavailable(reason string) *Problem {
	return &Problem{Status: http.StatusServiceUnavailable, Message: "Service temporarily unavailable", Class: "Unavailable", Reason: reason}
}

func internal(message, reason string, details []byte) *Problem {
	return &Problem{Status: http.StatusInternalServerError, Message: message, Details: details, Class: "Internal", Reason: reason}
}

// reasonPhrase returns the flat body's type.
func (p *Problem) reasonPhrase() string {
	if p.Type != "" {
		return p.Type
	}
	if text := http.StatusText(p.Status); text != "" {
		return text
	}
	return "Error"
}

// OpenAIType is the word that OpenAI's own API uses for the status.
func (p *Problem) OpenAIType() string {
	switch {
	case p.Overload:
		return "overloaded_error"
	case p.Status == http.StatusUnauthorized:
		return "authentication_error"
	case p.Status == http.StatusForbidden:
		return "permission_error"
	case p.Status == http.StatusNotFound:
		return "not_found_error"
	case p.Status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case p.Status == http.StatusNotImplemented, p.Status < 500:
		return "invalid_request_error"
	}
	return "server_error"
}

// AppendJSON appends the body: the flat keys that Dynamo's clients know and the error object that OpenAI's SDKs show.
func (p *Problem) AppendJSON(dst []byte) []byte {
	message := quote(p.Message)
	dst = append(dst, `{"message":`...)
	dst = append(dst, message...)
	dst = append(dst, `,"type":`...)
	dst = append(dst, quote(p.reasonPhrase())...)
	dst = append(dst, `,"code":`...)
	dst = strconv.AppendInt(dst, int64(p.Status), 10)
	if p.Details != nil {
		dst = append(dst, `,"details":`...)
		dst = append(dst, p.Details...)
	}
	if p.Detail != "" {
		message = quote(p.Detail)
	}
	dst = append(dst, `,"error":{"message":`...)
	dst = append(dst, message...)
	dst = append(dst, `,"type":`...)
	dst = append(dst, quote(p.OpenAIType())...)
	dst = append(dst, `,"param":`...)
	dst = appendOptional(dst, p.Param)
	dst = append(dst, `,"code":`...)
	dst = appendOptional(dst, p.Code)
	return append(dst, "}}"...)
}

func appendOptional(dst []byte, text string) []byte {
	if text == "" {
		return append(dst, "null"...)
	}
	return append(dst, quote(text)...)
}

func quote(text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil { // a string always marshals
		return []byte(`""`)
	}
	return quoted
}

// RetryAfterSeconds is what refusals for load and for lack of workers advise.
const RetryAfterSeconds = "1"

// Write answers the request with the problem in the flat shape.
func (p *Problem) Write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	p.SetRetryAfter(h)
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.AppendJSON(nil))
}

// SetRetryAfter adds Retry-After where trying again later is the right thing.
func (p *Problem) SetRetryAfter(h http.Header) {
	if p.Overload || p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
		h.Set("Retry-After", RetryAfterSeconds)
	}
}
