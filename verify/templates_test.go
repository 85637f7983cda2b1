package verify

import (
	"testing"

	"signalbox/internal/golden"
)

func TestChatTemplatesAgree(t *testing.T) {
	folder := golden.Dir(t, "chat_templates")
	t.Setenv(ModelsVariable, golden.Models(t))
	result := ChatTemplates(folder)
	for _, failure := range result.Failures[:min(20, len(result.Failures))] {
		t.Error(failure)
	}
	if len(result.Failures) > 0 || result.Passed == 0 {
		t.Errorf("%d passed, %d failed", result.Passed, len(result.Failures))
	}
	t.Logf("%d passed", result.Passed)
}
