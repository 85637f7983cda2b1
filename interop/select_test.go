package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// selector is a running selection service.
type selector struct {
	base string
	sync int
}

// selectors starts the real selection service and this one with the same environment and flags.
func selectors(t *testing.T, environment []string, args ...string) (real, mine selector) {
	t.Helper()
	python := os.Getenv("SIGNALBOX_PYTHON161")
	if python == "" {
		t.Skip("SIGNALBOX_PYTHON161 names no Python with the real services")
	}
	begin := func(name string, before ...string) selector {
		port, sync := freePort(t), freePort(t)
		start(t, environment, name, append(append(before, "--port", fmt.Sprint(port), "--replica-sync-port", fmt.Sprint(sync)), args...)...)
		s := selector{fmt.Sprintf("http://127.0.0.1:%d", port), sync}
		eventually(t, name+" serves", func() bool {
			response, err := http.Get(s.base + "/health")
			if err != nil {
				return false
			}
			response.Body.Close()
			return response.StatusCode == http.StatusOK
		})
		return s
	}
	return begin(python, "-m", "dynamo.select_service"), begin(program, "select")
}

// do asks a service one thing: "METHOD path body".
func (s selector) do(t *testing.T, question string) (int, string) {
	t.Helper()
	parts := strings.SplitN(question, " ", 3)
	parts = append(parts, "")
	request, err := http.NewRequest(parts[0], s.base+parts[1], strings.NewReader(parts[2]))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: patience}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// parserWords are what each parser says in its own words.
var parserWords = regexp.MustCompile(`^(Failed to [a-z ]+JSON[a-z ]*):?.*$`)

// simplified is an answer without what is each service's own.
func simplified(body string) any {
	var value any
	if json.Unmarshal([]byte(body), &value) != nil {
		return body
	}
	records, _ := value.([]any)
	if members, is := value.(map[string]any); is {
		records = append(records, members)
		workers, _ := members["workers"].([]any)
		records = append(records, workers...)
		if text, is := members["error"].(string); is {
			members["error"] = parserWords.ReplaceAllString(text, "$1")
		}
	}
	for _, record := range records { // sets have no order
		members, _ := record.(map[string]any)
		taints, _ := members["taints"].([]any)
		slices.SortFunc(taints, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return value
}

// spelled writes out the prompt of a question.
func spelled(question string) string {
	return strings.ReplaceAll(question, "PROMPT", `"model_name":"m","token_ids":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]`)
}

// alike asks both services the same things in the same order.
func alike(t *testing.T, real, mine selector, questions string) {
	t.Helper()
	for _, question := range strings.Split(strings.TrimSpace(questions), "\n") {
		question = spelled(strings.TrimSpace(question))
		if question == "" {
			continue
		}
		wantStatus, want := real.do(t, question)
		gotStatus, got := mine.do(t, question)
		if gotStatus != wantStatus || !reflect.DeepEqual(simplified(got), simplified(want)) {
			t.Errorf("%s\nreal: %d %s\nmine: %d %s", question, wantStatus, want, gotStatus, got)
		}
	}
}

// Beyond the recorded session: what is wrong with workers, prompts and reservations, sessions, loads with decay.
func TestSelectionServicesAreAlike(t *testing.T) {
	real, mine := selectors(t, nil, "--session-affinity-ttl-secs", "60")
	alike(t, real, mine, `
POST /workers {"worker_id":1,"model_name":"m","endpoint":"http://w1","block_size":4,"kv_events_endpoint":"tcp://127.0.0.1:1"}
POST /workers {"worker_id":2,"model_name":"m","endpoint":"http://w2","block_size":8,"kv_events_endpoint":"tcp://127.0.0.1:1"}
POST /workers {"worker_id":3,"model_name":"m","endpoint":"http://w3","block_size":4,"kv_events_endpoint":"nope"}
POST /workers {"worker_id":4,"model_name":"m","endpoint":"http://w3","block_size":4,"kv_events_endpoint":"tcp://127.0.0.1:1","is_eagle":true}
POST /workers {"worker_id":5,"model_name":"m","endpoint":"http://w3","block_size":4,"data_parallel_size":2,"kv_events_endpoint":"tcp://127.0.0.1:1"}
POST /workers {"worker_id":6,"model_name":"n","endpoint":"http://w3","block_size":4,"data_parallel_size":2,"kv_events_endpoints":{"0":"tcp://127.0.0.1:1","1":"tcp://127.0.0.1:2"},"topology_domains":{"zone":"a"},"kv_transfer_domain":"zone","kv_transfer_enforcement":"preferred","kv_transfer_preferred_weight":0.85,"taints":["a"]}
POST /workers {"worker_id":7,"kv_transfer_enforcement":"bad"}
POST /workers {"worker_id":"7"}
POST /workers {"model_name":"7"}
POST /workers {"worker_id":8,"data_parallel_size":0}
POST /workers {"worker_id":9,"endpoint":"","block_size":0}
POST /workers {"worker_id":10,"model_name":"r","endpoint":"http://w3","block_size":4,"kv_events_endpoint":"tcp://127.0.0.1:1","replay_endpoint":"what"}
GET /workers
GET /workers?model_name=m
GET /workers?routing_group=other
GET /ready
DELETE /workers/abc
DELETE /workers/4
PATCH /workers/3 {"kv_transfer_enforcement":"bad"}
PATCH /workers/3 {"taints":["b","a"]}
GET /workers/3
GET /nothing
PUT /select
POST /select {PROMPT}
POST /select {PROMPT,"pinned_worker":{"worker_id":1,"dp_rank":4}}
POST /select {PROMPT,"pinned_worker":{"worker_id":77,"dp_rank":0}}
POST /select {PROMPT,"pinned_worker":{"worker_id":1,"dp_rank":0},"allowed_worker_ids":[2]}
POST /select {PROMPT,"allowed_worker_ids":[]}
POST /select {PROMPT,"routing_constraints":{"required_taints":["x"]}}
POST /select {PROMPT,"routing_constraints":{"preferred_taints":{"x":1.5}}}
POST /select {PROMPT,"router_config_override":{"overlap_score_credit":-1}}
POST /select {PROMPT,"router_config_override":{"unknown":-1,"track_prefill_tokens":false}}
POST /select {"model_name":"m","token_ids":[]}
POST /select {"model_name":"m","token_ids":[1]}
POST /select {"model_name":"m","token_ids":[-1]}
POST /select {"model_name":"m","block_hashes":[1,2]}
POST /select {"model_name":"m","block_hashes":[1,2],"sequence_hashes":[1]}
POST /select {"model_name":"m","block_hashes":[1,2],"sequence_hashes":[1],"isl_tokens":0}
POST /select {"model_name":"m","block_hashes":[1,2],"sequence_hashes":[1],"isl_tokens":4}
POST /select {"model_name":"m","block_hashes":[1,-2],"sequence_hashes":[1,2],"isl_tokens":9}
POST /select_and_reserve {PROMPT,"selection_id":"plain"}
POST /select_and_reserve {PROMPT,"selection_id":"adapter","lora_name":"l","cache_salt":"s"}
POST /select_and_reserve {PROMPT,"selection_id":"media","block_mm_infos":[null,{"mm_objects":[{"mm_hash":111,"offsets":[[0,3]]}]}]}
POST /select_and_reserve {"model_name":"m","token_ids":[1],"selection_id":"routed","mm_routing_info":{"routing_token_ids":[1,2,3,4,5],"block_mm_infos":[{"mm_objects":[{"mm_hash":7,"offsets":[]}]}]}}
POST /select_and_reserve {PROMPT,"selection_id":"eagle","is_eagle":true}
POST /select_and_reserve {PROMPT,"selection_id":"untracked","router_config_override":{"track_prefill_tokens":false}}
POST /select_and_reserve {"model_name":"m","block_hashes":[1,-2],"sequence_hashes":[-1,2],"isl_tokens":9,"selection_id":"hashed"}
GET /loads
POST /potential_loads {PROMPT}
POST /potential_loads {PROMPT,"router_config_override":{"track_prefill_tokens":false}}
POST /potential_loads {"model_name":"zz","token_ids":[1]}
POST /potential_loads {"model_name":"m"}
POST /overlap_scores {"model_name":"m"}
POST /overlap_scores {"model_name":"m","token_ids":[]}
POST /reservations {PROMPT}
POST /reservations {PROMPT,"selection_id":"never"}
POST /reservations {PROMPT,"selection_id":"plain","worker_id":1}
POST /reservations {PROMPT,"selection_id":"b1","worker_id":99}
POST /reservations {PROMPT,"selection_id":"b1","worker_id":1,"dp_rank":7}
POST /reservations {PROMPT,"selection_id":"b1","worker_id":1,"effective_prefill_tokens":99}
POST /reservations {PROMPT,"selection_id":"b1","worker_id":1,"effective_prefill_tokens":5}
POST /reservations {PROMPT,"selection_id":"b3","worker_id":1,"effective_prefill_tokens":5,"track_prefill_tokens":false}
POST /reservations {"model_name":"m","selection_id":"b2","worker_id":1}
POST /reservations {"model_name":"m","selection_id":"b2","worker_id":1,"sequence_hashes":[4,5]}
POST /reservations {"model_name":"m","selection_id":"b2","worker_id":1,"sequence_hashes":[4,5],"isl_tokens":8}
GET /loads
POST /reservations/b2/output_block {}
GET /loads
POST /reservations/b2/output_block {"decay_fraction":0.5}
GET /loads
POST /reservations/b2/output_block {"decay_fraction":2}
POST /reservations/b2/output_block
POST /reservations/never/output_block {}
POST /reservations/never/prefill_complete {}
POST /reservations/plain/prefill_complete
POST /reservations/plain/prefill_complete
GET /loads
POST /reservations/plain/other
GET /reservations/plain
DELETE /reservations/plain
DELETE /reservations/plain
POST /select {PROMPT,"selection_id":"later","session_id":"s"}
POST /select_and_reserve {PROMPT,"selection_id":"now"}
POST /reservations {"model_name":"m","selection_id":"later"}
POST /reservations {"model_name":"m","selection_id":"later"}
POST /select {PROMPT,"selection_id":"now"}
POST /reservations {"model_name":"m","selection_id":"now"}
GET /loads
PATCH /workers/3 {"kv_events_endpoint":"tcp://127.0.0.1:1"}
POST /select_and_reserve {PROMPT,"selection_id":"s1","session_id":"s"}
POST /select_and_reserve {PROMPT,"selection_id":"s2","session_id":"s"}
POST /select {PROMPT,"session_id":"s","allowed_worker_ids":[3]}
POST /select {PROMPT,"session_id":"s"}
POST /select_and_reserve {PROMPT,"selection_id":"s6","session_id":"s","allowed_worker_ids":[3]}
POST /select {PROMPT,"session_id":"s"}
POST /select {PROMPT,"session_id":"t","allowed_worker_ids":[3]}
POST /select_and_reserve {PROMPT,"selection_id":"s3","session_id":"u","pinned_worker":{"worker_id":1,"dp_rank":0}}
POST /select_and_reserve {PROMPT,"selection_id":"s4","session_id":"u"}
POST /select_and_reserve {PROMPT,"selection_id":"s5","session_id":"u","pinned_worker":{"worker_id":1,"dp_rank":0}}
GET /loads
DELETE /workers/3
POST /select {PROMPT,"session_id":"u"}
GET /loads
DELETE /reservations/s4
DELETE /workers/1
POST /select {PROMPT}
DELETE /workers/6
POST /select {PROMPT}
GET /loads
GET /ready
POST /replica_sync/register_peer {"endpoint":"nope"}
POST /replica_sync/register_peer {"endpoint":"tcp://127.0.0.1:1"}
POST /replica_sync/register_peer {"endpoint":"tcp://127.0.0.1:1"}
POST /replica_sync/deregister_peer {"endpoint":"tcp://127.0.0.1:2"}
POST /replica_sync/deregister_peer {}
GET /replica_sync/peers
`)
}

// Without engines' events, services learn from what they chose. Requests wait while all ranks are busy, and are refused when too many do.
func TestSelectionServicesQueueAlike(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	policy := `
default_policy_family: reg
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: reg, policy_family: reg, cache_bucket: all, quantum: 1, prefill_busy_threshold: 0, request_queue_limit_per_worker: 1}
`
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	real, mine := selectors(t, []string{"DYN_USE_KV_EVENTS=false", "DYN_ROUTER_USE_KV_EVENTS=false", "DYN_ROUTER_POLICY_CONFIG=" + file})
	alike(t, real, mine, `
POST /workers {"worker_id":1,"model_name":"m","endpoint":"http://w1","block_size":4}
POST /workers {"worker_id":1,"model_name":"m","endpoint":"http://w1","block_size":4,"max_num_batched_tokens":8}
POST /select_and_reserve {PROMPT,"selection_id":"a1"}
POST /overlap_scores {PROMPT}
`)
	wait := func(s selector, question string, until string) chan string {
		answered := make(chan string, 1)
		go func() { // ends with the answer
			status, body := s.do(t, question)
			answered <- fmt.Sprint(status, " ", body)
		}()
		eventually(t, "the request waits", func() bool {
			_, loads := s.do(t, "GET /loads")
			return strings.Contains(loads, until)
		})
		return answered
	}
	question := `POST /select_and_reserve {"model_name":"m","token_ids":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17],"selection_id":"a2"}`
	waiting := `"pending_count":1,"pending_isl_tokens":17`
	first, second := wait(real, question, waiting), wait(mine, question, waiting)
	alike(t, real, mine, `
GET /loads
POST /select_and_reserve {PROMPT,"selection_id":"a3"}
POST /select {PROMPT}
POST /select_and_reserve {PROMPT,"selection_id":"a2"}
POST /reservations {PROMPT,"selection_id":"a2","worker_id":1}
POST /reservations/a2/prefill_complete
DELETE /reservations/a2
DELETE /reservations/a1
`)
	if want, got := <-first, <-second; got != want {
		t.Errorf("whoever waited was answered %s, by the real one %s", got, want)
	}
	alike(t, real, mine, `
GET /loads
GET /dump
`)
	waiting = `"pending_count":1`
	question = `POST /select {"model_name":"m","token_ids":[1,2,3]}`
	first, second = wait(real, question, waiting), wait(mine, question, waiting)
	alike(t, real, mine, `
DELETE /workers/1
`)
	if want, got := <-first, <-second; got != want {
		t.Errorf("whose worker left was answered %s, by the real one %s", got, want)
	}
	alike(t, real, mine, "GET /dump")
}

// Reservations of a session that come together are placed one after the other, an earlier selection's among them. Those of another
// session and questions do not wait for them.
func TestSelectionServicesKeepSessionsAlike(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	policy := `
default_policy_family: reg
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: reg, policy_family: reg, cache_bucket: all, quantum: 1, prefill_busy_threshold: 0}
`
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	real, mine := selectors(t, []string{"DYN_USE_KV_EVENTS=false", "DYN_ROUTER_USE_KV_EVENTS=false", "DYN_ROUTER_POLICY_CONFIG=" + file}, "--session-affinity-ttl-secs", "1")
	alike(t, real, mine, `
POST /workers {"worker_id":1,"model_name":"m","endpoint":"http://w1","block_size":4,"max_num_batched_tokens":8}
`)
	eventually(t, "the real one counts the new worker's blocks", func() bool {
		_, body := real.do(t, spelled("POST /select {PROMPT}"))
		return strings.Contains(body, `"potential_decode_blocks":5`)
	})
	alike(t, real, mine, `
POST /select {PROMPT,"selection_id":"chosen","session_id":"s"}
POST /select_and_reserve {PROMPT,"selection_id":"busy"}
`)
	type pair [2]chan string
	ask := func(question string) (p pair) {
		for i, s := range []selector{real, mine} {
			p[i] = make(chan string, 1)
			go func() { // ends with the answer
				status, body := s.do(t, spelled(question))
				p[i] <- fmt.Sprint(status, " ", body)
			}()
		}
		return p
	}
	waiting := func(count int) {
		t.Helper()
		for _, s := range []selector{real, mine} {
			eventually(t, fmt.Sprint(count, " requests wait in the queue"), func() bool {
				_, loads := s.do(t, "GET /loads")
				return strings.Contains(loads, fmt.Sprintf(`"pending_count":%d,`, count))
			})
		}
	}
	answered := func(p pair) {
		t.Helper()
		want, got := <-p[0], <-p[1]
		if got != want {
			t.Errorf("answered %s, by the real one %s", got, want)
		}
	}
	first := ask(`POST /select_and_reserve {PROMPT,"selection_id":"first","session_id":"s"}`)
	waiting(1)
	second := ask(`POST /select_and_reserve {PROMPT,"selection_id":"second","session_id":"s"}`)
	chosen := ask(`POST /reservations {"model_name":"m","selection_id":"chosen"}`)
	other := ask(`POST /select_and_reserve {PROMPT,"selection_id":"other","session_id":"t"}`)
	waiting(2) // first and other
	for _, id := range []string{"second", "chosen"} {
		for _, s := range []selector{real, mine} { // it may be on its way yet
			eventually(t, id+" holds its id", func() bool {
				status, _ := s.do(t, fmt.Sprintf(`POST /reservations {"model_name":"m","worker_id":1,"sequence_hashes":[],"isl_tokens":0,"selection_id":%q}`, id))
				return status == http.StatusConflict
			})
		}
	}
	question := ask(`POST /select {PROMPT,"session_id":"s"}`)
	waiting(3)
	alike(t, real, mine, "DELETE /reservations/busy")
	answered(first)
	answered(chosen)
	// second has found its place in the queue behind first.
	waiting(3)
	alike(t, real, mine, "POST /reservations/first/prefill_complete\nPOST /reservations/chosen/prefill_complete")
	answered(other)
	alike(t, real, mine, "POST /reservations/other/prefill_complete")
	answered(question)
	answered(second)
	alike(t, real, mine, "POST /reservations/second/prefill_complete\nGET /loads")
}

// Two services, one of them the real one, count each other's reservations.
func TestSelectionServicesAreReplicas(t *testing.T) {
	real, mine := selectors(t, []string{"DYN_ROUTER_USE_KV_EVENTS=false"})
	pair := [2]selector{real, mine}
	for i, s := range pair {
		for _, question := range []string{`POST /workers {"worker_id":1,"model_name":"m","endpoint":"http://w1","block_size":4}`,
			fmt.Sprintf(`POST /replica_sync/register_peer {"endpoint":"tcp://127.0.0.1:%d"}`, pair[1-i].sync)} {
			if status, body := s.do(t, question); status != http.StatusCreated {
				t.Fatal(status, body)
			}
		}
	}
	for i, s := range pair {
		other, id, n := pair[1-i], "", 0
		eventually(t, "a reservation is heard of", func() bool {
			// What is told before the other one listens is lost.
			if id != "" {
				s.do(t, "DELETE /reservations/"+id)
			}
			n++
			id = fmt.Sprint("r", i, "-", n, "-", time.Now().UnixNano())
			s.do(t, fmt.Sprintf(`POST /select_and_reserve {"model_name":"m","token_ids":[1,2,3,4,5,6,7,8,9],"selection_id":%q}`, id))
			_, want := s.do(t, "GET /loads")
			for range 20 {
				if _, got := other.do(t, "GET /loads"); got == want && strings.Contains(got, `"active_requests":1`) {
					return true
				}
			}
			return false
		})
		alike(t, real, mine, "GET /loads")
		s.do(t, "POST /reservations/"+id+"/prefill_complete")
		eventually(t, "the end of a prefill is heard of", func() bool {
			_, loads := other.do(t, "GET /loads")
			return strings.Contains(loads, `"potential_prefill_tokens":0,"potential_decode_blocks":2`)
		})
		s.do(t, "DELETE /reservations/"+id)
		eventually(t, "the end is heard of", func() bool {
			_, loads := other.do(t, "GET /loads")
			return strings.Contains(loads, `"active_requests":0`)
		})
	}
}
