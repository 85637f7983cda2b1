package interop

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// questions asks twice who would get a request, while the only worker is busy and the class has room for one that waits. The statuses are
// those of the request that keeps the worker busy and of both questions.
func (f *frontend) questions(t *testing.T, model string) (statuses [3]int) {
	t.Helper()
	random := rand.New(rand.NewPCG(4, 1))
	send := func(annotation string) chan int {
		text, err := json.Marshal(randomTokens(random, 2000))
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"model":%q,"prompt":%s,"max_tokens":1,"nvext":{"annotations":[%s]}}`, model, text, annotation)
		done := make(chan int, 1)
		go func() { // ends with the answer
			status, _, err := f.post("/v1/completions", body)
			if err != nil {
				status = 0
			}
			done <- status
		}()
		return done
	}
	running := send("")
	eventually(t, "the first request is on the worker", func() bool {
		_, text, _ := get(f.url + "/metrics")
		return regexp.MustCompile(`dynamo_frontend_worker_active_prefill_tokens\{[^}]*\} [1-9]`).MatchString(text)
	})
	// Whichever question comes first waits; the other one finds the class full.
	first, second := send(`"query_instance_id:"`), send(`"query_instance_id:"`)
	select {
	case statuses[2] = <-first:
		first = second
	case statuses[2] = <-second:
	}
	select {
	case status := <-running:
		t.Fatalf("the worker is too fast for this test, or both questions waited: status %d", status)
	default:
	}
	statuses[0], statuses[1] = <-running, <-first
	return statuses
}

// A question about a placement waits as a request would, and counts as one, with both frontends.
func TestQuestionsWaitInQueues(t *testing.T) {
	r := releases(t)[0]
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(crowdedPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
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
			if got := f.questions(t, f.serve(t)); got != [3]int{200, 200, 529} {
				t.Errorf("statuses %v, want a request that is served, a question that waits and one that is refused", got)
			}
		})
	}
}
