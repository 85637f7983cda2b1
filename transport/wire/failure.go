package wire

import (
	"errors"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"signalbox/inference"
	"signalbox/internal/jsontape"
)

// plainKinds are the error types that the wire names by a bare string; the names are those of the kinds.
var plainKinds = map[string]inference.Kind{
	"Unknown":           inference.Unknown,
	"InvalidArgument":   inference.InvalidArgument,
	"CannotConnect":     inference.CannotConnect,
	"Disconnected":      inference.Disconnected,
	"ConnectionTimeout": inference.ConnectionTimeout,
	"ResponseTimeout":   inference.ResponseTimeout,
	"Cancelled":         inference.Cancelled,
	"ResourceExhausted": inference.ResourceExhausted,
	"WorkerOverloaded":  inference.WorkerOverloaded,
	"Unavailable":       inference.Unavailable,
	"EngineShutdown":    inference.EngineShutdown,
	"StreamIncomplete":  inference.StreamIncomplete,
}

// backendKinds are the error types within {"Backend": …}.
var backendKinds = map[string]inference.Kind{
	"InvalidArgument":   inference.BackendInvalid,
	"CannotConnect":     inference.CannotConnect,
	"Disconnected":      inference.Disconnected,
	"ConnectionTimeout": inference.ConnectionTimeout,
	"ResponseTimeout":   inference.ResponseTimeout,
	"Cancelled":         inference.Cancelled,
	"EngineShutdown":    inference.EngineShutdown,
	"StreamIncomplete":  inference.StreamIncomplete,
}

// classKinds are the classes of 1.6.1's error objects. They decide only where the error type says nothing.
var classKinds = map[string]inference.Kind{
	"InvalidRequest":    inference.InvalidArgument,
	"Unauthenticated":   inference.Unauthenticated,
	"PayloadTooLarge":   inference.PayloadTooLarge,
	"RateLimited":       inference.RateLimited,
	"CapacityExhausted": inference.ResourceExhausted,
	"WorkerUnavailable": inference.Unavailable,
	"Protocol":          inference.ProtocolViolation,
	"NotImplemented":    inference.NotImplemented,
	"Cancelled":         inference.Cancelled,
}

// readErrorValue reads the error object in a MessagePack value. Failures are rare: the object is read in its JSON form, so
// that there is one reader for prologues and items.
func readErrorValue(value []byte) (*inference.Error, error) {
	text, err := AppendJSON(nil, value)
	if err != nil {
		return nil, err
	}
	return parseErrorJSON(text)
}

// parseErrorJSON reads an error object in either form: 1.5.1's {error_type, message, caused_by} and 1.6.1's superset. It is
// lenient: what it doesn't know becomes Unknown.
func parseErrorJSON(text []byte) (*inference.Error, error) {
	document, err := jsontape.Parse(text)
	if err != nil {
		return nil, err
	}
	return readError(document.Root(), 8), nil
}

// readError reads an object and at most `causes` of its causes.
func readError(node jsontape.Node, causes int) *inference.Error {
	if node.Kind() == jsontape.String {
		return &inference.Error{Kind: inference.Unknown, Message: node.Text()}
	}
	failure := &inference.Error{Kind: errorKind(node.Get("error_type")), Message: node.Get("message").Text()}
	if failure.Kind == inference.Unknown {
		if kind, known := classKinds[node.Get("class").Text()]; known {
			failure.Kind = kind
		}
	}
	if failure.Message == "" {
		failure.Message = node.Get("diagnostic").Text()
	}
	readStatus(failure)
	public := node.Get("public")
	failure.Public = public.Get("message").Text()
	if failure.Kind == inference.InvalidArgument && public.Get("type").Text() == "context_length" {
		failure.Kind = inference.ContextLengthLimit
	}
	if cause := node.Get("caused_by"); cause.Present() && causes > 0 {
		failure.Cause = readError(cause, causes-1)
	}
	return failure
}

func errorKind(node jsontape.Node) inference.Kind {
	if kind, known := plainKinds[node.Text()]; known {
		return kind
	}
	if backend := node.Get("Backend"); backend.Exists() {
		if kind, known := backendKinds[backend.Text()]; known {
			return kind
		}
		return inference.BackendUnknown
	}
	return inference.Unknown
}

// errorForm is how a failure travels: the error type, which both versions read (with a backend's in an object), and the class and
// reason that 1.6.1 adds.
type errorForm struct {
	plain, backend, class, reason string
}

func formOf(failure *inference.Error) errorForm {
	if failure.Status != 0 {
		return statusForm(failure.Status)
	}
	switch failure.Kind {
	case inference.InvalidArgument, inference.PayloadTooLarge, inference.ContextLengthLimit:
		return errorForm{plain: "InvalidArgument", class: "InvalidRequest", reason: "request.invalid_argument"}
	case inference.BackendInvalid:
		return errorForm{backend: "InvalidArgument", class: "InvalidRequest", reason: "backend.invalid_argument"}
	case inference.BackendUnknown:
		return errorForm{backend: "Unknown", class: "Internal", reason: "backend.unknown"}
	case inference.EngineShutdown, inference.StreamIncomplete:
		return errorForm{backend: string(failure.Kind)}
	case inference.Cancelled:
		return errorForm{plain: "Cancelled", class: "Cancelled", reason: "request.cancelled"}
	case inference.RateLimited:
		return errorForm{plain: "ResourceExhausted", class: "RateLimited", reason: "request.rate_limited"}
	case inference.ResourceExhausted:
		return errorForm{plain: "ResourceExhausted", class: "CapacityExhausted", reason: "capacity.exhausted"}
	case inference.Unavailable:
		return errorForm{plain: "Unavailable", class: "Unavailable", reason: "backend.unavailable"}
	}
	if _, known := plainKinds[string(failure.Kind)]; known {
		return errorForm{plain: string(failure.Kind)}
	}
	return errorForm{plain: "Unknown"}
}

// statusForm is the form of a failure for which the worker asserts an HTTP status.
func statusForm(status int) errorForm {
	switch {
	case status == 404:
		return errorForm{plain: "Unknown", class: "NotFound", reason: "request.not_found"}
	case status == 429:
		return errorForm{plain: "ResourceExhausted", class: "RateLimited", reason: "request.rate_limited"}
	case status == 499:
		return errorForm{plain: "Cancelled", class: "Cancelled", reason: "request.cancelled"}
	case status == 503:
		return errorForm{plain: "Unavailable", class: "Unavailable", reason: "backend.unavailable"}
	case status == 529:
		return errorForm{plain: "ResourceExhausted", class: "CapacityExhausted", reason: "capacity.exhausted"}
	case status >= 400 && status < 500:
		return errorForm{plain: "InvalidArgument", class: "InvalidRequest", reason: "request.invalid"}
	}
	return errorForm{plain: "Unknown", class: "Internal", reason: "runtime.internal"}
}

// appendErrorObject appends the MessagePack error object that both versions read. Kinds without a name of their own on the
// wire travel as the error type that leads to the nearest status.
func appendErrorObject(dst []byte, failure *inference.Error) []byte {
	form, text := formOf(failure), failureText(failure)
	members := uint32(2)
	if form.class != "" {
		members += 3
	}
	if failure.Public != "" {
		members++
	}
	dst = msgp.AppendMapHeader(dst, members)
	dst = msgp.AppendString(dst, "error_type")
	if form.backend != "" {
		dst = msgp.AppendMapHeader(dst, 1)
		dst = msgp.AppendString(dst, "Backend")
		dst = msgp.AppendString(dst, form.backend)
	} else {
		dst = msgp.AppendString(dst, form.plain)
	}
	if form.class != "" {
		dst = msgp.AppendString(dst, "class")
		dst = msgp.AppendString(dst, form.class)
		dst = msgp.AppendString(dst, "reason")
		dst = msgp.AppendString(dst, form.reason)
	}
	dst = msgp.AppendString(dst, "message")
	dst = msgp.AppendString(dst, text)
	if form.class != "" {
		dst = msgp.AppendString(dst, "diagnostic")
		dst = msgp.AppendString(dst, text)
	}
	if failure.Public != "" {
		dst = msgp.AppendString(dst, "public")
		dst = msgp.AppendMapHeader(dst, 2)
		dst = msgp.AppendString(dst, "type")
		dst = msgp.AppendString(dst, "message")
		dst = msgp.AppendString(dst, "message")
		dst = msgp.AppendString(dst, failure.Public)
	}
	return dst
}

// failureText is the text that goes to the other side: the one for clients where there is one, since real frontends show it
// to them. An asserted status travels in it, as an object in JSON.
func failureText(failure *inference.Error) string {
	text := string(failure.Kind)
	switch {
	case failure.Public != "":
		text = failure.Public
	case failure.Message != "":
		text = failure.Message
	case failure.Cause != nil:
		text = failure.Cause.Error()
	}
	if failure.Status != 0 {
		object := append(appendString([]byte(`{"message":`), text), `,"code":`...)
		return string(append(strconv.AppendInt(object, int64(failure.Status), 10), '}'))
	}
	return text
}

// readStatus takes an asserted status out of the message.
func readStatus(failure *inference.Error) {
	if !strings.HasPrefix(failure.Message, "{") {
		return
	}
	document, err := jsontape.Parse([]byte(failure.Message))
	if err != nil {
		return
	}
	message, code := document.Root().Get("message"), document.Root().Get("code")
	if status, ok := code.Int(); ok && message.Kind() == jsontape.String && status >= 400 && status < 600 {
		failure.Message, failure.Status = message.Text(), int(status)
	}
}

// AsError returns err as an *inference.Error, wrapped when it is of another type.
func AsError(err error) *inference.Error {
	var typed *inference.Error
	if errors.As(err, &typed) {
		return typed
	}
	return &inference.Error{Kind: inference.KindOf(err), Message: err.Error()}
}

// KindOfAck returns the kind of failure that a rejecting acknowledgement means.
func KindOfAck(text string) inference.Kind {
	switch {
	case strings.HasPrefix(text, OverloadedAck):
		return inference.WorkerOverloaded
	case strings.HasPrefix(text, UnavailableAck):
		return inference.Unavailable
	}
	return inference.CannotConnect
}

// Refused is the failure of a request that a worker did not take, by the text of its acknowledgement. A worker that is not there for
// it, be it that it is about to leave, is one that cannot be reached: another one may take the request.
func Refused(text string) *inference.Error {
	kind := KindOfAck(text)
	if kind == inference.Unavailable {
		kind = inference.CannotConnect
	}
	return inference.Errorf(kind, "the worker refused the request: %.200s", text)
}
