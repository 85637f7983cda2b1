package verify_test

import (
	"path/filepath"
	"testing"

	"signalbox/internal/golden"
	"signalbox/verify"
)

// A difference here means that whoever asks one of the services for a decision gets another one than from the real service.
func TestKVServices(t *testing.T) {
	result := verify.KVServices(golden.Dir(t, "kv_services"))
	for _, failure := range result.Failures {
		t.Error(failure)
	}
	if result.Passed < 90 {
		t.Errorf("%d comparisons", result.Passed)
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "indexer-absent.json")} {
		if result := verify.KVServices(path); len(result.Failures) == 0 {
			t.Errorf("%s passes", path)
		}
	}
}
