package analytic_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/router/analytic"
	"signalbox/router/kv"
)

var _ kv.Predictor = (*analytic.Estimator)(nil)

func estimator(t testing.TB, change func(*analytic.Options)) *analytic.Estimator {
	t.Helper()
	options := analytic.Options{Backend: "vllm", System: "h200_sxm", ModelPath: "nvidia/Llama-3.1-8B-Instruct"}
	if change != nil {
		change(&options)
	}
	e, err := analytic.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func predict(t testing.TB, e *analytic.Estimator, input, cached int) time.Duration {
	t.Helper()
	d, err := e.PredictPrefill(input, cached)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// An 8-billion model computes some 30,000 tokens per second on one such device: the estimate must be of that order.
func TestTheOrderIsRight(t *testing.T) {
	if d := predict(t, estimator(t, nil), 8192, 0); d < 100*time.Millisecond || d > 600*time.Millisecond {
		t.Errorf("8192 tokens take %s", d)
	}
}

func TestTheDirectoryTellsTheSize(t *testing.T) {
	directory := t.TempDir()
	config := `{"num_hidden_layers":32,"hidden_size":4096,"intermediate_size":14336,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256}`
	if err := os.WriteFile(filepath.Join(directory, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	byName := predict(t, estimator(t, nil), 4000, 0)
	byFile := predict(t, estimator(t, func(o *analytic.Options) { o.ModelPath = directory }), 4000, 0)
	if ratio := byFile.Seconds() / byName.Seconds(); ratio < 0.85 || ratio > 1.15 {
		t.Errorf("by name %s, by its configuration %s", byName, byFile)
	}
}

func TestLongerTakesLongerAndCachedTakesLess(t *testing.T) {
	dense := estimator(t, nil)
	experts := estimator(t, func(o *analytic.Options) { o.ModelPath = "Qwen/Qwen3-30B-A3B" })
	rapid.Check(t, func(t *rapid.T) {
		input := rapid.IntRange(1, 200000).Draw(t, "input")
		cached := rapid.IntRange(0, input).Draw(t, "cached")
		d := predict2(dense, input, cached)
		if predict2(dense, input+100, cached) <= d || cached > 0 && predict2(dense, input, cached-1) <= d {
			t.Fatal("time does not grow with the tokens to compute")
		}
		if cached < input && predict2(experts, input, cached) > d {
			t.Fatal("3 billion active parameters take longer than 8")
		}
	})
}

func predict2(e *analytic.Estimator, input, cached int) time.Duration {
	d, _ := e.PredictPrefill(input, cached)
	return d
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	for text, change := range map[string]func(*analytic.Options){
		`backend "x"`:   func(o *analytic.Options) { o.Backend = "x" },
		`system "y"`:    func(o *analytic.Options) { o.System = "y" },
		`"some/model"`:  func(o *analytic.Options) { o.ModelPath = "some/model" },
		"4 * 2 is not ": func(o *analytic.Options) { o.TensorParallel, o.AttentionDataParallel, o.MoEExpertParallel = 4, 2, 4 },
		"tp size -1":    func(o *analytic.Options) { o.TensorParallel = -1 },
	} {
		options := analytic.Options{Backend: "vllm", System: "h200_sxm", ModelPath: "a/b-8B"}
		change(&options)
		if _, err := analytic.New(options); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
