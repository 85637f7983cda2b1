package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const crowdedPolicy = `
default_policy_family: bulk
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: premium, policy_family: premium, cache_bucket: all, quantum: 4000, prefill_busy_threshold: 0}
  - {name: bulk, policy_family: bulk, cache_bucket: all, quantum: 1000, prefill_busy_threshold: 0, request_queue_limit_per_worker: 1}
`

// answerTo is what a client of an overloaded service sees.
type answerTo struct {
	status int
	body   map[string]any
}

// crowd sends requests for two classes to a frontend with one slow worker and returns the refusals, and the series of queue
// metrics.
func (f *frontend) crowd(t *testing.T, model string) (refused []answerTo, series []string) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	answers := make(chan answerTo, 16)
	post := func(class string) {
		text, err := json.Marshal(randomTokens(random, 2000))
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"model":%q,"prompt":%s,"max_tokens":1}`, model, text)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-Dynamo-Meta-Policy-Class", class)
		go func() { // ends with the answer
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				answers <- answerTo{}
				return
			}
			defer response.Body.Close()
			answer := answerTo{status: response.StatusCode, body: map[string]any{}}
			body, _ := io.ReadAll(response.Body)
			_ = json.Unmarshal(body, &answer.body)
			answers <- answer
		}()
	}
	// The real frontend shows who waits only when something else happens, so that arrivals are counted instead.
	arrived := func() (sum float64) {
		_, text, _ := get(f.url + "/metrics")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "dynamo_frontend_requests_started_total{") {
				value, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
				sum += value
			}
		}
		return sum
	}
	before := arrived()
	post("bulk") // runs
	for waiting, class := range []string{"bulk", "premium", "premium"} {
		if waiting == 0 {
			eventually(t, "the first request is on the worker", func() bool {
				_, text, _ := get(f.url + "/metrics")
				return regexp.MustCompile(`dynamo_frontend_worker_active_prefill_tokens\{[^}]*\} [1-9]`).MatchString(text)
			})
		}
		post(class)
		settled := 0
		eventually(t, "the request has arrived", func() bool {
			if arrived() == before+float64(waiting+2) {
				settled++
			}
			return settled == 5 // and is in line by then
		})
	}
	post("anything") // the default family is full
	first := <-answers
	if first.status == 200 {
		t.Fatal("the worker is too fast for this test")
	}
	refused = append(refused, first)
	for range 4 {
		if answer := <-answers; answer.status != 200 {
			t.Errorf("status %d: %v", answer.status, answer.body)
		}
	}
	_, text, _ := get(f.url + "/metrics")
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "dynamo_frontend_router_queue_backpressure_total{"):
			series = append(series, strings.TrimSpace(line))
		case strings.HasPrefix(line, "dynamo_frontend_router_queue_"):
			name, _, _ := strings.Cut(line, " ")
			series = append(series, name) // its value may be an old one there
		}
	}
	slices.Sort(series)
	return refused, series
}

// The same crowd before both frontends: the same request is refused with the same words, and the same is counted.
func TestQueuesAgree(t *testing.T) {
	r := releases(t)[0]
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(crowdedPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	refusals, metrics := map[string][]answerTo{}, map[string][]string{}
	for _, side := range []string{"theirs", "ours"} {
		t.Run(side, func(t *testing.T) {
			s := etcdStore(t)
			startMocker(t, r, s, modelDirectory(t), "--num-workers", "1", "--block-size", strconv.Itoa(kvBlock), "--speedup-ratio", "0.01")
			args := []string{"--router-mode", "kv", "--router-policy-config", file}
			var f *frontend
			if side == "theirs" {
				f = startTheirs(t, r, s, args...)
			} else {
				f = startOurs(t, s, args...)
			}
			refusals[side], metrics[side] = f.crowd(t, f.serve(t))
		})
	}
	if len(refusals["theirs"]) != len(refusals["ours"]) {
		t.Fatalf("%d and %d refusals", len(refusals["theirs"]), len(refusals["ours"]))
	}
	for i, theirs := range refusals["theirs"] {
		ours := refusals["ours"][i]
		if ours.status != theirs.status {
			t.Errorf("ours answers %d, theirs %d", ours.status, theirs.status)
		}
		for _, key := range slices.Sorted(maps.Keys(theirs.body)) {
			if got, want := fmt.Sprint(ours.body[key]), fmt.Sprint(theirs.body[key]); got != want {
				t.Errorf("%s is %s, theirs says %s", key, got, want)
			}
		}
	}
	if ours, theirs := strings.Join(metrics["ours"], "\n"), strings.Join(metrics["theirs"], "\n"); ours != theirs {
		t.Errorf("ours counts\n%s\ntheirs\n%s", ours, theirs)
	}
}
