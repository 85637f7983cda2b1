package problem

import (
	"errors"
	"net/http"
	"strconv"

	"signalbox/inference"
)

// StreamError is a failure inside a stream that has begun: the status line is gone, so the event carries it.
type StreamError struct {
	Message string
	Type    string
	Code    int
}

// InStream maps a failure to the event that ends a stream.
func (m Mapper) InStream(err error) StreamError {
	p := m.FromError(err, true)
	var typed *inference.Error
	if errors.As(err, &typed) && typed.Status != 0 {
		switch typed.Status {
		case http.StatusBadRequest, http.StatusUnprocessableEntity:
			return StreamError{"Invalid request", "invalid_request_error", http.StatusBadRequest}
		case http.StatusNotFound:
			return StreamError{"Resource not found", "not_found_error", typed.Status}
		case http.StatusUnsupportedMediaType:
			return StreamError{"Unsupported media type", "invalid_request_error", typed.Status}
		case http.StatusTooManyRequests:
			return StreamError{"Rate limit exceeded", "rate_limit_error", typed.Status}
		case http.StatusBadGateway:
			return StreamError{"Bad gateway", "internal_server_error", typed.Status}
		case http.StatusServiceUnavailable:
			return StreamError{"Service temporarily unavailable", "service_unavailable", typed.Status}
		}
	}
	switch {
	case p.Overload:
		return StreamError{"Service temporarily overloaded", "service_unavailable", StatusOverloaded}
	case p.Status == StatusClientClosed:
		return StreamError{"Request cancelled", "request_cancelled", p.Status}
	case p.Status == http.StatusServiceUnavailable:
		return StreamError{"Service temporarily unavailable", "service_unavailable", p.Status}
	case p.Status == http.StatusTooManyRequests:
		return StreamError{"Rate limit exceeded", "rate_limit_error", p.Status}
	case p.Status == http.StatusGatewayTimeout:
		return StreamError{"Request deadline exceeded", "timeout_error", p.Status}
	case p.Status >= 400 && p.Status < 500:
		return StreamError{p.Message, "invalid_request_error", p.Status}
	}
	return StreamError{"Internal server error", "internal_server_error", http.StatusInternalServerError}
}

// AppendJSON appends the event's data.
func (e StreamError) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = append(dst, quote(e.Message)...)
	dst = append(dst, `,"type":`...)
	dst = append(dst, quote(e.Type)...)
	dst = append(dst, `,"code":`...)
	dst = appendInt(dst, e.Code)
	return append(dst, "}}"...)
}

func appendInt(dst []byte, value int) []byte {
	return strconv.AppendInt(dst, int64(value), 10)
}
