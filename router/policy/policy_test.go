package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/router/policy"
	"signalbox/router/queue"
	"signalbox/router/selection"
)

const good = `default_policy_family: standard
uncached_isl_buckets:
  - {min_tokens: 0, bucket: cached}
  - {min_tokens: 3072, bucket: uncached}
policy_classes:
  - name: std_cached
    policy_family: standard
    cache_bucket: cached
    queue_policy: wspt
    quantum: 2048
    prefill_busy_threshold_frac: 1.0
  - {name: std_uncached, policy_family: standard, cache_bucket: uncached, quantum: 512, request_queue_limit_per_worker: 4}
  - {name: ops, quantum: 64, prefill_busy_threshold: 0}
models:
  special:
    default_policy_family: only
    uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
    policy_classes: [{name: one, policy_family: only, cache_bucket: all, quantum: 1}]
worker_selection:
  decode: lean
  instances:
    - name: lean
      type: dynamo-two-tier-cost-fn
      parameters:
        cache_threshold: 0.25
`

// Every kind of mistake is refused, and the message leads to it: the file, the line and the path inside the file.
func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	for name, c := range map[string]struct {
		old, new string // what is changed in a good file
		want     []string
	}{
		"no YAML":            {"default_policy_family: standard", "default_policy_family: [standard", []string{"failed to parse router policy config " + file + ": "}},
		"unknown root key":   {"models:", "model:", []string{"unknown field `model`", "`models`", "line 14 column 1"}},
		"unknown class key":  {"    quantum: 2048", "    quantums: 2048", []string{"policy_classes[0]", "unknown field `quantums`", "`quantum`", "line 10 column 5"}},
		"twice the same key": {"    quantum: 2048", "    quantum: 2048\n    quantum: 1", []string{"quantum", "line 11"}},
		"wrong type":         {"    quantum: 2048", "    quantum: much", []string{"policy_classes[0].quantum", "invalid type: string \"much\", expected a non-negative integer", "line 10 column 14"}},
		"negative":           {"    quantum: 2048", "    quantum: -1", []string{"policy_classes[0].quantum", "integer `-1`", "line 10"}},
		"fraction for whole": {"    quantum: 2048", "    quantum: 1.5", []string{"policy_classes[0].quantum", "line 10"}},
		"not a list":         {"[{min_tokens: 0, bucket: all}]", "all", []string{"models.special.uncached_isl_buckets", "expected a sequence", "line 17"}},
		"missing quantum":    {", quantum: 64", "", []string{"policy_classes[2]", "missing field `quantum`", "line 13"}},
		"missing bucket":     {"{min_tokens: 0, bucket: cached}", "{min_tokens: 0}", []string{"uncached_isl_buckets[0]", "missing field `bucket`", "line 3"}},
		"incomplete model":   {"    default_policy_family: only\n", "", []string{"models.special", "missing field `default_policy_family`"}},
		"zero quantum":       {"    quantum: 2048", "    quantum: 0", []string{"invalid router policy config: root policy class \"std_cached\" quantum must be greater than zero", "line 10 column 14", "policy_classes[0].quantum"}},
		"bad order":          {"queue_policy: wspt", "queue_policy: sjf", []string{"policy_classes[0].queue_policy", "unknown variant `sjf`", "line 9"}},
		"lcfs":               {"queue_policy: wspt", "queue_policy: lcfs", []string{"queue_policy must be fcfs or wspt", "line 9"}},
		"infinite fraction":  {"_frac: 1.0", "_frac: .inf", []string{"prefill_busy_threshold_frac must be finite and non-negative", "line 11"}},
		"half a matrix cell": {"    cache_bucket: cached\n", "", []string{"must specify both policy_family and cache_bucket or neither for an explicit class", "policy_classes[0]"}},
		"unknown bucket":     {"    cache_bucket: cached", "    cache_bucket: hot", []string{"references unknown cache bucket \"hot\"", "line 8"}},
		"missing cell":       {"  - {name: std_uncached, policy_family: standard, cache_bucket: uncached, quantum: 512, request_queue_limit_per_worker: 4}\n", "", []string{"root is missing a policy class for family \"standard\" and bucket \"uncached\"", "line 6"}},
		"same cell twice":    {"cache_bucket: uncached, quantum", "cache_bucket: cached, quantum", []string{"root contains duplicate policy classes for family \"standard\" and bucket \"cached\"", "line 12"}},
		"same name twice":    {"{name: ops", "{name: std_cached", []string{"root contains duplicate policy class \"std_cached\"", "line 13"}},
		"family unknown":     {"default_policy_family: standard", "default_policy_family: std", []string{"root default_policy_family \"std\" does not name a configured family", "line 1"}},
		"class like family":  {"{name: ops", "{name: standard", []string{"root explicit policy class \"standard\" collides with a policy family", "line 13"}},
		"first bucket":       {"{min_tokens: 0, bucket: cached}", "{min_tokens: 2, bucket: cached}", []string{"root uncached_isl_buckets must start at min_tokens 0", "line 3"}},
		"buckets go down":    {"{min_tokens: 3072", "{min_tokens: 0", []string{"root uncached_isl_buckets min_tokens must be strictly increasing", "line 4"}},
		"name not usable":    {"{name: ops", "{name: 'o p s'", []string{"root policy class name \"o p s\" must match [A-Za-z0-9_.-]+", "line 13"}},
		"model's mistake":    {"all, quantum: 1}", "all, quantum: 0}", []string{"model \"special\" policy class \"one\" quantum must be greater than zero", "models.special.policy_classes[0].quantum", "line 18"}},
		"selection unknown":  {"decode: lean", "decode: fat", []string{"worker_selection decode \"fat\" does not name a configured instance", "line 20"}},
		"selection key":      {"  decode: lean", "  decoder: lean", []string{"worker_selection: unknown field `decoder`", "line 20"}},
		"reserved name":      {"- name: lean", "- name: default", []string{"worker_selection instance name 'default' is reserved", "line 22"}},
		"parameters":         {"      parameters:\n        cache_threshold: 0.25", "      parameters: [1]", []string{"worker_selection instance \"lean\" parameters must be a YAML mapping", "line 24"}},
		"router setting":     {"worker_selection:", "router: {zzz: 1}\nworker_selection:", []string{"router.zzz", "unknown router setting: zzz", "line 19"}},
		"router type":        {"worker_selection:", "router: {use_kv_events: 3}\nworker_selection:", []string{"router.use_kv_events", "integer `3`, expected a boolean", "line 19"}},
		"alias without":      {"decode: lean", "decode: *nobody", []string{"nobody"}},
		"two documents":      {"default_policy_family: standard", "a: 1\n---\ndefault_policy_family: standard", []string{"2 documents in one file"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(good, c.old, c.new, 1)
			if text == good {
				t.Fatalf("%q is not in the good file", c.old)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := policy.Load(file)
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range append(c.want, file) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		})
	}
	if _, err := policy.Load(file + ".none"); err == nil || !strings.Contains(err.Error(), "failed to read router policy config "+file+".none") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestGoodFile(t *testing.T) {
	config, err := policy.Parse("x", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	root := config.Profile("any")
	if len(root.Classes) != 3 || root.Classes[0].Order != queue.WSPT || *root.Classes[1].Limits.Requests != 4 || root.Classes[1].Waits() || !root.Classes[2].Waits() || !root.Waits() {
		t.Errorf("%+v", root.Classes)
	}
	if own := config.Profile("special"); len(own.Classes) != 1 || own.Classes[0].Name != "one" || own.Waits() {
		t.Errorf("%+v", own)
	}
	for _, c := range []struct {
		active, batch uint64
		busy          bool
	}{{1000, 1000, false}, {1001, 1000, true}, {10_000_000, 0, false}, {10_000_001, 0, true}} {
		if root.Classes[0].Busy(c.active, c.batch) != c.busy {
			t.Errorf("%+v", c)
		}
	}
	if made, err := config.Selection.New(config.Selection.Named(policy.Decode), selection.Catalog()); err != nil || made.(*selection.TwoTier).CacheThreshold != 0.25 {
		t.Errorf("%v, %v", made, err)
	}
}

// The policy file that operators are shown is a good one.
func TestTheOperationsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	config, err := policy.Parse("operations.md", []byte(text))
	if err != nil || len(config.Root.Classes) != 5 {
		t.Errorf("%+v, %v", config, err)
	}
}

// Settings of all routers may stand alone in the file.
func TestRouterSettings(t *testing.T) {
	config, err := policy.Parse("x", []byte("router: {router_ttl_secs: 60, use_kv_events: false, router_event_threads: 2, router_predicted_ttl_secs: null}"))
	if err != nil || config.Root != nil || string(config.Router) != `{"router_event_threads":2,"router_ttl_secs":60,"use_kv_events":false}` {
		t.Errorf("%+v, %s, %v", config, config.Router, err)
	}
}

// Anchors, aliases and merges save an operator repetition; what a file may grow to by them is bounded.
func TestAliases(t *testing.T) {
	config, err := policy.Parse("x", []byte(`default_policy_family: f
uncached_isl_buckets: &b [{min_tokens: 0, bucket: all}]
policy_classes:
  - &base {name: a, policy_family: f, cache_bucket: all, quantum: &q 7}
models:
  m: {default_policy_family: f, uncached_isl_buckets: *b, policy_classes: [*base]}
`))
	if err != nil || config.Profile("m").Classes[0].Quantum != 7 {
		t.Fatalf("%+v, %v", config, err)
	}
	bomb := "worker_selection:\n  instances:\n  - name: a\n    type: b\n    parameters:\n      l0: &l0 [1]\n"
	for i := range 30 {
		at, before := string(rune('a'+i)), "l0"
		if i > 0 {
			before = string(rune('a' + i - 1))
		}
		bomb += "      " + at + ": &" + at + " [" + strings.Repeat("*"+before+", ", 9) + "*" + before + "]\n"
	}
	var mistake *policy.Error
	if _, err := policy.Parse("x", []byte(bomb)); !errors.As(err, &mistake) {
		t.Errorf("a file that grows without bound gave %v", err)
	}
	if _, err := policy.Parse("x", []byte("models: &a {m: *a}")); err == nil {
		t.Error("an alias of itself was accepted")
	}
}

// Who may decide about a stage, strongest first: its flag, its variable, the general variable, the file.
func TestSelectionPrecedence(t *testing.T) {
	file := &policy.Selection{Stages: map[policy.Stage]string{policy.Prefill: "file"}}
	for _, c := range []struct {
		stage  policy.Stage
		wishes []policy.Wish
		want   string
	}{
		{policy.Prefill, []policy.Wish{{policy.Prefill, "flag"}, {"", "general"}}, "flag"},
		{policy.Prefill, []policy.Wish{{policy.Prefill, "  "}, {"", " general "}}, "general"},
		{policy.Prefill, []policy.Wish{{policy.Decode, "flag"}}, "file"},
		{policy.Prefill, []policy.Wish{{policy.Prefill, "default"}}, "default"},
		{policy.Decode, nil, "default"},
		{policy.Aggregated, []policy.Wish{{policy.Prefill, "flag"}, {policy.Decode, "flag"}}, "default"},
		{policy.Aggregated, []policy.Wish{{"", "general"}}, "general"},
	} {
		if got := file.Named(c.stage, c.wishes...); got != c.want {
			t.Errorf("%s with %v is %q, want %q", c.stage, c.wishes, got, c.want)
		}
	}
	var none *policy.Selection
	if _, err := none.New("zzz", selection.Catalog()); err == nil || err.Error() != `unknown worker-selection instance "zzz"; configured instances: <none>` {
		t.Error(err)
	}
	some := &policy.Selection{Instances: []policy.Instance{{Name: "t", Type: "nope"}, {Name: "u", Type: "dynamo-two-tier-cost-fn", Parameters: []byte("cache_treshold: 1")}}}
	if _, err := some.New("zzz", selection.Catalog()); err == nil || err.Error() != `unknown worker-selection instance "zzz"; configured instances: t, u` {
		t.Error(err)
	}
	if _, err := some.New("t", selection.Catalog()); err == nil || !strings.Contains(err.Error(), `unknown worker-selection policy type "nope"; linked policy types: dynamo-default-cost-fn, dynamo-two-tier-cost-fn`) {
		t.Error(err)
	}
	if _, err := some.New("u", selection.Catalog()); err == nil || !strings.Contains(err.Error(), `invalid parameters for worker-selection policy type "dynamo-two-tier-cost-fn"`) ||
		!strings.Contains(err.Error(), "cache_treshold") || !strings.Contains(err.Error(), "cache_threshold, balance_abs_threshold, balance_rel_threshold") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add("models: &a {m: *a}")
	f.Add("worker_selection: {instances: [{name: a, type: b, parameters: {c: !!int 1, d: |\n x\n}}]}")
	f.Fuzz(func(t *testing.T, text string) {
		config, err := policy.Parse("x", []byte(text))
		if err != nil {
			return
		}
		for _, profile := range []*policy.Profile{config.Profile("m"), config.Profile("")} {
			if profile == nil {
				continue
			}
			for _, uncached := range []uint64{0, 1, 1 << 40} {
				if class := profile.Select("x").Class(uncached); class < 0 || class >= len(profile.Classes) {
					t.Fatalf("class %d of %d", class, len(profile.Classes))
				}
			}
		}
	})
}
