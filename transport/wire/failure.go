package wire

import (
	"errors"
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

// appendErrorObject appends the MessagePack error object that both versions read. Kinds without a name of their own on the
// wire travel as the error type that leads to the nearest status.
func appendErrorObject(dst []byte, failure *inference.Error) []byte {
	plain, backend := string(failure.Kind), ""
	switch failure.Kind {
	case inference.EngineShutdown, inference.StreamIncomplete:
		plain, backend = "", string(failure.Kind)
	case inference.BackendUnknown:
		plain, backend = "", "Unknown"
	case inference.BackendInvalid:
		plain, backend = "", "InvalidArgument"
	case inference.PayloadTooLarge, inference.ContextLengthLimit:
		plain = string(inference.InvalidArgument)
	case inference.RateLimited:
		plain = string(inference.ResourceExhausted)
	default:
		if _, known := plainKinds[plain]; !known {
			plain = string(inference.Unknown)
		}
	}
	dst = msgp.AppendMapHeader(dst, 2)
	dst = msgp.AppendString(dst, "error_type")
	if backend != "" {
		dst = msgp.AppendMapHeader(dst, 1)
		dst = msgp.AppendString(dst, "Backend")
		dst = msgp.AppendString(dst, backend)
	} else {
		dst = msgp.AppendString(dst, plain)
	}
	dst = msgp.AppendString(dst, "message")
	return msgp.AppendString(dst, failureText(failure))
}

// failureText is the text that goes to the other side: the one for clients where there is one, since real frontends show it
// to them.
func failureText(failure *inference.Error) string {
	switch {
	case failure.Public != "":
		return failure.Public
	case failure.Message != "":
		return failure.Message
	case failure.Cause != nil:
		return failure.Cause.Error()
	}
	return string(failure.Kind)
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
