package interop

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestAdaptersAreLoadedWhileAllRuns loads a LoRA adapter at a running worker of ours, by the routes that operators' programs use with
// real workers: both frontends serve it, and no longer once it is unloaded. The base model's requests never notice.
func TestAdaptersAreLoadedWhileAllRuns(t *testing.T) {
	r := releases(t)[0]
	s := fileStore(t)
	s.extra = []string{"DYN_LORA_ENABLED=true"}
	port := freePort(t)
	start(t, append(s.environment(), fmt.Sprintf("DYN_SYSTEM_PORT=%d", port)), program,
		append([]string{"worker", "--model-name", "interop", "--model-path", modelDirectory(t), "--max-loras", "2"}, s.flags()...)...)
	frontends := map[string]*frontend{"ours": startOurs(t, s, "--router-mode", "kv"), "theirs": startTheirs(t, r, s, "--router-mode", "kv")}
	call := func(method, path, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequest(method, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	for _, f := range frontends {
		f.serve(t)
	}
	for round := range 2 { // an adapter can come again
		if status, text := call(http.MethodPost, "/v1/loras", `{"lora_name":"poet","source":{"uri":"file:///adapters/poet"}}`); status != 200 {
			t.Fatalf("load: %d, %s", status, text)
		}
		for kind, f := range frontends {
			eventually(t, fmt.Sprintf("round %d: %s serves the adapter", round, kind), func() bool {
				status, text, err := f.post("/v1/completions", `{"model":"poet","prompt":"where","max_tokens":3}`)
				return err == nil && status == 200 && strings.Contains(text, `"model":"poet"`) && slices.Contains(f.models(), "poet")
			})
		}
		if status, text := call(http.MethodGet, "/v1/loras", ""); status != 200 || !strings.Contains(text, `"poet":`) || !strings.Contains(text, `"count":1`) {
			t.Errorf("list: %d, %s", status, text)
		}
		if status, text := call(http.MethodDelete, "/v1/loras/poet", ""); status != 200 {
			t.Errorf("unload: %d, %s", status, text)
		}
		for kind, f := range frontends {
			eventually(t, fmt.Sprintf("round %d: %s has forgotten the adapter", round, kind), func() bool {
				status, _, err := f.post("/v1/completions", `{"model":"poet","prompt":"where","max_tokens":3}`)
				return err == nil && status == 404 && !slices.Contains(f.models(), "poet")
			})
			if status, text, err := f.post("/v1/completions", `{"model":"interop","prompt":"where","max_tokens":3}`); err != nil || status != 200 {
				t.Errorf("round %d: %s: the base model: %d, %v, %s", round, kind, status, err, text)
			}
		}
	}
}
