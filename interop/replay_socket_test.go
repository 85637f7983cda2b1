package interop

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// An indexer that begins to listen to a real mock worker after that has published asks it for what it missed.
func TestLostEventsAreToldAgain(t *testing.T) {
	python := os.Getenv("SIGNALBOX_PYTHON161")
	if python == "" {
		t.Skip("SIGNALBOX_PYTHON161 names no Python with the real mock worker")
	}
	r := release{"1.6.1", python, "interop"}
	events, replay := freePort(t), freePort(t)
	store := fileStore(t)
	startMocker(t, r, store, modelDirectory(t), "--block-size", "16", "--zmq-kv-events-ports", fmt.Sprint(events), "--zmq-replay-ports", fmt.Sprint(replay))
	ours := startOurs(t, store)
	model := ours.serve(t)
	complete := func(first int) {
		t.Helper()
		tokens := make([]string, 48)
		for i := range tokens {
			tokens[i] = fmt.Sprint(first + i)
		}
		status, text, err := ours.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":[%s],"max_tokens":1}`, model, strings.Join(tokens, ",")))
		if err != nil || status != http.StatusOK {
			t.Fatal(status, text, err)
		}
	}
	complete(100) // nobody listens

	port := freePort(t)
	start(t, nil, program, "indexer", "--port", fmt.Sprint(port))
	service := selector{base: fmt.Sprintf("http://127.0.0.1:%d", port)}
	eventually(t, "the indexer serves", func() bool {
		response, err := http.Get(service.base + "/health")
		if err != nil {
			return false
		}
		response.Body.Close()
		return true
	})
	question := fmt.Sprintf(`POST /register {"instance_id":1,"endpoint":"tcp://127.0.0.1:%d","replay_endpoint":"tcp://127.0.0.1:%d","model_name":"m","block_size":16}`, events, replay)
	if status, text := service.do(t, question); status != http.StatusCreated {
		t.Fatal(status, text)
	}
	eventually(t, "the indexer listens", func() bool {
		_, text := service.do(t, "GET /workers")
		return strings.Contains(text, `"status":"active"`)
	})
	first := 1000
	eventually(t, "what was published before is known", func() bool {
		complete(first) // the worker publishes something, which shows the gap
		first += 50
		tokens := make([]string, 48)
		for i := range tokens {
			tokens[i] = fmt.Sprint(100 + i)
		}
		_, text := service.do(t, fmt.Sprintf(`POST /query {"model_name":"m","token_ids":[%s]}`, strings.Join(tokens, ",")))
		return strings.Contains(text, `"longest_matched":48`)
	})
}
