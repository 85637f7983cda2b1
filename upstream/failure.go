package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"

	"signalbox/inference"
)

// unreachable makes an error of a request that got no answer. Where nothing listens another server may well do.
func unreachable(ctx context.Context, s *Server, err error) *inference.Error {
	failure := &inference.Error{Kind: inference.Disconnected, Message: "server " + s.URL, WorkerID: s.ID, Cause: err}
	var timeout net.Error
	var dial *net.OpError
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &failure): // the stream was ended from here, and it is known why
		return failure
	case ctx.Err() != nil:
		failure.Kind = inference.KindOf(ctx.Err())
	case errors.As(err, &dial) && dial.Op == "dial", errors.Is(err, syscall.ECONNREFUSED):
		failure.Kind = inference.CannotConnect
	case errors.As(err, &timeout) && timeout.Timeout():
		failure.Kind = inference.ConnectionTimeout
	}
	return failure
}

// maxErrorBody bounds what is read of an answer that refuses a request, in bytes.
const maxErrorBody = 64 << 10

// refused makes an error of an answer that is not 200. What the client did wrong is the client's; what is wrong with the server may go
// well on another one.
func refused(s *Server, status int, body []byte) *inference.Error {
	said := errorText(body)
	failure := &inference.Error{WorkerID: s.ID, Message: "server " + s.URL + " answered " + http.StatusText(status)}
	if said != "" {
		failure.Message += ": " + said
	}
	switch failure.Kind = kindOf(status); failure.Kind {
	case inference.InvalidArgument:
		failure.Public = said
	case inference.RequestFailed:
		failure.Status = status
	}
	return failure
}

// kindOf sorts statuses. Failures of one server (500) are tried on another and set no server aside: a request that no server can answer
// must not take one after the other out of service; health checks find those that are ill.
func kindOf(status int) inference.Kind {
	switch {
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return inference.CannotConnect // it serves another model than it did, or another API
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return inference.Unauthenticated // the key is the operator's, not the client's
	case status == http.StatusRequestEntityTooLarge:
		return inference.PayloadTooLarge
	case status == http.StatusNotImplemented:
		return inference.NotImplemented
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return inference.WorkerOverloaded
	case status == http.StatusRequestTimeout, status >= 500:
		return inference.RequestFailed
	case status >= 400:
		return inference.InvalidArgument
	}
	return inference.ProtocolViolation
}

// maxErrorText bounds the text of an error, in bytes.
const maxErrorText = 2 << 10

// errorText finds the message in the body of a refusal: servers write {"error": {"message": …}}, {"error": "…"}, {"message": …} or
// {"detail": …}. A body that is no JSON is the message.
func errorText(body []byte) string {
	text, _ := errorIn(body)
	if text == "" && len(body) > 0 && body[0] != '{' && body[0] != '<' {
		text = strings.TrimSpace(string(body))
	}
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}

// errorIn reads message and code of a refusal, "" and 0 for none.
func errorIn(body []byte) (text string, code int) {
	s := scan{text: body}
	depth := 0
	var read func()
	read = func() {
		depth++
		defer func() { depth-- }()
		for in := s.enter('{'); in; in = s.more('{') {
			switch string(s.key()) {
			case "message", "detail", "error":
				switch s.kind() {
				case '"':
					if said := s.str(); said != "" {
						text = said
					}
				case '{':
					if depth < 4 {
						read()
					} else {
						s.skip()
					}
				default: // a list of details says most in its own words
					if raw := s.raw(); text == "" && string(raw) != "null" {
						text = string(raw)
					}
				}
			case "code", "status_code":
				if c := s.kind(); c >= '0' && c <= '9' {
					value, _ := s.count()
					code = int(value)
					continue
				}
				s.skip()
			default:
				s.skip()
			}
		}
	}
	read()
	return text, code
}
