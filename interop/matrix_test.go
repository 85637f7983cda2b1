package interop

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// each runs the test for every release of the peers on every kind of store.
func each(t *testing.T, test func(t *testing.T, r release, s store)) {
	for _, r := range releases(t) {
		for kind, open := range stores() {
			t.Run(r.name+"/"+kind, func(t *testing.T) { test(t, r, open(t)) })
		}
	}
}

// exercise uses a frontend as its clients would.
func exercise(t *testing.T, f *frontend, model string) {
	t.Helper()
	status, text, err := f.post("/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Where does this train go?"}],"max_tokens":7}`, model))
	if err != nil || status != 200 || !strings.Contains(text, `"completion_tokens":7`) || !strings.Contains(text, `"finish_reason":"length"`) {
		t.Errorf("chat: status %d, %v: %s", status, err, text)
	}
	status, text, err = f.post("/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Where?"}],"max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`, model))
	if err != nil || status != 200 || !strings.Contains(text, `"completion_tokens":5`) || !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("stream: status %d, %v: %s", status, err, text)
	}
	status, text, err = f.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":[1,2,3],"max_tokens":3}`, model))
	if err != nil || status != 200 || !strings.Contains(text, `"prompt_tokens":3`) {
		t.Errorf("completion: status %d, %v: %s", status, err, text)
	}
}

// leave starts a long stream and goes away in its middle.
func leave(t *testing.T, f *frontend, model string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(
		fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"a long story"}],"max_tokens":2000,"stream":true}`, model)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadFull(response.Body, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
}

func TestTheirWorkerBehindOurFrontend(t *testing.T) {
	each(t, func(t *testing.T, r release, s store) {
		model := modelDirectory(t)
		first := startMocker(t, r, s, model, "--speedup-ratio", "10")
		ours := startOurs(t, s)
		name := ours.serve(t)
		exercise(t, ours, name)
		leave(t, ours, name)
		exercise(t, ours, name)
		startMocker(t, r, s, model, "--speedup-ratio", "10")
		eventually(t, "the second worker is known", func() bool {
			_, text, _ := get(ours.url + "/v1/models/" + name + "/ready")
			return strings.Contains(text, `"workers":2`)
		})
		first.signal(syscall.SIGTERM)
		eventually(t, "the first worker is gone", func() bool {
			_, text, _ := get(ours.url + "/v1/models/" + name + "/ready")
			return strings.Contains(text, `"workers":1`)
		})
		exercise(t, ours, name)
	})
}

func get(url string) (int, string, error) {
	response, err := http.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func TestOurWorkerBehindTheirFrontend(t *testing.T) {
	each(t, func(t *testing.T, r release, s store) {
		args := append([]string{"worker", "--model-name", "interop", "--model-path", modelDirectory(t), "--speedup-ratio", "10"}, s.flags()...)
		worker := start(t, s.environment(), program, args...)
		theirs := startTheirs(t, r, s)
		name := theirs.serve(t)
		exercise(t, theirs, name)
		leave(t, theirs, name)
		exercise(t, theirs, name)
		worker.signal(syscall.SIGTERM)
		eventually(t, "the model is gone", func() bool { return !slices.Contains(theirs.models(), name) })
	})
}

func TestAKilledWorkerFailsNoRequestThatHadNoByte(t *testing.T) {
	r := releases(t)[0]
	s := fileStore(t)
	model := modelDirectory(t)
	victim := startMocker(t, r, s, model, "--speedup-ratio", "10")
	ours := startOurs(t, s)
	name := ours.serve(t)
	startMocker(t, r, s, model, "--speedup-ratio", "10")
	eventually(t, "both workers are known", func() bool {
		_, text, _ := get(ours.url + "/v1/models/" + name + "/ready")
		return strings.Contains(text, `"workers":2`)
	})
	var sent, failed atomic.Int64
	var wait sync.WaitGroup
	kill := make(chan struct{})
	for client := range 8 {
		wait.Go(func() {
			for i := range 40 {
				if client == 0 && i == 10 {
					close(kill)
				}
				// One token: a request that fails has had no byte.
				status, text, err := ours.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"request %d of client %d","max_tokens":1}`, name, i, client))
				sent.Add(1)
				if err != nil || status != 200 {
					failed.Add(1)
					t.Logf("status %d, %v: %s", status, err, text)
				}
			}
		})
	}
	<-kill
	victim.signal(syscall.SIGKILL)
	wait.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d requests failed", failed.Load(), sent.Load())
	}
}

// digits returns the number that a text begins with.
func digits(text string) string {
	end := strings.IndexFunc(text, func(c rune) bool { return c < '0' || c > '9' })
	return text[:max(end, 0)]
}

// TestAdaptersAreModels registers a LoRA adapter at one of two workers of ours: both frontends list it and serve it there; the real one
// does so when it is told that there are adapters.
func TestAdaptersAreModels(t *testing.T) {
	r := releases(t)[0]
	s := fileStore(t)
	args := append([]string{"worker", "--model-name", "interop", "--model-path", modelDirectory(t)}, s.flags()...)
	start(t, s.environment(), program, args...)
	start(t, s.environment(), program, append(args, "--lora", "poet")...)
	s.extra = []string{"DYN_LORA_ENABLED=true"}
	for kind, f := range map[string]*frontend{"ours": startOurs(t, s), "theirs": startTheirs(t, r, s)} {
		eventually(t, kind+" lists the adapter", func() bool { return slices.Contains(f.models(), "poet") && slices.Contains(f.models(), "interop") })
		seen := map[string]bool{}
		for range 6 {
			var text string
			eventually(t, kind+" serves the adapter", func() (ok bool) {
				var status int
				status, text, _ = f.post("/v1/completions", `{"model":"poet","prompt":"where","max_tokens":3,"nvext":{"extra_fields":["worker_id"]}}`)
				return status == 200
			})
			_, id, found := strings.Cut(text, `"decode_worker_id":`)
			if !found || !strings.Contains(text, `"model":"poet"`) {
				t.Fatalf("%s: %s", kind, text)
			}
			seen[digits(id)] = true
		}
		if len(seen) != 1 {
			t.Errorf("%s: the adapter was served by %v", kind, seen)
		}
	}
}
