package sse

import (
	"bufio"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// event is one event as a reader of streams understands it.
type event struct{ name, data string }

// parse reads a stream as browsers do: lines end with LF, CR or both, comments are passed over, data lines are joined.
func parse(stream string) (events []event) {
	stream = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream)
	var current event
	var data []string
	lines := bufio.NewScanner(strings.NewReader(stream))
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if data != nil || current.name != "" {
				current.data = strings.Join(data, "\n")
				events = append(events, current)
			}
			current, data = event{}, nil
		case field == "event":
			current.name = value
		case field == "data":
			data = append(data, value)
		}
	}
	return events
}

func TestEventsSurviveWhatIsInThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab:\n\r é")), 0, 12, -1)
		recorder := httptest.NewRecorder()
		w := NewWriter(recorder, 0)
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		var want []event
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				data := text.Draw(t, "data")
				w.Data([]byte(data))
				want = append(want, event{"", strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data)})
			case 1:
				name, comment := text.Draw(t, "name"), text.Draw(t, "comment")
				w.Annotation("n"+name, comment)
				want = append(want, event{strings.NewReplacer("\n", " ", "\r", " ").Replace("n" + name), ""})
			default:
				w.Comment(text.Draw(t, "comment alone"))
			}
		}
		if err := w.Done(); err != nil {
			t.Fatal(err)
		}
		want = append(want, event{"", "[DONE]"})
		if diff := cmp.Diff(want, parse(recorder.Body.String()), cmp.AllowUnexported(event{})); diff != "" {
			t.Fatalf("%q (-want +got):\n%s", recorder.Body, diff)
		}
	})
}

func TestAStreamBeginsWithItsHeaders(t *testing.T) {
	recorder := httptest.NewRecorder()
	w := NewWriter(recorder, 0)
	if w.Started() || recorder.Flushed {
		t.Error("something was sent before the start")
	}
	if err := w.Start(); err != nil || !w.Started() || !recorder.Flushed {
		t.Fatalf("%v", err)
	}
	if recorder.Header().Get("Content-Type") != "text/event-stream" || recorder.Header().Get("Cache-Control") != "no-cache" || recorder.Code != 200 {
		t.Errorf("%d, %v", recorder.Code, recorder.Header())
	}
	w.Data([]byte("x"))
	if recorder.Body.Len() != 0 || w.Unsent() == 0 {
		t.Error("an event was sent before the flush")
	}
	w.Data(make([]byte, MaxBuffered))
	if recorder.Body.Len() == 0 || w.Unsent() != 0 {
		t.Error("much more than may be gathered was not sent")
	}
	if err := w.KeepAlive(); err != nil || !strings.HasSuffix(recorder.Body.String(), "\n\n:\n\n") {
		t.Errorf("%v", err)
	}
}

// broken is a connection whose client is gone.
type broken struct{ *httptest.ResponseRecorder }

var errGone = errors.New("gone")

func (broken) Write([]byte) (int, error) { return 0, errGone }

func TestAFailureStays(t *testing.T) {
	w := NewWriter(broken{httptest.NewRecorder()}, 0)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	w.Data([]byte("x"))
	for range 2 {
		if err := w.Flush(); !errors.Is(err, errGone) {
			t.Error(err)
		}
	}
	for range 100 {
		w.Data(make([]byte, MaxBuffered))
	}
	if w.Unsent() > 2*MaxBuffered || !errors.Is(w.Err(), errGone) {
		t.Errorf("%d bytes are kept for a client that is gone", w.Unsent())
	}
}
