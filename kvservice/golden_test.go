package kvservice

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/golden"
)

// recording is a session with a real service.
type recording struct {
	Exchanges []struct {
		Method, Path string
		Request      json.RawMessage
		Status       int
		ContentType  *string `json:"content_type"`
		Response     json.RawMessage
	}
	Messages []struct {
		Frames []string `json:"frames_hex"`
	} `json:"replica_sync_messages"`
}

func readRecording(t *testing.T, name string) (r recording) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, "kv_services"), name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Exchanges) < 10 {
		t.Fatalf("%s has %d exchanges", name, len(r.Exchanges))
	}
	return r
}

// replay asks a service everything that was asked in the session, in order. The wording of what a parser says is its own.
func replay(t *testing.T, service http.Handler, r recording, before func(exchange int)) {
	t.Helper()
	for i, e := range r.Exchanges {
		if before != nil {
			before(i)
		}
		body := []byte(e.Request)
		var raw string
		if json.Unmarshal(e.Request, &raw) == nil && raw != "" {
			body = []byte(raw) // no JSON on purpose
		}
		if string(body) == "null" {
			body = nil
		}
		w := httptest.NewRecorder()
		service.ServeHTTP(w, httptest.NewRequest(e.Method, e.Path, bytes.NewReader(body)))
		if w.Code != e.Status {
			t.Errorf("%d: %s %s %s: status %d, recorded %d: %s", i, e.Method, e.Path, e.Request, w.Code, e.Status, w.Body)
			continue
		}
		if got := w.Header().Get("Content-Type"); e.ContentType != nil && got != *e.ContentType || e.ContentType == nil && got != "" {
			t.Errorf("%d: %s %s: content type %q, recorded %v", i, e.Method, e.Path, got, e.ContentType)
		}
		var want any
		if err := json.Unmarshal(e.Response, &want); err != nil {
			t.Fatal(err)
		}
		if text, is := want.(string); is {
			if head, _, _ := strings.Cut(text, ":"); !strings.HasPrefix(w.Body.String(), head) {
				t.Errorf("%d: %s %s: %q, recorded %q", i, e.Method, e.Path, w.Body, text)
			}
			continue
		}
		var got any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Errorf("%d: %s %s: %v: %s", i, e.Method, e.Path, err, w.Body)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d: %s %s %s (-recorded +got):\n%s", i, e.Method, e.Path, e.Request, diff)
		}
	}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func TestSlotTrackerSession(t *testing.T) {
	s, err := NewSlots(SlotOptions{SyncAddress: "127.0.0.1:0", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	replay(t, s, readRecording(t, "slot-tracker-http-1.6.1.json"), nil)
}

// What the real services tell their replicas is understood, and told again it is the same to the byte.
func TestReplicaMessages(t *testing.T) {
	for _, name := range []string{"slot-tracker-http-1.6.1.json", "select-service-http-1.6.1.json"} {
		for i, message := range readRecording(t, name).Messages {
			topic, _ := hex.DecodeString(message.Frames[0])
			payload, err := hex.DecodeString(message.Frames[1])
			if err != nil || string(topic) != replicaTopic {
				t.Fatalf("%s, message %d: topic %q, %v", name, i, topic, err)
			}
			where, event, from, err := parseReplicaMessage(payload)
			if err != nil || where != (pool{"m", "default"}) || event.RequestID == "" || event.Rank.WorkerID == 0 {
				t.Errorf("%s, message %d: %+v in %+v, %v", name, i, event, where, err)
			}
			if bytes.Contains(payload, []byte("prefill_load_hint\xc0")) {
				continue // a request without prompt work; told again it says so in another way
			}
			if again := appendReplicaMessage(nil, from, where, 4, &event); !bytes.Equal(again, payload) {
				t.Errorf("%s, message %d told again:\n%x\nrecorded\n%x", name, i, again, payload)
			}
		}
	}
}
