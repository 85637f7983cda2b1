package terminal

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers with the number of messages and the last one; a line "fail" is refused, "break" breaks off.
func server(t *testing.T, modelsAfter int32) *httptest.Server {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			if asked.Add(1) <= modelsAfter {
				fmt.Fprint(w, `{"data":[]}`)
				return
			}
			fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
			return
		}
		var body struct {
			Model    string
			Messages []message
		}
		if json.NewDecoder(r.Body).Decode(&body) != nil || body.Model != "m" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		last := body.Messages[len(body.Messages)-1].Content
		if last == "fail" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"message":"x","error":{"message":"refused by name"}}`)
			return
		}
		for _, piece := range []string{fmt.Sprint(len(body.Messages)), ":", last} {
			text, _ := json.Marshal(piece)
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n", text)
		}
		if last == "break" {
			fmt.Fprint(w, "data: {\"error\":{\"message\":\"the worker is gone\"}}\n\n")
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.Close()
	})
	return s
}

func TestConversation(t *testing.T) {
	var out strings.Builder
	chat := &Chat{URL: server(t, 1).URL, In: strings.NewReader("one\nfail\nbreak\ntwo\n\nthree\n"), Out: &out}
	if err := chat.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "Waiting for a model.\nTalking to m. An empty line starts over; Ctrl-D ends.\n> 1:one\n> [refused by name]\n> 3:break\n[the worker is gone]\n> 3:two\n> > 1:three\n> \n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestTheEndOfTheContextEndsTheConversation(t *testing.T) {
	in, hold := io.Pipe()
	defer hold.Close()
	ctx, cancel := context.WithCancel(t.Context())
	out := &notifying{written: make(chan struct{}, 1)}
	done := make(chan error)
	go func() { done <- (&Chat{URL: server(t, 0).URL, In: in, Out: out}).Run(ctx) }()
	<-out.written
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type notifying struct{ written chan struct{} }

func (n *notifying) Write(p []byte) (int, error) {
	select {
	case n.written <- struct{}{}:
	default:
	}
	return len(p), nil
}
