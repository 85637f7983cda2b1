package interop

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/golden"
)

// qwenDirectory is the stock Qwen3 tokenizer and template, with which the cases were recorded.
func qwenDirectory(t *testing.T) string {
	t.Helper()
	models := os.Getenv("SIGNALBOX_MODELS")
	if models == "" {
		t.Skip("no model files: set SIGNALBOX_MODELS, or run make test")
	}
	directory := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		text, err := os.ReadFile(filepath.Join(models, "tok", "qwen3", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	writeConfig(t, directory, 151936, 151645, 151643)
	return directory
}

var (
	failedCase = regexp.MustCompile(`(?m)^FAIL (\S+)`)
	summary    = regexp.MustCompile(`(?m)^\d+ cases, \d+ differ, 0 left out`)
)

// replay runs the recorded cases of a folder against a frontend and compares the cases that differ with the known ones. A known
// difference that is gone fails the test as well, so that the list stays true.
func replay(t *testing.T, f *frontend, folder string, known map[string]string) {
	t.Helper()
	tool := filepath.Join(golden.Dir(t, "http"), "replay.py")
	output, err := exec.Command(interpreter(t), tool, f.url, "--dir", golden.Dir(t, folder)).CombinedOutput()
	text := string(output)
	if !summary.MatchString(text) {
		t.Fatalf("%v: not all cases ran:\n%s", err, text)
	}
	var differ []string
	for _, match := range failedCase.FindAllStringSubmatch(text, -1) {
		differ = append(differ, match[1])
		if known[match[1]] == "" {
			t.Errorf("%s differs:\n%s", match[1], caseReport(text, match[1]))
		}
	}
	for name, why := range known {
		if !slices.Contains(differ, name) {
			t.Errorf("%s is listed as different (%s) and is not", name, why)
		}
	}
}

// interpreter is any Python: the replay tool needs nothing but that.
func interpreter(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("SIGNALBOX_PYTHON161"), "python3"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Python to run the replay tool")
	return ""
}

// caseReport is what the tool printed on one case.
func caseReport(text, name string) string {
	_, rest, _ := strings.Cut(text, "FAIL "+name+"\n")
	report, _, _ := strings.Cut(rest, "\nFAIL ")
	return report[:min(len(report), 2000)]
}

func waitForModels(t *testing.T, f *frontend, names ...string) {
	t.Helper()
	eventually(t, "the models are listed", func() bool {
		listed := f.models()
		for _, name := range names {
			if !slices.Contains(listed, name) {
				return false
			}
		}
		return true
	})
}

// TestRecordedAnswersWithTheirWorkers compares every recorded answer of the real frontend with ours, the real mock worker behind both.
func TestRecordedAnswersWithTheirWorkers(t *testing.T) {
	r := releases(t)[0]
	model, s := qwenDirectory(t), fileStore(t)
	trace := filepath.Join(golden.Dir(t, "http"), "trace.jsonl")
	mocker := func(args ...string) {
		args = append([]string{"-m", "dynamo.mocker", "--model-path", model, "--speedup-ratio", "100"}, append(args, s.flags()...)...)
		start(t, s.environment(), r.python, args...)
	}
	mocker("--model-name", "qwen3", "--num-workers", "2", "--response-replay-trace-path", trace)
	mocker("--model-name", "qwen3-short", "--max-model-len", "64", "--endpoint", "dyn://dynamo.short.generate")
	ours := startOurs(t, s, "--enable-anthropic-api", "--router-mode", recordedMode)
	waitForModels(t, ours, "qwen3", "qwen3-short")
	replay(t, ours, "http", nil)
}

// TestRecordedAnswersWithOurWorkers does the same with the simulated engine in the worker's place.
func TestRecordedAnswersWithOurWorkers(t *testing.T) {
	model, s := qwenDirectory(t), fileStore(t)
	trace := filepath.Join(golden.Dir(t, "http"), "trace.jsonl")
	worker := func(args ...string) {
		args = append([]string{"worker", "--model-path", model, "--speedup-ratio", "100"}, append(args, s.flags()...)...)
		start(t, s.environment(), program, args...)
	}
	worker("--model-name", "qwen3", "--num-workers", "2", "--response-replay-trace-path", trace)
	worker("--model-name", "qwen3-short", "--max-model-len", "64", "--endpoint", "dyn://dynamo.short.generate")
	ours := startOurs(t, s, "--enable-anthropic-api", "--router-mode", recordedMode)
	waitForModels(t, ours, "qwen3", "qwen3-short")
	replay(t, ours, "http", nil)
}

// TestScriptedAnswersWithTheirWorkers shows what the mock worker cannot: log probabilities, several choices, failures by kind.
func TestScriptedAnswersWithTheirWorkers(t *testing.T) {
	r := releases(t)[0]
	model, s := qwenDirectory(t), fileStore(t)
	environment := append(s.environment(), "DYN_DISCOVERY_BACKEND=file", "DYN_REQUEST_PLANE=tcp", "DYN_EVENT_PLANE=zmq")
	script := filepath.Join(golden.Dir(t, "http-scripted"), "worker.py")
	for name, kind := range map[string]string{"s-raw": "raw", "s-parse": "parse", "s-emb": "embed"} {
		start(t, environment, r.python, script, model, name, kind)
	}
	ours := startOurs(t, s, "--enable-anthropic-api")
	waitForModels(t, ours, "s-raw", "s-parse", "s-emb")
	replay(t, ours, "http-scripted", knownScripted)
}

// TestScriptedAnswersWithOurWorkers plays the same scripts with the simulated engine, which serves no embeddings.
func TestScriptedAnswersWithOurWorkers(t *testing.T) {
	model, s := qwenDirectory(t), fileStore(t)
	scripts := filepath.Join(golden.Dir(t, "http-scripted"), "scripts.json")
	worker := func(name string, args ...string) {
		args = append([]string{"worker", "--model-path", model, "--model-name", name, "--block-size", "16", "--context-length", "256",
			"--endpoint", "dyn://dynamo." + strings.ReplaceAll(name, "-", "") + ".generate", "--script-path", scripts}, append(args, s.flags()...)...)
		start(t, s.environment(), program, args...)
	}
	worker("s-raw")
	worker("s-parse", "--dyn-tool-call-parser", "hermes", "--dyn-reasoning-parser", "qwen3")
	ours := startOurs(t, s, "--enable-anthropic-api")
	waitForModels(t, ours, "s-raw", "s-parse")
	known := maps.Clone(knownScripted)
	for _, name := range []string{"emb-base64", "emb-string", "emb-tokens", "emb-unknown-field"} {
		known[name] = "the simulated engine serves no embeddings"
	}
	replay(t, ours, "http-scripted", known)
}
