// Package body reads request bodies of the HTTP APIs: content type, size limit, one JSON parse, and typed fields whose errors
// name the field and what was expected. It knows no protocol.
package body

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

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
}

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
	limited := http.MaxBytesReader(w, request.Body, r.LimitBytes)
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
		return nil, problem.Invalid("", "Failed to read the request body: %v", err)
	}
	return text, nil
}

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
