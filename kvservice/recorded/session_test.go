package recorded_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"signalbox/internal/golden"
	"signalbox/kvservice/recorded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sessions are the recordings, with how many comparisons each has at least.
var sessions = map[string]int{"indexer-http-1.6.1.json": 30, "slot-tracker-http-1.6.1.json": 20, "select-service-http-1.6.1.json": 40}

// The services answer all that was asked of the real ones as those did, and tell their replicas the same.
func TestSessions(t *testing.T) {
	for name, least := range sessions {
		t.Run(name, func(t *testing.T) {
			result, err := recorded.Replay(filepath.Join(golden.Dir(t, "kv_services"), name))
			if err != nil {
				t.Fatal(err)
			}
			for _, failure := range result.Failures {
				t.Error(failure)
			}
			if result.Passed < least {
				t.Errorf("%d comparisons, want at least %d", result.Passed, least)
			}
		})
	}
}

// A check that passes whatever is recorded checks nothing.
func TestChangedSessionFails(t *testing.T) {
	for _, c := range []struct{ file, from, to string }{
		{"select-service-http-1.6.1.json", `"effective_prefill_tokens": 9, "potential_decode_blocks": 5`, `"effective_prefill_tokens": 9, "potential_decode_blocks": 4`},
		{"select-service-http-1.6.1.json", `"error": "reservation r1 not found"`, `"error": "reservation r1 is gone"`},
		{"select-service-http-1.6.1.json", `"worker_id": 2, "dp_rank": 0, "endpoint": "http://w2:1", "block_size": 4, "overlap": {"longest_matched": 8, "gpu": 8, "dp": {"0": 8}, "cpu": 8, "disk": 8}, "effective_prefill_tokens": 9, "potential_decode_blocks": 5}},
{"method": "POST", "path": "/select_and_reserve", "request": {"model_name": "m", "token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17], "selection_id": "r1"}`,
			`"worker_id": 3, "dp_rank": 0, "endpoint": "http://w2:1", "block_size": 4, "overlap": {"longest_matched": 8, "gpu": 8, "dp": {"0": 8}, "cpu": 8, "disk": 8}, "effective_prefill_tokens": 9, "potential_decode_blocks": 5}},
{"method": "POST", "path": "/select_and_reserve", "request": {"model_name": "m", "token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17], "selection_id": "r1"}`},
		{"select-service-http-1.6.1.json", `"initial_effective_prefill_tokens": 9`, `"initial_effective_prefill_tokens": 8`},
		{"select-service-http-1.6.1.json", `"status": 409`, `"status": 410`},
		{"slot-tracker-http-1.6.1.json", `"potential_decode_blocks": 4`, `"potential_decode_blocks": 5`},
		{"slot-tracker-http-1.6.1.json", `"data": "Free"`, `"data": "Freed"`},
		{"indexer-http-1.6.1.json", `"scores": {"1": {"0": 12}`, `"scores": {"1": {"0": 16}`},
		{"indexer-http-1.6.1.json", `"content_type": "text/plain; charset=utf-8"`, `"content_type": "text/html"`},
	} {
		content, err := os.ReadFile(filepath.Join(golden.Dir(t, "kv_services"), c.file))
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Replace(content, []byte(c.from), []byte(c.to), 1)
		if bytes.Equal(changed, content) {
			t.Errorf("%s holds no %s", c.file, c.from)
			continue
		}
		path := filepath.Join(t.TempDir(), c.file)
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if result, err := recorded.Replay(path); err != nil || len(result.Failures) == 0 {
			t.Errorf("%s with %s passes: %v", c.file, c.to, err)
		}
	}
}

func TestOutsideData(t *testing.T) {
	for name := range sessions {
		for _, content := range []string{``, `{}`, `[1]`, `{"exchanges":[]}`, `{"exchanges":[{}]}`, `{"exchanges":[{"method":"GET","path":"/health"}]}`} {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if result, err := recorded.Replay(path); err == nil && len(result.Failures) == 0 {
				t.Errorf("%s: %q passes", name, content)
			}
		}
		if _, err := recorded.Replay(filepath.Join(t.TempDir(), name)); err == nil {
			t.Errorf("%s: an absent file passes", name)
		}
	}
	if _, err := recorded.Replay("other.json"); err == nil {
		t.Error("a file of no known service passes")
	}
}
