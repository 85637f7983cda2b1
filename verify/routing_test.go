package verify_test

import (
	"path/filepath"
	"testing"

	"signalbox/internal/golden"
	"signalbox/verify"
)

// A difference here means that the product and the real router, side by side on the same workers, choose differently.
func TestRouting(t *testing.T) {
	dir := golden.Dir(t, "routing")
	for _, name := range verify.RoutingFiles() {
		t.Run(name, func(t *testing.T) {
			result := verify.Routing(filepath.Join(dir, name))
			for _, failure := range result.Failures {
				t.Error(failure)
			}
			if result.Passed == 0 && len(result.Failures) == 0 {
				t.Error("nothing was checked")
			}
		})
	}
}
