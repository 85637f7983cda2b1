package problem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"signalbox/inference"
	"signalbox/pipeline"
)

type full struct{}

func (full) Error() string          { return "the queue is full" }
func (full) ProblemDetails() []byte { return []byte(`{"limit":3}`) }

// TestFailuresBecomeAnswers goes through what can go wrong, as the reference's clients know it: before anything was sent, and
// inside a stream.
func TestFailuresBecomeAnswers(t *testing.T) {
	kind := func(k inference.Kind) error { return inference.Errorf(k, "internal detail") }
	status := func(code int) error {
		return &inference.Error{Kind: inference.Unknown, Status: code, Message: "internal detail"}
	}
	public := &inference.Error{Kind: inference.InvalidArgument, Message: "internal detail", Public: "said by the worker"}
	for name, test := range map[string]struct {
		err     error
		status  int
		message string
		details string
		stream  StreamError
	}{
		"bad argument":     {kind(inference.InvalidArgument), 400, "Invalid request", "", StreamError{"Invalid request", "invalid_request_error", 400}},
		"with public text": {public, 400, "said by the worker", "", StreamError{"said by the worker", "invalid_request_error", 400}},
		"wrapped":          {fmt.Errorf("outer: %w", public), 400, "said by the worker", "", StreamError{"said by the worker", "invalid_request_error", 400}},
		"backend argument": {kind(inference.BackendInvalid), 400, "Invalid request", "", StreamError{"Invalid request", "invalid_request_error", 400}},
		"too long":         {kind(inference.ContextLengthLimit), 400, "Invalid request", "", StreamError{"Invalid request", "invalid_request_error", 400}},
		"exhausted":        {kind(inference.ResourceExhausted), 529, "Service temporarily overloaded", "", StreamError{"Service temporarily overloaded", "service_unavailable", 529}},
		"overloaded":       {kind(inference.WorkerOverloaded), 529, "Service temporarily overloaded", "", StreamError{"Service temporarily overloaded", "service_unavailable", 529}},
		"queue":            {full{}, 529, "the queue is full", `{"limit":3}`, StreamError{"Service temporarily overloaded", "service_unavailable", 529}},
		"rate":             {kind(inference.RateLimited), 429, "Too Many Requests", "", StreamError{"Rate limit exceeded", "rate_limit_error", 429}},
		"unavailable":      {kind(inference.Unavailable), 503, "Service temporarily unavailable", "", StreamError{"Service temporarily unavailable", "service_unavailable", 503}},
		"no connection":    {kind(inference.CannotConnect), 503, "Service temporarily unavailable", "", StreamError{"Service temporarily unavailable", "service_unavailable", 503}},
		"broken":           {kind(inference.Disconnected), 503, "Service temporarily unavailable", "", StreamError{"Service temporarily unavailable", "service_unavailable", 503}},
		"nobody":           {pipeline.ErrNoWorkers, 503, "Service temporarily unavailable", "", StreamError{"Service temporarily unavailable", "service_unavailable", 503}},
		"cut off":          {io.ErrUnexpectedEOF, 503, "Service temporarily unavailable", "", StreamError{"Service temporarily unavailable", "service_unavailable", 503}},
		"late":             {kind(inference.ResponseTimeout), 504, "Request deadline exceeded", "", StreamError{"Request deadline exceeded", "timeout_error", 504}},
		"cancelled":        {kind(inference.Cancelled), 499, "Request cancelled", "", StreamError{"Request cancelled", "request_cancelled", 499}},
		"context":          {context.Canceled, 499, "Request cancelled", "", StreamError{"Request cancelled", "request_cancelled", 499}},
		"unknown":          {kind(inference.Unknown), 500, "Internal server error", `{"backend_status":500}`, StreamError{"Internal server error", "internal_server_error", 500}},
		"protocol":         {kind(inference.ProtocolViolation), 500, "Internal server error", `{"backend_status":500}`, StreamError{"Internal server error", "internal_server_error", 500}},
		"anything":         {errors.New("internal detail"), 500, "Internal server error", "", StreamError{"Internal server error", "internal_server_error", 500}},
		"HTTP 404":         {status(404), 404, "Not Found", "", StreamError{"Resource not found", "not_found_error", 404}},
		"HTTP 422":         {status(422), 400, "Unprocessable Entity", "", StreamError{"Invalid request", "invalid_request_error", 400}},
		"HTTP 415":         {status(415), 415, "Unsupported Media Type", "", StreamError{"Unsupported media type", "invalid_request_error", 415}},
		"HTTP 429":         {status(429), 429, "Too Many Requests", "", StreamError{"Rate limit exceeded", "rate_limit_error", 429}},
		"HTTP 499":         {status(499), 499, "Request cancelled", "", StreamError{"Request cancelled", "request_cancelled", 499}},
		"HTTP 502":         {status(502), 500, "Internal server error", `{"backend_status":502}`, StreamError{"Bad gateway", "internal_server_error", 502}},
		"HTTP 503":         {status(503), 503, "Internal server error", "", StreamError{"Service temporarily unavailable", "service_unavailable", 503}},
		"HTTP 529":         {status(529), 529, "Service temporarily overloaded", "", StreamError{"Service temporarily overloaded", "service_unavailable", 529}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Mapper{}.FromError(test.err, false)
			if p.Status != test.status || p.Message != test.message || string(p.Details) != test.details {
				t.Errorf("%d %q %s, want %d %q %s", p.Status, p.Message, p.Details, test.status, test.message, test.details)
			}
			if p.Class == "" || p.Reason == "" || !errors.Is(p, test.err) {
				t.Errorf("class %q, reason %q, cause %v", p.Class, p.Reason, p.Cause)
			}
			if got := (Mapper{}).InStream(test.err); got != test.stream {
				t.Errorf("in a stream %+v, want %+v", got, test.stream)
			}
			recorder := httptest.NewRecorder()
			p.Write(recorder)
			if text := recorder.Body.String(); recorder.Code != test.status || !json.Valid([]byte(text)) || strings.Contains(text, "internal detail") {
				t.Errorf("status %d, %s", recorder.Code, text)
			}
		})
	}
}

// TestAfterTheFirstItemNothingIsSaidOfTheBackend: then the status is the frontend's own.
func TestAfterTheFirstItemNothingIsSaidOfTheBackend(t *testing.T) {
	if p := (Mapper{}).FromError(inference.Errorf(inference.Unknown, "x"), true); p.Status != 500 || p.Details != nil {
		t.Errorf("%+v", p)
	}
}

// TestOverloadHasTheStatusThatOperatorsWant checks the setting, and that only overloads follow it.
func TestOverloadHasTheStatusThatOperatorsWant(t *testing.T) {
	m := Mapper{OverloadStatus: 429}
	for _, k := range []inference.Kind{inference.ResourceExhausted, inference.WorkerOverloaded} {
		if p := m.FromError(inference.Errorf(k, "x"), false); p.Status != 429 || !p.Overload {
			t.Errorf("%s: %+v", k, p)
		}
	}
	if p := m.FromError(inference.Errorf(inference.Unavailable, "x"), false); p.Status != 503 {
		t.Errorf("%+v", p)
	}
}

// TestTheBodyHasBothShapes compares keys and their order.
func TestTheBodyHasBothShapes(t *testing.T) {
	p := &Problem{Status: 400, Message: "a \"b\"", Param: "x", Code: "c", Detail: "more", Details: []byte(`{"d":1}`)}
	want := `{"message":"a \"b\"","type":"Bad Request","code":400,"details":{"d":1},"error":{"message":"more","type":"invalid_request_error","param":"x","code":"c"}}`
	if got := string(p.AppendJSON(nil)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	want = `{"message":"m","type":"Overloaded","code":529,"error":{"message":"m","type":"overloaded_error","param":null,"code":"overloaded"}}`
	recorder := httptest.NewRecorder()
	Mapper{}.overload("m", nil).Write(recorder)
	if recorder.Body.String() != want || recorder.Header().Get("Retry-After") == "" || recorder.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%s, %v", recorder.Body, recorder.Header())
	}
}

// TestPromptMistakes keeps the general text in the flat body and says the rest in the object.
func TestPromptMistakes(t *testing.T) {
	p := Mapper{}.FromError(&pipeline.PromptError{Param: "messages", Message: "the template refuses this"}, false)
	if p.Status != http.StatusBadRequest || p.Message != "Invalid request" || p.Detail != "the template refuses this" || p.Param != "messages" {
		t.Errorf("%+v", p)
	}
	asked := 10
	p = Mapper{}.FromError(&pipeline.ContextLengthError{Limit: 8, Prompt: 5, MaxTokens: &asked}, false)
	if p.Status != 400 || p.Code != "context_length_exceeded" || !strings.Contains(p.Message, "15 tokens total") {
		t.Errorf("%+v", p)
	}
}

// TestTextsAreBounded: a mistake may be as long as the request.
func TestTextsAreBounded(t *testing.T) {
	p := Invalid(strings.Repeat("é", 10000), "unknown %s", strings.Repeat("é", 10000))
	if len(p.Message) > maxText+3 || len(p.Param) > maxText+3 || !strings.HasSuffix(p.Message, "é…") {
		t.Errorf("%d and %d bytes", len(p.Message), len(p.Param))
	}
}
