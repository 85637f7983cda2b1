// Package analytic estimates how long a worker computes a prompt, from the model's size and the hardware's peak rate. It stands
// in for a database of measured engines (AIC), which is not part of this product: the estimate is of the right order, grows with
// the prompt as real engines do, and needs no data. Routers use it to let active prefill decay while it is being computed.
//
//	duration = overhead + (2 × active parameters × new tokens + attention) / (peak rate × efficiency × tensor-parallel size)
//
// where attention is 4 × layers × hidden size per pair of a new token and a token before it.
package analytic

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options name what is estimated. The names are those of AIC.
type Options struct {
	// Backend is the engine: "vllm", "sglang" or "trtllm".
	Backend string
	// System is the hardware, for example "h200_sxm".
	System string
	// ModelPath is a directory with config.json, or a name that tells the size: "Llama-3.1-8B-Instruct-FP8", "Qwen3-30B-A3B".
	ModelPath string
	// TensorParallel is the number of devices that compute a prompt together; 0 means 1.
	TensorParallel int
	// MoETensorParallel, MoEExpertParallel and AttentionDataParallel spread a mixture of experts; 0 means 1. Where any of the
	// first two is given, TensorParallel × AttentionDataParallel must equal MoETensorParallel × MoEExpertParallel.
	MoETensorParallel, MoEExpertParallel, AttentionDataParallel int
}

// teraflops are the dense 16-bit peak rates of accelerators in 10^12 operations per second.
var teraflops = map[string]float64{
	"a100_sxm": 312, "a100_pcie": 312, "a30": 165, "l40s": 362, "h100_sxm": 989, "h100_pcie": 756, "h200_sxm": 989,
	"gh200": 989, "b200_sxm": 2250, "gb200": 2500, "gb200_sxm": 2500, "b300_sxm": 2500, "gb300": 2500, "gb300_sxm": 2500,
}

var backends = []string{"vllm", "sglang", "trtllm"}

// efficiency is the share of the peak rate that engines reach on prompts.
const efficiency = 0.5

// overhead is a step's time that does not depend on its tokens.
const overhead = 5 * time.Millisecond

// Estimator predicts prefill durations. It is safe for concurrent use and allocates nothing.
type Estimator struct {
	perToken float64 // seconds
	perPair  float64 // seconds per pair of a new token and one before it
}

// New returns an estimator. An unknown backend or system, a model of unknown size and an impossible parallelism are errors that
// say what would be right.
func New(options Options) (*Estimator, error) {
	if !slices.Contains(backends, options.Backend) {
		return nil, fmt.Errorf("prefill load model: backend %q is none of %s", options.Backend, strings.Join(backends, ", "))
	}
	rate, known := teraflops[options.System]
	if !known {
		var systems []string
		for name := range teraflops {
			systems = append(systems, name)
		}
		slices.Sort(systems)
		return nil, fmt.Errorf("prefill load model: system %q is none of %s", options.System, strings.Join(systems, ", "))
	}
	if err := options.checkParallelism(); err != nil {
		return nil, err
	}
	shape, err := readShape(options.ModelPath)
	if err != nil {
		return nil, err
	}
	if strings.Contains(strings.ToLower(options.ModelPath), "fp8") {
		rate *= 2
	}
	operations := rate * 1e12 * efficiency * float64(max(1, options.TensorParallel))
	return &Estimator{perToken: 2 * shape.parameters / operations, perPair: 4 * shape.layers * shape.hidden / operations}, nil
}

func (o *Options) checkParallelism() error {
	for name, value := range map[string]int{"tp": o.TensorParallel, "moe_tp": o.MoETensorParallel, "moe_ep": o.MoEExpertParallel, "attention_dp": o.AttentionDataParallel} {
		if value < 0 {
			return fmt.Errorf("prefill load model: %s size %d: it must be at least 1", name, value)
		}
	}
	if o.MoETensorParallel == 0 && o.MoEExpertParallel == 0 {
		return nil
	}
	tp, dp, moeTP, moeEP := max(1, o.TensorParallel), max(1, o.AttentionDataParallel), max(1, o.MoETensorParallel), max(1, o.MoEExpertParallel)
	if tp*dp != moeTP*moeEP {
		return fmt.Errorf("prefill load model: aic_tp_size * aic_attention_dp_size must equal aic_moe_tp_size * aic_moe_ep_size: %d * %d is not %d * %d", tp, dp, moeTP, moeEP)
	}
	return nil
}

// PredictPrefill returns the time for a prompt of inputTokens of which cachedTokens need not be computed. It never fails.
func (e *Estimator) PredictPrefill(inputTokens, cachedTokens int) (time.Duration, error) {
	cached := float64(min(max(0, cachedTokens), max(0, inputTokens)))
	fresh := float64(max(0, inputTokens)) - cached
	seconds := e.perToken*fresh + e.perPair*fresh*(cached+fresh/2)
	return overhead + time.Duration(min(seconds*float64(time.Second), math.MaxInt64/2)), nil
}

// shape is what of a model the time depends on.
type shape struct {
	parameters     float64 // that one token passes through
	layers, hidden float64
}

// sizeInName finds a parameter count in a model's name: "8B", "30B-A3B" where 3 billion are active, "0.6b".
var sizeInName = regexp.MustCompile(`(?i)(?:^|[-_./])(\d+(?:\.\d+)?)b(?:[-_]a(\d+(?:\.\d+)?)b)?(?:$|[-_./])`)

func readShape(modelPath string) (shape, error) {
	text, err := os.ReadFile(filepath.Join(modelPath, "config.json"))
	if err == nil {
		return shapeOf(modelPath, text)
	}
	match := sizeInName.FindStringSubmatch(modelPath)
	if match == nil {
		return shape{}, fmt.Errorf("prefill load model: %q is no directory with a config.json, and its name does not tell a size such as 8B", modelPath)
	}
	size := match[1]
	if match[2] != "" {
		size = match[2]
	}
	billions, err := strconv.ParseFloat(size, 64)
	if err != nil || billions <= 0 {
		return shape{}, fmt.Errorf("prefill load model: %q names a size of %s billion parameters", modelPath, size)
	}
	// Depth and width grow alike from those of an 8-billion model.
	scale := math.Cbrt(billions / 8)
	return shape{parameters: billions * 1e9, layers: 32 * scale, hidden: 4096 * scale}, nil
}

func shapeOf(modelPath string, text []byte) (shape, error) {
	type sizes struct {
		Layers       float64 `json:"num_hidden_layers"`
		Hidden       float64 `json:"hidden_size"`
		Intermediate float64 `json:"intermediate_size"`
		MoE          float64 `json:"moe_intermediate_size"`
		ActiveExpert float64 `json:"num_experts_per_tok"`
		Heads        float64 `json:"num_attention_heads"`
		KVHeads      float64 `json:"num_key_value_heads"`
		Vocabulary   float64 `json:"vocab_size"`
	}
	var config struct {
		sizes
		Text *sizes `json:"text_config"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return shape{}, fmt.Errorf("prefill load model: config.json of %q: %w", modelPath, err)
	}
	s := config.sizes
	if s.Layers == 0 && config.Text != nil {
		s = *config.Text
	}
	if s.Layers <= 0 || s.Hidden <= 0 {
		return shape{}, fmt.Errorf("prefill load model: config.json of %q has no num_hidden_layers and hidden_size", modelPath)
	}
	attention := 2 * s.Hidden * s.Hidden
	if s.Heads > 0 && s.KVHeads > 0 {
		attention += 2 * s.Hidden * s.Hidden * s.KVHeads / s.Heads
	} else {
		attention += 2 * s.Hidden * s.Hidden
	}
	feedForward := 3 * s.Hidden * s.Intermediate
	if s.MoE > 0 && s.ActiveExpert > 0 {
		feedForward = 3 * s.Hidden * s.MoE * s.ActiveExpert
	}
	return shape{parameters: s.Layers*(attention+feedForward) + s.Hidden*s.Vocabulary, layers: s.Layers, hidden: s.Hidden}, nil
}
