// Package recorded replays sessions that were recorded with Dynamo's services against the ones of package kvservice: the same
// questions in the same order, with engines that publish what those of the recording did.
package recorded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

// Session is a recorded session.
type Session struct {
	Exchanges []Exchange
	Messages  []Message `json:"replica_sync_messages"`
}

// Exchange is one question and its answer.
type Exchange struct {
	Method, Path string
	Request      json.RawMessage
	Status       int
	ContentType  *string `json:"content_type"`
	Response     json.RawMessage
}

// Message is what the service told its replicas.
type Message struct {
	// Frames are the parts, in hexadecimal digits.
	Frames  []string `json:"frames_hex"`
	Decoded json.RawMessage
}

// Read reads a recorded session. Each of the replacements, in pairs of old and new, changes the text first.
func Read(path string, replacements ...string) (session Session, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return session, err
	}
	if err := json.Unmarshal([]byte(strings.NewReplacer(replacements...).Replace(string(text))), &session); err != nil {
		return session, fmt.Errorf("%s: %w", path, err)
	}
	if len(session.Exchanges) == 0 {
		return session, fmt.Errorf("%s: it has no exchanges", path)
	}
	return session, nil
}

// Result is how a replay came out: how many answers were as recorded, and what was not.
type Result struct {
	Passed   int
	Failures []string
}

func (r *Result) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// Replay replays the session in a file against a fresh service of the kind that the file's name begins with.
func Replay(path string) (Result, error) {
	switch name := filepath.Base(path); {
	case strings.HasPrefix(name, "indexer-"):
		return replayIndexer(path)
	case strings.HasPrefix(name, "slot-tracker-"):
		return replaySlots(path)
	case strings.HasPrefix(name, "select-service-"):
		return replaySelect(path)
	}
	return Result{}, fmt.Errorf("%s: it is no session of an indexer, a slot tracker or a select-service", path)
}

// replay asks everything that was asked. before is called ahead of each exchange; nil for nothing.
func replay(service http.Handler, session *Session, before func(i int, e *Exchange) error) (result Result) {
	for i := range session.Exchanges {
		e := &session.Exchanges[i]
		if before != nil {
			if err := before(i, e); err != nil {
				result.fail("%d: %s %s: %v", i, e.Method, e.Path, err)
				return result
			}
		}
		if err := e.ask(service); err != nil {
			result.fail("%d: %s %s %s: %v", i, e.Method, e.Path, e.Request, err)
		} else {
			result.Passed++
		}
	}
	return result
}

// ask asks the question and compares the answer.
func (e *Exchange) ask(service http.Handler) error {
	body := []byte(e.Request)
	var raw string
	if json.Unmarshal(e.Request, &raw) == nil {
		body = []byte(raw) // no JSON on purpose
	}
	request, err := http.NewRequest(e.Method, e.Path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	w := httptest.NewRecorder()
	service.ServeHTTP(w, request)
	if w.Code != e.Status {
		return fmt.Errorf("status %d, recorded %d: %s", w.Code, e.Status, w.Body)
	}
	got := w.Header().Get("Content-Type")
	if e.ContentType != nil && got != *e.ContentType || e.ContentType == nil && got != "" {
		return fmt.Errorf("content type %q, recorded %s", got, text(e.ContentType))
	}
	return e.compare(w.Body.Bytes())
}

func text(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}

// madeUp is an id that a service makes up.
var madeUp = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// compare compares an answer with the recorded one. The wording of what a parser says is its own, and so are ids that are made up.
func (e *Exchange) compare(body []byte) error {
	var want, got any
	if err := decode(e.Response, &want); err != nil {
		return err
	}
	if text, plain := want.(string); plain {
		if !sameProblem(text, string(body)) {
			return fmt.Errorf("%q, recorded %q", body, text)
		}
		return nil
	}
	if err := decode(body, &got); err != nil {
		return fmt.Errorf("%w: %s", err, body)
	}
	wantMembers, _ := want.(map[string]any)
	gotMembers, _ := got.(map[string]any)
	for _, name := range []string{"error", "selection_id"} {
		wanted, isText := wantMembers[name].(string)
		given, isToo := gotMembers[name].(string)
		if !isText || !isToo {
			continue
		}
		if name == "error" && sameProblem(wanted, given) || name == "selection_id" && madeUp.MatchString(wanted) && madeUp.MatchString(given) {
			gotMembers[name] = wanted
		}
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Errorf("answered %s\nrecorded %s", body, e.Response)
	}
	return nil
}

// sameProblem compares messages: of what a parser says only what it could not do.
func sameProblem(want, got string) bool {
	head, _, _ := strings.Cut(want, ":")
	return want == got || strings.HasPrefix(want, "Failed to ") && strings.HasPrefix(got, head)
}

// decode reads JSON with its numbers as they are written.
func decode(text []byte, into *any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if decoder.More() {
		return errors.New("there is more than one JSON value")
	}
	return nil
}
