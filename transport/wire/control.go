package wire

import (
	"encoding/json"
	"fmt"

	"signalbox/inference"
)

// The values of a call-home connection's stream type.
const (
	ResponseStream = "response"
	RequestStream  = "request"
)

// TCPResponse is the transport name of call-home connections over plain TCP or TLS.
const TCPResponse = "tcp_server"

// CallHome tells the worker where to bring its answer.
type CallHome struct {
	Address    string `json:"address"` // host:port
	Subject    string `json:"subject"` // names the request to the listener
	Context    string `json:"context"` // the control's ID again
	StreamType string `json:"stream_type"`
}

// Control is the header of a request's payload.
type Control struct {
	ID       string
	Codec    inference.Codec // of the body and of all response items
	CallHome CallHome
	Metadata map[string]string
	// Bidirectional requests (realtime) bring their input over a second call-home connection.
	Bidirectional bool
	RequestStream *CallHome
}

type connectionInfo struct {
	Transport string `json:"transport"`
	Info      string `json:"info"` // JSON within JSON
}

type controlJSON struct {
	ID            string            `json:"id"`
	RequestType   string            `json:"request_type"`
	ResponseType  string            `json:"response_type"`
	PayloadCodec  string            `json:"payload_codec,omitempty"`
	Connection    connectionInfo    `json:"connection_info"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	RequestStream *connectionInfo   `json:"request_stream_connection_info,omitempty"`
}

// AppendControl appends the control JSON of a request with one input and a stream of outputs.
func AppendControl(dst []byte, c *Control) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, c.ID)
	dst = append(dst, `,"request_type":"single_in","response_type":"many_out","payload_codec":"`...)
	dst = append(dst, c.Codec.String()...)
	dst = append(dst, `","connection_info":{"transport":"`+TCPResponse+`","info":`...)
	info := make([]byte, 0, 256)
	info = append(info, `{"address":`...)
	info = appendString(info, c.CallHome.Address)
	info = append(info, `,"subject":`...)
	info = appendString(info, c.CallHome.Subject)
	info = append(info, `,"context":`...)
	info = appendString(info, c.ID)
	info = append(info, `,"stream_type":"`+ResponseStream+`"}`...)
	dst = appendString(dst, info)
	dst = append(dst, '}')
	if len(c.Metadata) > 0 {
		dst = append(dst, `,"metadata":`...)
		dst = AppendHeaders(dst, c.Metadata)
	}
	return append(dst, '}')
}

// AppendHeaders appends a JSON object of strings.
func AppendHeaders(dst []byte, headers map[string]string) []byte {
	dst = append(dst, '{')
	first := true
	for key, value := range headers {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendString(dst, key)
		dst = append(dst, ':')
		dst = appendString(dst, value)
	}
	return append(dst, '}')
}

// ParseHeaders reads a JSON object of strings.
func ParseHeaders(text []byte) (map[string]string, error) {
	var headers map[string]string
	if err := json.Unmarshal(text, &headers); err != nil {
		return nil, fmt.Errorf("request headers: must be a JSON object of strings: %w", err)
	}
	return headers, nil
}

// ParseControl reads the control JSON of a request.
func ParseControl(text []byte) (*Control, error) {
	if len(text) > MaxControl {
		return nil, fmt.Errorf("control JSON has %d bytes, the limit is %d", len(text), MaxControl)
	}
	var raw controlJSON
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("control JSON: %w", err)
	}
	c := &Control{ID: raw.ID, Metadata: raw.Metadata}
	switch raw.PayloadCodec {
	case "", "json":
		c.Codec = inference.JSON
	case "msgpack":
		c.Codec = inference.MessagePack
	default:
		return nil, fmt.Errorf("control JSON: payload_codec is %q, must be json or msgpack", raw.PayloadCodec)
	}
	switch raw.RequestType {
	case "single_in", "":
	case "many_in":
		c.Bidirectional = true
	default:
		return nil, fmt.Errorf("control JSON: request_type is %q, must be single_in or many_in", raw.RequestType)
	}
	home, err := parseCallHome(raw.Connection, raw.ID)
	if err != nil {
		return nil, err
	}
	c.CallHome = *home
	if raw.RequestStream != nil {
		if c.RequestStream, err = parseCallHome(*raw.RequestStream, raw.ID); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func parseCallHome(connection connectionInfo, id string) (*CallHome, error) {
	if connection.Transport != TCPResponse {
		return nil, fmt.Errorf("control JSON: connection_info.transport is %q, only %q is supported here: start both sides with the TCP response plane",
			connection.Transport, TCPResponse)
	}
	home := &CallHome{}
	if err := json.Unmarshal([]byte(connection.Info), home); err != nil {
		return nil, fmt.Errorf("control JSON: connection_info.info: %w", err)
	}
	if home.Context != id {
		return nil, fmt.Errorf("control JSON: connection_info.info.context is %q, must equal the id %q", home.Context, id)
	}
	if home.Address == "" || home.Subject == "" {
		return nil, fmt.Errorf("control JSON: connection_info.info needs an address and a subject, has %q and %q", home.Address, home.Subject)
	}
	return home, nil
}

// Handshake is the first message on a call-home connection.
type Handshake struct {
	Subject    string `json:"subject"`
	StreamType string `json:"stream_type"`
}

// AppendHandshake appends the handshake as a whole message.
func AppendHandshake(dst []byte, subject, streamType string) []byte {
	text := append([]byte(nil), `{"subject":`...)
	text = appendString(text, subject)
	text = append(text, `,"stream_type":`...)
	text = appendString(text, streamType)
	text = append(text, '}')
	return AppendMessage(dst, text, nil)
}

// ParseHandshake reads the header of the first message on a call-home connection.
func ParseHandshake(header []byte) (Handshake, error) {
	if len(header) > MaxControl {
		return Handshake{}, fmt.Errorf("handshake has %d bytes, the limit is %d", len(header), MaxControl)
	}
	var h Handshake
	if err := json.Unmarshal(header, &h); err != nil {
		return h, fmt.Errorf("handshake: %w", err)
	}
	if h.Subject == "" {
		return h, fmt.Errorf("handshake: no subject in %.80q", header)
	}
	return h, nil
}

// AppendPrologue appends the prologue as a whole message: nil for "the work has begun", else why it could not.
func AppendPrologue(dst []byte, failure *inference.Error) []byte {
	if failure == nil {
		return AppendMessage(dst, []byte(`{"error":null}`), nil)
	}
	text := append([]byte(nil), `{"error":`...)
	text = appendString(text, failure.Message)
	text = append(text, `,"typed_error":`...)
	object := appendErrorObject(nil, failure)
	text, _ = AppendJSON(text, object) // our own object can't be malformed
	text = append(text, '}')
	return AppendMessage(dst, text, nil)
}

// ParsePrologue reads a prologue; the second result is the format's failure, the first the worker's, nil for none.
func ParsePrologue(header []byte) (*inference.Error, error) {
	if len(header) > MaxControl {
		return nil, fmt.Errorf("prologue has %d bytes, the limit is %d", len(header), MaxControl)
	}
	var raw struct {
		Error *string         `json:"error"`
		Typed json.RawMessage `json:"typed_error"`
	}
	if err := json.Unmarshal(header, &raw); err != nil {
		return nil, fmt.Errorf("prologue: %w", err)
	}
	typed := len(raw.Typed) > 0 && string(raw.Typed) != "null"
	if raw.Error == nil && !typed {
		return nil, nil
	}
	failure := &inference.Error{Kind: inference.CannotConnect}
	if raw.Error != nil {
		failure.Message = *raw.Error
	}
	if typed {
		if object, err := parseErrorJSON(raw.Typed); err == nil {
			if object.Message == "" {
				object.Message = failure.Message
			}
			failure = object
		}
	}
	return failure, nil
}

// ControlWord is a header-only message that steers a call-home connection.
type ControlWord string

const (
	// Stop asks the worker to end soon.
	Stop ControlWord = "stop"
	// Kill asks the worker to end now.
	Kill ControlWord = "kill"
	// Sentinel is the last message of a stream.
	Sentinel ControlWord = "sentinel"
)

// AppendControlWord appends the word as a whole message.
func AppendControlWord(dst []byte, word ControlWord) []byte {
	dst = AppendPrefix(dst, len(word)+2, 0)
	dst = append(dst, '"')
	dst = append(dst, word...)
	return append(dst, '"')
}

// ParseControlWord returns the word in a header, "" when it is none.
func ParseControlWord(header []byte) ControlWord {
	switch string(header) {
	case `"stop"`:
		return Stop
	case `"kill"`:
		return Kill
	case `"sentinel"`:
		return Sentinel
	}
	return ""
}
