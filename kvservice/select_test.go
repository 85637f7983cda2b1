package kvservice

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/inference"
	"signalbox/router/kv"
)

// newSelector returns a service with two workers that learns from what it reserves.
func newSelector(t *testing.T, change func(*SelectOptions)) *Selector {
	t.Helper()
	options := SelectOptions{Config: kv.DefaultConfig(), Logger: quiet}
	options.Config.UseKVEvents = false
	if change != nil {
		change(&options)
	}
	s, err := NewSelector(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for id := 1; id <= 2; id++ {
		want(t, s, http.StatusCreated, "POST", "/workers", fmt.Sprintf(`{"worker_id":%d,"model_name":"m","endpoint":"http://w%d","block_size":4,"max_num_batched_tokens":64}`, id, id))
	}
	return s
}

// tester is a test, or one run of a property.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// want asks a service one thing and returns the answer, which must have the status.
func want(t tester, s *Selector, status int, method, path, body string) string {
	t.Helper()
	got, text := call(s, method, path, body)
	if got != status {
		t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, got, text, status)
	}
	return text
}

// busy sums the loads of all ranks.
func busy(t tester, s *Selector) (requests, prefill, blocks uint64, waiting int) {
	t.Helper()
	var pools []struct {
		Loads   []potentialLoad
		Waiting int `json:"pending_count"`
	}
	if err := json.Unmarshal([]byte(want(t, s, 200, "GET", "/loads", "")), &pools); err != nil {
		t.Fatalf("%v", err)
	}
	for _, p := range pools {
		waiting += p.Waiting
		for _, load := range p.Loads {
			requests, prefill, blocks = requests+load.Requests, prefill+load.Prefill, blocks+load.Decode
		}
	}
	return requests, prefill, blocks, waiting
}

func TestOldReservationsAreForgotten(t *testing.T) {
	s := newSelector(t, nil)
	want(t, s, 200, "POST", "/select_and_reserve", `{"model_name":"m","token_ids":[1,2,3,4,5,6,7,8],"selection_id":"old"}`)
	s.expire(s.clock.Now() + 4*time.Minute)
	if requests, prefill, blocks, _ := busy(t, s); requests != 1 || prefill != 8 || blocks != 2 {
		t.Errorf("a young reservation counts %d requests, %d tokens, %d blocks", requests, prefill, blocks)
	}
	s.expire(s.clock.Now() + 6*time.Minute)
	if requests, prefill, blocks, _ := busy(t, s); requests+prefill+blocks != 0 {
		t.Errorf("an old reservation counts %d requests, %d tokens, %d blocks", requests, prefill, blocks)
	}
	want(t, s, 404, "DELETE", "/reservations/old", "")
	want(t, s, 200, "POST", "/select_and_reserve", `{"model_name":"m","token_ids":[1],"selection_id":"old"}`)
}

// A reservation goes with its worker, and its id is free again.
func TestReservationsLeaveWithTheirWorker(t *testing.T) {
	s := newSelector(t, nil)
	want(t, s, 201, "POST", "/reservations", `{"model_name":"m","token_ids":[1,2,3,4],"selection_id":"r","worker_id":1}`)
	want(t, s, 200, "DELETE", "/workers/1", "")
	want(t, s, 404, "DELETE", "/reservations/r", "")
	want(t, s, 201, "POST", "/reservations", `{"model_name":"m","token_ids":[1,2,3,4],"selection_id":"r","worker_id":2}`)
	want(t, s, 200, "PATCH", "/workers/2", `{"data_parallel_start_rank":3}`)
	want(t, s, 404, "POST", "/reservations/r/prefill_complete", "")
	want(t, s, 404, "POST", "/reservations", `{"model_name":"m","token_ids":[1],"selection_id":"r","worker_id":2}`)
	want(t, s, 201, "POST", "/reservations", `{"model_name":"m","token_ids":[1],"selection_id":"r","worker_id":2,"dp_rank":3}`)
	want(t, s, 400, "PATCH", "/workers/2", `{"data_parallel_size":4000000000}`)
}

// Ids with characters that paths do not have are named by escapes.
func TestReservationNamesAreEscaped(t *testing.T) {
	s := newSelector(t, nil)
	want(t, s, 200, "POST", "/select_and_reserve", `{"model_name":"m","token_ids":[1],"selection_id":"a/b ü"}`)
	want(t, s, 404, "DELETE", "/reservations/a/b", "")
	want(t, s, 200, "DELETE", "/reservations/a%2Fb%20%C3%BC", "")
}

func TestPendingSelections(t *testing.T) {
	p := newPendingSelections(PendingLimits{TTL: time.Minute, Entries: 2, Bytes: 100})
	name := pool{"m", "g"}
	add := func(id string, hashes int, at time.Duration) *pendingSelection {
		selection := &pendingSelection{pool: name, id: id, hashes: make([]uint64, hashes), made: at}
		p.add(selection)
		return selection
	}
	there := func(id string, at time.Duration) bool { return p.get(name, id, at) != nil }
	add("a", 1, 0)
	add("b", 1, time.Second)
	if !there("a", time.Minute) || there("a", time.Minute+1) || !there("b", time.Minute+1) {
		t.Error("a selection does not live for its minute")
	}
	first := add("c", 1, time.Minute)
	again := add("c", 1, time.Minute)
	p.remove(name, "c", first)
	if p.get(name, "c", time.Minute) != again {
		t.Error("the end of a selection took a newer one of its name away")
	}
	add("d", 1, time.Minute)
	if there("b", time.Minute) || !there("c", time.Minute) {
		t.Error("the oldest did not make room")
	}
	add("e", 11, time.Minute)
	if there("c", time.Minute) || there("d", time.Minute) || !there("e", time.Minute) {
		t.Error("the oldest did not make room in memory")
	}
	add("large", 20, time.Minute)
	p.remove(name, "e", nil)
	if p.order.Len() != 0 || p.bytes != 0 || len(p.byKey) != 0 {
		t.Errorf("%d selections with %d bytes are left, %d by name", p.order.Len(), p.bytes, len(p.byKey))
	}
}

// What replicas tell counts here too, where the rank is known and blocks have the same size, until they tell of its end or it is old.
func TestReservationsOfReplicas(t *testing.T) {
	s := newSelector(t, nil)
	name := pool{"m", "default"}
	tell := func(blockSize uint32, kind kv.RemoteKind, id string, worker uint64) {
		s.apply(name, blockSize, kv.Remote{Kind: kind, Booked: kv.Booked{Step: kv.Step{RequestID: id, Rank: inference.Rank{WorkerID: worker}}, Hashes: []uint64{1, 2}, PrefillTokens: 8}})
	}
	expect := func(what string, wantRequests, wantPrefill uint64) {
		t.Helper()
		if requests, prefill, _, _ := busy(t, s); requests != wantRequests || prefill != wantPrefill {
			t.Errorf("%s: %d requests and %d tokens, want %d and %d", what, requests, prefill, wantRequests, wantPrefill)
		}
	}
	tell(8, kv.RemoteBooked, "a", 1)
	tell(4, kv.RemoteBooked, "b", 77)
	expect("blocks of another size, a rank that is not known", 0, 0)
	want(t, s, 404, "DELETE", "/reservations/b", "")
	tell(4, kv.RemoteBooked, "a", 1)
	expect("a reservation", 1, 8)
	want(t, s, 409, "POST", "/reservations", `{"model_name":"m","token_ids":[1],"selection_id":"a","worker_id":2}`)
	tell(4, kv.RemotePrefillCompleted, "a", 1)
	expect("the end of a prefill", 1, 0)
	tell(4, kv.RemoteFreed, "a", 1)
	tell(4, kv.RemoteFreed, "a", 1)
	expect("the end", 0, 0)
	tell(4, kv.RemoteBooked, "c", 2)
	s.expire(s.clock.Now() + 6*time.Minute)
	expect("old age", 0, 0)
	if len(s.booked) != 0 {
		t.Errorf("%d ids are left", len(s.booked))
	}
}

// Whoever waits is answered when the service ends.
func TestWaitingEndsWithTheService(t *testing.T) {
	threshold := 0.0
	s := newSelector(t, func(o *SelectOptions) { o.Config.QueueThreshold = &threshold })
	for id := 1; id <= 2; id++ {
		want(t, s, 201, "POST", "/reservations", fmt.Sprintf(`{"model_name":"m","token_ids":[1,2,3],"selection_id":"%d","worker_id":%d,"effective_prefill_tokens":3}`, id, id))
	}
	answered := make(chan string, 1)
	go func() {
		status, text := call(s, "POST", "/select", `{"model_name":"m","token_ids":[1,2,3]}`)
		answered <- fmt.Sprint(status, " ", text)
	}()
	for {
		if _, _, _, waiting := busy(t, s); waiting == 1 {
			break
		}
	}
	s.Close()
	if got := <-answered; !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "shutdown") {
		t.Errorf("it is answered %s", got)
	}
	want(t, s, 503, "GET", "/ready", "")
}

// Reservations of many at the same time: no id is held twice, and in the end nothing is busy.
func TestReservationsOfMany(t *testing.T) {
	s := newSelector(t, func(o *SelectOptions) { o.SessionTTL = time.Minute })
	var wait sync.WaitGroup
	for caller := range 8 {
		wait.Go(func() {
			for n := range 50 {
				id := fmt.Sprintf("%d-%d", caller%4, n) // two want each id
				status, text := call(s, "POST", "/select_and_reserve", fmt.Sprintf(`{"model_name":"m","token_ids":[1,2,3,4,%d],"selection_id":%q,"session_id":"%d"}`, n, id, n%5))
				if status != 200 {
					if status != 409 {
						t.Errorf("%d %s", status, text)
					}
					continue
				}
				call(s, "POST", "/reservations/"+id+"/output_block", `{"decay_fraction":0.5}`)
				call(s, "POST", "/potential_loads", `{"model_name":"m","token_ids":[1,2,3,4]}`)
				if status, text := call(s, "DELETE", "/reservations/"+id, ""); status != 200 {
					t.Errorf("the end of %s: %d %s", id, status, text)
				}
			}
		})
	}
	wait.Wait()
	if requests, prefill, blocks, _ := busy(t, s); requests+prefill+blocks != 0 || len(s.booked) != 0 {
		t.Errorf("%d requests, %d tokens, %d blocks, %d ids are left", requests, prefill, blocks, len(s.booked))
	}
}

// Whatever comes in whatever order: what is busy is what is reserved, and all of it can be given back.
func TestReservationsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := SelectOptions{Config: kv.DefaultConfig(), Logger: quiet}
		options.Config.UseKVEvents = false
		s, err := NewSelector(options)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ask := func(method, path, body string) int {
			status, _ := call(s, method, path, body)
			return status
		}
		reserved := make(map[string]int) // by id, the worker
		workers := make(map[int]bool)
		ids := rapid.SampledFrom([]string{"a", "b", "c"})
		some := rapid.IntRange(1, 3)
		t.Repeat(map[string]func(*rapid.T){
			"worker": func(t *rapid.T) {
				id := some.Draw(t, "worker")
				for reservation, at := range reserved { // told again, it is a new worker
					if at == id {
						delete(reserved, reservation)
					}
				}
				workers[id] = true
				if status := ask("POST", "/workers", fmt.Sprintf(`{"worker_id":%d,"model_name":"m","endpoint":"http://w","block_size":4}`, id)); status != 201 {
					t.Fatal(status)
				}
			},
			"leave": func(t *rapid.T) {
				id := some.Draw(t, "worker")
				for reservation, at := range reserved {
					if at == id {
						delete(reserved, reservation)
					}
				}
				want := map[bool]int{true: 200, false: 404}[workers[id]]
				delete(workers, id)
				if status := ask("DELETE", fmt.Sprint("/workers/", id), ""); status != want {
					t.Fatal(status, want)
				}
			},
			"reserve": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				status, text := call(s, "POST", "/select_and_reserve", fmt.Sprintf(`{"model_name":"m","token_ids":[1,2,3,4,5],"selection_id":%q}`, id))
				var chosen struct {
					WorkerID int `json:"worker_id"`
				}
				_ = json.Unmarshal([]byte(text), &chosen)
				_, twice := reserved[id]
				switch {
				case len(workers) == 0 && status == 503, len(workers) > 0 && twice && status == 409:
				case len(workers) > 0 && !twice && status == 200 && workers[chosen.WorkerID]:
					reserved[id] = chosen.WorkerID
				default:
					t.Fatalf("%d %s with workers %v, reserved %v", status, text, workers, reserved)
				}
			},
			"free": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				_, there := reserved[id]
				delete(reserved, id)
				if status := ask("DELETE", "/reservations/"+id, ""); status != map[bool]int{true: 200, false: 404}[there] {
					t.Fatalf("the end of %s, which is there: %v: %d", id, there, status)
				}
			},
			"": func(t *rapid.T) {
				if requests, _, _, _ := busy(t, s); int(requests) != len(reserved) {
					t.Fatalf("%d requests are counted, %v are reserved", requests, reserved)
				}
			},
		})
	})
}

// What comes from outside is answered, whatever it is.
func FuzzSelectionService(f *testing.F) {
	for _, body := range []string{`{"worker_id":1,"endpoint":"e","block_size":4,"data_parallel_size":3,"kv_events_endpoints":{"0":"tcp://127.0.0.1:1"}}`,
		`{"token_ids":[1,2,3,4,5],"selection_id":"x","session_id":"s","allowed_worker_ids":[1],"routing_constraints":{"preferred_taints":{"a":1}}}`,
		`{"selection_id":"x","worker_id":1,"sequence_hashes":[-1],"isl_tokens":4,"effective_prefill_tokens":2}`, `{"decay_fraction":0.5}`, `[]`, ``} {
		f.Add(uint8(0), body)
		f.Add(uint8(3), body)
	}
	paths := []string{"POST /workers", "PATCH /workers/1", "POST /select", "POST /select_and_reserve", "POST /reservations", "POST /reservations/x/output_block",
		"POST /potential_loads", "POST /overlap_scores", "POST /replica_sync/register_peer", "DELETE /reservations/x"}
	f.Fuzz(func(t *testing.T, which uint8, body string) {
		options := SelectOptions{Config: kv.DefaultConfig(), Logger: quiet}
		options.Config.UseKVEvents = false
		s, err := NewSelector(options)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		call(s, "POST", "/workers", `{"worker_id":1,"endpoint":"http://w","block_size":4}`)
		method, path, _ := strings.Cut(paths[int(which)%len(paths)], " ")
		if status, text := call(s, method, path, body); status == 0 || status == 500 || !json.Valid([]byte(text)) {
			t.Errorf("%s %s %s: %d %s", method, path, body, status, text)
		}
	})
}

// A value of the wrong type is named as clients know it, whatever the types behind it are called.
func TestMisfitsAreNamed(t *testing.T) {
	s := newSelector(t, nil)
	for body, want := range map[string]string{
		`{"token_ids":"x"}`:          "field `token_ids` is string, and must be an array",
		`{"token_ids":[4294967296]}`: "field `token_ids` is number 4294967296, and must be a whole number from 0 to 4294967295",
	} {
		if status, text := call(s, "POST", "/select", body); status != 422 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s, want %q", body, status, text, want)
		}
	}
}
