package shortlane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"signalbox/examples/shortlane"
	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/kv"
	"signalbox/router/policy"
	"signalbox/router/selection"
)

const documentation = "../../docs/custom-policy.md"

// block returns the first block of a language in the documentation.
func block(t *testing.T, text, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "```"+language+"\n")
	code, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("%s has no block of %s", documentation, language)
	}
	return code
}

// The documentation shows the code that is tested here, and its policy file works with it: short prompts have ranks of their own, and
// mistakes in the parameters are named.
func TestTheDocumentation(t *testing.T) {
	page, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("shortlane.go")
	if err != nil {
		t.Fatal(err)
	}
	if block(t, string(page), "go") != string(code) {
		t.Errorf("%s shows other code than shortlane.go", documentation)
	}
	file := block(t, string(page), "yaml")
	config, err := policy.Parse("policy.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	catalog := append(selection.Catalog(), shortlane.Type)
	made, err := config.Selection.New(config.Selection.Named(policy.Aggregated), catalog)
	if err != nil {
		t.Fatal(err)
	}
	pool := router.NewPool(router.PoolOptions{Endpoint: "n/c/e"})
	pool.SetWorkers([]router.Worker{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}})
	r, err := kv.New(kv.Options{Config: kv.DefaultConfig(), Pool: pool, BlockSize: 16, Policy: made, PolicyName: "short-lane", Random: rand.NewPCG(1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]map[uint64]bool{"long": {}, "short": {}}
	for i := range 40 {
		kind, length := "long", 4000
		if i%2 == 0 {
			kind, length = "short", 100
		}
		p, err := r.Place(context.Background(), &inference.Request{ID: fmt.Sprint(i), TokenIDs: make([]uint32, length)}, router.Attempt{})
		if err != nil {
			t.Fatal(err)
		}
		served[kind][p.WorkerID] = true
	}
	if served["long"][1] || !served["short"][1] || len(served["long"]) != 3 {
		t.Errorf("worker 1 is for short prompts: %v", served)
	}

	for _, c := range [][2]string{{"reserved: 2", "reserved must be greater than 0"}, {"short_tokens: 0", "short_tokens must be at least 1"}, {"reservd: 0.5", "short_tokens, reserved"}} {
		if _, err := selection.New(catalog, "short-lane", []byte(c[0])); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v", c[0], err)
		}
	}
}
