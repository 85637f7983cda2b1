package verify

import (
	"testing"

	"signalbox/internal/golden"
)

func TestParsersAgree(t *testing.T) {
	result := Parsers(golden.Dir(t, "parsers"))
	for _, failure := range result.Failures {
		t.Error(failure)
	}
	t.Logf("%d passed", result.Passed)
	if result.Passed == 0 {
		t.Error("no recordings")
	}
}
