package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// routingRunners check the cases of one routing recording each, by file name.
var routingRunners = map[string]func(name string, input, expect json.RawMessage) error{
	"active_load.json":        verifyActiveLoad,
	"conditional_disagg.json": verifyConditionalDisagg,
	"policy_yaml.json":        verifyPolicyYAML,
	"queue.json":              verifyQueue,
	"score.json":              verifyScore,
	"softmax.json":            verifySoftmax,
	"two_tier.json":           verifyTwoTier,
}

// RoutingFiles lists the recordings that [Routing] knows.
func RoutingFiles() []string { return slices.Sorted(maps.Keys(routingRunners)) }

// Routing checks recordings of routing decisions: one file, or all in a folder. A file that nobody knows how to check is a failure.
func Routing(path string) Result {
	info, err := os.Stat(path)
	if err != nil {
		return Result{Failures: []string{err.Error()}}
	}
	if !info.IsDir() {
		return routingFile(path)
	}
	var sum Result
	files, err := filepath.Glob(filepath.Join(path, "*.json"))
	if err != nil || len(files) == 0 {
		return Result{Failures: []string{fmt.Sprintf("%s holds no recordings", path)}}
	}
	for _, file := range files {
		sum.add(routingFile(file))
	}
	return sum
}

func routingFile(path string) Result {
	run := routingRunners[filepath.Base(path)]
	if run == nil {
		return Result{Failures: []string{fmt.Sprintf("%s is no routing recording that is known here", path)}}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return Result{Failures: []string{err.Error()}}
	}
	var file struct {
		Cases []struct {
			Name          string
			Input, Expect json.RawMessage
		}
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return Result{Failures: []string{fmt.Sprintf("%s: %v", path, err)}}
	}
	var result Result
	if len(file.Cases) == 0 {
		result.fail("%s holds no cases", path)
	}
	for _, c := range file.Cases {
		if err := run(c.Name, c.Input, c.Expect); err != nil {
			result.fail("%s, %s: %v", filepath.Base(path), c.Name, err)
			continue
		}
		result.Passed++
	}
	return result
}

// decodeCase reads a case's two halves.
func decodeCase(input, expect json.RawMessage, intoInput, intoExpect any) error {
	if err := json.Unmarshal(input, intoInput); err != nil {
		return fmt.Errorf("input: %w", err)
	}
	if err := json.Unmarshal(expect, intoExpect); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	return nil
}
