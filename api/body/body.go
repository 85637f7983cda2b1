// Package body reads request bodies of the HTTP APIs: content type, size limit, one JSON parse, and typed fields whose errors
// name the field and what was expected. It knows no protocol.
package body

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"signalbox/api/problem"
	"signalbox/internal/jsontape"
)

// DeserializePrefix begins the message of every body that cannot be read.
const DeserializePrefix = "Failed to deserialize the JSON body into the target type: "

// Reader reads bodies up to a limit.
type Reader struct {
	// LimitBytes bounds a body; LimitMB is the same in the unit that the message names.
	LimitBytes int64
	LimitMB    int64
	// IdleTimeout bounds the time in which nothing of a body arrives; 0 means DefaultIdleTimeout.
	IdleTimeout time.Duration
}

// DefaultIdleTimeout is how long a client may pause within its body before the request is given up: what it has sent so far
// takes memory.
const DefaultIdleTimeout = 60 * time.Second

// NewReader returns a Reader with the limit in MiB.
func NewReader(limitMB int64) Reader {
	return Reader{LimitBytes: limitMB << 20, LimitMB: limitMB}
}

// Raw reads the whole body after checking its content type and size.
func (r Reader) Raw(w http.ResponseWriter, request *http.Request) ([]byte, *problem.Problem) {
	if !isJSON(request.Header.Get("Content-Type")) {
		return nil, &problem.Problem{Status: http.StatusUnsupportedMediaType,
			Message: "Expected request with Content-Type application/json",
			Class:   "UnsupportedMedia", Reason: "request.unsupported_media"}
	}
	return r.bytes(w, request)
}

// firstPiece is how much memory a body gets on the word of its length alone, in bytes.
const firstPiece = 256 << 10

func (r Reader) bytes(w http.ResponseWriter, request *http.Request) ([]byte, *problem.Problem) {
	if coding := request.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, &problem.Problem{Status: http.StatusUnsupportedMediaType, Class: "UnsupportedMedia", Reason: "request.unsupported_media",
			Message: fmt.Sprintf("Content-Encoding %q is not supported: send the body as it is", coding)}
	}
	if request.ContentLength > r.LimitBytes {
		return nil, r.tooLarge()
	}
	source := &patient{body: request.Body, controller: http.NewResponseController(w), timeout: r.IdleTimeout}
	limited := http.MaxBytesReader(w, source, r.LimitBytes)
	var text []byte
	var err error
	if n := request.ContentLength; n > 0 {
		text, err = readSized(limited, int(n))
		if err == nil { // reach the end, so that the server watches the connection for a client that goes away
			_, _ = limited.Read(make([]byte, 1))
		}
	} else {
		text, err = io.ReadAll(limited)
	}
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, r.tooLarge()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			w.Header().Set("Connection", "close") // the rest may still come, and is no request
			return nil, &problem.Problem{Status: http.StatusRequestTimeout, Class: "InvalidRequest", Reason: "request.timeout",
				Message: "The rest of the request body did not arrive in time"}
		}
		return nil, problem.Invalid("", "Failed to read the request body: %v", err)
	}
	source.end()
	return text, nil
}

// patient reads a body and gives up when nothing of it arrives for a while.
type patient struct {
	body       io.ReadCloser
	controller *http.ResponseController
	timeout    time.Duration
}

// Read implements io.Reader.
func (p *patient) Read(buffer []byte) (int, error) {
	timeout := p.timeout
	if timeout <= 0 {
		timeout = DefaultIdleTimeout
	}
	_ = p.controller.SetReadDeadline(time.Now().Add(timeout)) // not supported by recorders in tests
	return p.body.Read(buffer)
}

// Close implements io.Closer.
func (p *patient) Close() error { return p.body.Close() }

// end takes the deadline back once all is there: the server goes on reading, to notice a client that goes away. After a failure
// it stays, so that the server does not wait for the rest either.
func (p *patient) end() { _ = p.controller.SetReadDeadline(time.Time{}) }

// readSized reads size bytes into one piece of memory that grows with what arrives.
func readSized(source io.Reader, size int) ([]byte, error) {
	text := make([]byte, min(size, firstPiece))
	for at := 0; ; {
		n, err := io.ReadFull(source, text[at:])
		if at += n; err != nil || at == size {
			return text[:at], err
		}
		grown := make([]byte, min(size, 4*len(text)))
		copy(grown, text)
		text = grown
	}
}

func (r Reader) tooLarge() *problem.Problem {
	return &problem.Problem{Status: http.StatusRequestEntityTooLarge, Class: "PayloadTooLarge", Reason: "request.payload_too_large",
		Message: fmt.Sprintf("Request body exceeds the limit of %d MB set by DYN_HTTP_BODY_LIMIT_MB", r.LimitMB)}
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	return media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}

// Document reads and parses the body.
func (r Reader) Document(w http.ResponseWriter, request *http.Request) (*jsontape.Document, *problem.Problem) {
	text, p := r.Raw(w, request)
	if p != nil {
		return nil, p
	}
	document, err := jsontape.ParseLenient(text)
	if err != nil {
		var syntax *jsontape.SyntaxError
		param := ""
		if errors.As(err, &syntax) {
			param = syntax.Field
		}
		return nil, problem.Invalid(param, DeserializePrefix+"%v", err)
	}
	return document, nil
}

// LooseDocument is Document for the routes that take any content type that says JSON and answer syntax errors in plain text.
func (r Reader) LooseDocument(w http.ResponseWriter, request *http.Request) (*jsontape.Document, *PlainError) {
	if !isJSON(request.Header.Get("Content-Type")) {
		return nil, &PlainError{http.StatusUnsupportedMediaType, "Expected request with `Content-Type: application/json`"}
	}
	text, p := r.bytes(w, request)
	if p != nil {
		return nil, &PlainError{p.Status, p.Message}
	}
	document, err := jsontape.ParseLenient(text)
	if err != nil {
		return nil, &PlainError{http.StatusBadRequest, "Failed to parse the request body as JSON: " + err.Error()}
	}
	return document, nil
}

// PlainError is a refusal that existing clients receive as plain text.
type PlainError struct {
	Status  int
	Message string
}

// Write answers with the text.
func (e *PlainError) Write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(e.Status)
	_, _ = io.WriteString(w, e.Message)
}
