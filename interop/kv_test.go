package interop

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// kvBlock is the block size of the workers in these tests, in tokens.
const kvBlock = 16

// kvPrompt is one request of a conversation tree.
type kvPrompt struct {
	tokens []uint32
	// parent is the earlier prompt with which it has most blocks in common, -1 for none. Requests are sent one after the other to
	// idle workers, so that exactly one worker holds most of this prompt: the parent's. Without a parent all costs tie.
	parent int
}

// conversation returns prompts that begin alike, continue each other, repeat and stand alone.
func conversation(count int) []kvPrompt {
	random := rand.New(rand.NewPCG(20, 26))
	fresh := func(tokens []uint32, n int) []uint32 {
		for range n {
			tokens = append(tokens, 1+random.Uint32N(4000))
		}
		return tokens
	}
	var list []kvPrompt
	for i := range count {
		var tokens []uint32
		if i > 0 && random.IntN(5) > 0 {
			earlier := list[random.IntN(i)].tokens
			tokens = append(tokens, earlier[:random.IntN(len(earlier)+1)]...)
		}
		list = append(list, kvPrompt{tokens: fresh(tokens, 1+random.IntN(8*kvBlock)), parent: -1})
		most := 0
		for j, other := range list[:i] {
			if shared := sharedBlocks(tokens, other.tokens); shared > most {
				most, list[i].parent = shared, j
			}
		}
	}
	return list
}

func sharedBlocks(a, b []uint32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n / kvBlock
}

// kvOutcome is what a client learns about a request.
type kvOutcome struct {
	worker uint64
	rank   int
	cached string // as the answer has it; "" when it does not say
}

// converse sends the prompts one by one and waits for the caches' news after each.
func (f *frontend) converse(t *testing.T, model string, prompts []kvPrompt) []kvOutcome {
	t.Helper()
	var outcomes []kvOutcome
	for i, prompt := range prompts {
		text, err := json.Marshal(prompt.tokens)
		if err != nil {
			t.Fatal(err)
		}
		status, answer, err := f.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":%s,"max_tokens":2,"temperature":0,"nvext":{"extra_fields":["worker_id"]}}`, model, text))
		if err != nil || status != 200 {
			t.Fatalf("request %d: status %d, %v: %s", i, status, err, answer)
		}
		var parsed struct {
			Usage struct {
				Details struct {
					Cached json.Number `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
			NVExt struct {
				Worker struct {
					ID   json.Number `json:"prefill_worker_id"` // the decode worker itself where there is no other
					Rank int         `json:"prefill_dp_rank"`
				} `json:"worker_id"`
			} `json:"nvext"`
		}
		if err := json.Unmarshal([]byte(answer), &parsed); err != nil {
			t.Fatalf("request %d: %v: %s", i, err, answer)
		}
		worker, err := strconv.ParseUint(parsed.NVExt.Worker.ID.String(), 10, 64)
		if err != nil {
			t.Fatalf("request %d names no worker: %s", i, answer)
		}
		outcomes = append(outcomes, kvOutcome{worker, parsed.NVExt.Worker.Rank, parsed.Usage.Details.Cached.String()})
		f.awaitQuiet(t)
	}
	return outcomes
}

// awaitQuiet waits until the frontend has applied no more KV events for a while.
func (f *frontend) awaitQuiet(t *testing.T) {
	t.Helper()
	const quiet = 300 * time.Millisecond
	last, since := "", time.Now()
	eventually(t, "events stop coming", func() bool {
		_, text, _ := get(f.url + "/metrics")
		var applied []string
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "dynamo_component_kv_cache_events_applied") {
				applied = append(applied, line)
			}
		}
		slices.Sort(applied)
		if now := strings.Join(applied, ""); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) >= quiet
	})
}

// checkFollowed checks that every prompt went to the worker that holds most of it.
func checkFollowed(t *testing.T, who string, prompts []kvPrompt, outcomes []kvOutcome) {
	t.Helper()
	for i, prompt := range prompts {
		if prompt.parent >= 0 && (outcomes[i].worker != outcomes[prompt.parent].worker || outcomes[i].rank != outcomes[prompt.parent].rank) {
			t.Errorf("%s: request %d (%d tokens) went to worker %d rank %d, its beginning is on worker %d rank %d since request %d", who, i, len(prompt.tokens),
				outcomes[i].worker, outcomes[i].rank, outcomes[prompt.parent].worker, outcomes[prompt.parent].rank, prompt.parent)
		}
	}
}

// The same requests through their KV router and ours, before fresh real workers each: the same placements, up to the names of the
// workers and to ties, which both break by chance; and the same cached tokens, as the workers themselves count them.
func TestPlacementsByCacheAgree(t *testing.T) {
	for _, fleet := range []kvFleet{
		{name: "three workers", workers: 3, ranks: 1},
		{name: "two workers of two ranks", workers: 2, ranks: 2},
		{name: "predicted caches", workers: 3, ranks: 1, flags: []string{"--no-router-kv-events"}},
		{name: "prefill and decode workers", workers: 2, ranks: 1, decoders: 2},
	} {
		for _, r := range releases(t) {
			t.Run(r.name+"/"+fleet.name, func(t *testing.T) { comparePlacements(t, r, fleet) })
		}
	}
}

// kvFleet is what a frontend has in front of it.
type kvFleet struct {
	name           string
	workers, ranks int
	decoders       int      // with them, workers only compute prompts
	flags          []string // of the frontends
}

func (k *kvFleet) start(t *testing.T, r release, s store, model string) {
	t.Helper()
	common := []string{"--speedup-ratio", "100", "--block-size", strconv.Itoa(kvBlock)}
	workers := append([]string{"--num-workers", strconv.Itoa(k.workers), "--data-parallel-size", strconv.Itoa(k.ranks)}, common...)
	if k.decoders > 0 {
		startMocker(t, r, s, model, append([]string{"--num-workers", strconv.Itoa(k.decoders), "--disaggregation-mode", "decode"}, common...)...)
		workers = append(workers, "--disaggregation-mode", "prefill", "--endpoint", "dyn://dynamo.prefill.generate")
	}
	startMocker(t, r, s, model, workers...)
}

func comparePlacements(t *testing.T, r release, fleet kvFleet) {
	prompts := conversation(40)
	model := modelDirectory(t)
	run := func(t *testing.T, starter func(store) *frontend) []kvOutcome {
		s := fileStore(t)
		fleet.start(t, r, s, model)
		f := starter(s)
		name := f.serve(t)
		eventually(t, "all workers are known", func() bool {
			_, text, _ := get(f.url + "/health")
			return strings.Count(text, `"generate"`) >= fleet.workers+fleet.decoders
		})
		f.awaitQuiet(t)
		return f.converse(t, name, prompts)
	}
	var theirs, ours []kvOutcome
	t.Run("theirs", func(t *testing.T) {
		theirs = run(t, func(s store) *frontend {
			return startTheirs(t, r, s, append([]string{"--router-mode", "kv"}, fleet.flags...)...)
		})
	})
	t.Run("ours", func(t *testing.T) {
		ours = run(t, func(s store) *frontend {
			return startOurs(t, s, append([]string{"--router-mode", "kv"}, fleet.flags...)...)
		})
	})
	if len(theirs) != len(prompts) || len(ours) != len(prompts) {
		t.Fatal("not all requests were answered")
	}
	checkFollowed(t, "theirs", prompts, theirs)
	checkFollowed(t, "ours", prompts, ours)
	hits := 0
	for i := range prompts {
		// Of two workers, which one's cached tokens does an answer tell? They say the decode worker's, which was chosen by load and
		// among idle ones by chance.
		if fleet.decoders == 0 && theirs[i].cached != ours[i].cached {
			t.Errorf("request %d of %d tokens: %q tokens cached by their choice, %q by ours", i, len(prompts[i].tokens), theirs[i].cached, ours[i].cached)
		}
		if ours[i].cached != "" && ours[i].cached != "0" {
			hits++
		}
	}
	if hits == 0 {
		t.Error("no request found anything in a cache")
	}
}
