// Package golden finds the recorded answers of the reference system that tests compare with. The recordings live beside the
// checkout, not in it; where they are absent the test that needs them is skipped and says so.
package golden

import (
	"os"
	"path/filepath"
	"testing"
)

// Root returns the folder that holds the golden folders, or "" where there is none: $SIGNALBOX_GOLDEN, else
// ../shared/golden next to the checkout.
func Root() string {
	if dir := os.Getenv("SIGNALBOX_GOLDEN"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			candidate := filepath.Join(filepath.Dir(dir), "shared", "golden")
			if _, err := os.Stat(candidate); err == nil {
				return candidate
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// Dir returns the golden folder called name, or skips the test.
func Dir(t testing.TB, name string) string {
	t.Helper()
	root := Root()
	if root == "" {
		t.Skipf("golden folder %q is not here: set SIGNALBOX_GOLDEN to the folder that holds it", name)
	}
	dir := filepath.Join(root, name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("golden folder %q is not here: %v", name, err)
	}
	return dir
}

// Models returns the folder of downloaded tokenizer and template files that the make target "models" fills
// ($SIGNALBOX_MODELS, else .cache/models in the checkout), or skips the test.
func Models(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("SIGNALBOX_MODELS"); dir != "" {
		return dir
	}
	dir, _ := os.Getwd()
	for dir != "/" && dir != "." {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			models := filepath.Join(dir, ".cache", "models")
			if _, err := os.Stat(models); err == nil {
				return models
			}
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Skip("model files are not here: run `make models`, or set SIGNALBOX_MODELS")
	return ""
}
