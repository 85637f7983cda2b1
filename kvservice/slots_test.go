package kvservice

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call asks a service one thing.
func call(service http.Handler, method, path, body string) (int, string) {
	w := httptest.NewRecorder()
	service.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func newSlots(t *testing.T, sync string) *Slots {
	t.Helper()
	s, err := NewSlots(SlotOptions{SyncAddress: sync, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if status, text := call(s, "POST", "/register", `{"worker_id":1,"model_name":"m","block_size":4}`); status != 201 {
		t.Fatal(status, text)
	}
	return s
}

func TestSlotMistakes(t *testing.T) {
	s := newSlots(t, "")
	for _, c := range []struct {
		path, body string
		status     int
		text       string
	}{
		{"/register", `{"worker_id":2,"model_name":"m","block_size":8}`, 409, "block_size mismatch for model=m routing_group=default: existing=4, requested=8"},
		{"/register", `{"worker_id":2,"model_name":"m","block_size":0}`, 400, "block_size"},
		{"/register", `{"worker_id":2,"model_name":"m","block_size":4,"dp_size":4000000000}`, 400, "dp_size"},
		{"/register", `{"worker_id":2,"model_name":"m"}`, 422, "missing field `block_size`"},
		{"/register", `{"worker_id":-2}`, 422, "field `worker_id` is number -2, and must be a whole number from 0 to 18446744073709551615"},
		{"/register", `{"worker_id":2,"model_name":5}`, 422, "field `model_name` is number, and must be a string"},
		{"/register", `[]`, 422, "the body is array, and must be an object"},
		{"/add", `{"model_name":"m","request_id":"r","worker_id":1,"sequence_hashes":"x"}`, 422, "field `sequence_hashes` is string, and must be an array"},
		{"/add", `{`, 400, "Failed to parse the request body as JSON"},
		{"/add", `{"model_name":"x","request_id":"r","worker_id":1,"sequence_hashes":[]}`, 404, "not found"},
		{"/prefill_complete", `{"model_name":"m","request_id":"r"}`, 404, "Request r not found"},
		{"/replica_sync/register_peer", `{"endpoint":"tcp://127.0.0.1:1"}`, 409, "replica sync is disabled"},
	} {
		if status, text := call(s, "POST", c.path, c.body); status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s %s: %d %s, want %d with %q", c.path, c.body, status, text, c.status, c.text)
		}
	}
	if status, _ := call(s, "GET", "/add", ""); status != 405 {
		t.Errorf("GET /add: %d", status)
	}
}

func TestOldSlotsAreForgotten(t *testing.T) {
	s := newSlots(t, "")
	if status, text := call(s, "POST", "/add", `{"model_name":"m","request_id":"r","worker_id":1,"sequence_hashes":[1,2],"new_isl_tokens":8}`); status != 201 {
		t.Fatal(text)
	}
	busy := `"active_prefill_tokens":8,"active_decode_blocks":2`
	s.expire(s.now() + 4*time.Minute)
	if _, text := call(s, "GET", "/loads", ""); !strings.Contains(text, busy) {
		t.Error("a young request was forgotten: " + text)
	}
	s.expire(s.now() + 6*time.Minute)
	if _, text := call(s, "GET", "/loads", ""); strings.Contains(text, busy) {
		t.Error("an old request was kept: " + text)
	}
}

// Two trackers that listen to each other count the same.
func TestReplicasCountTheSame(t *testing.T) {
	a, b := newSlots(t, "127.0.0.1:0"), newSlots(t, "127.0.0.1:0")
	for _, pair := range [][2]*Slots{{a, b}, {b, a}} {
		endpoint := fmt.Sprintf(`{"endpoint":"tcp://127.0.0.1:%d"}`, pair[1].sync.publisher.Port())
		if status, text := call(pair[0], "POST", "/replica_sync/register_peer", endpoint); status != 201 {
			t.Fatal(text)
		}
	}
	eventually := func(what string, condition func(n int) bool) {
		t.Helper()
		for deadline, n := time.Now().Add(10*time.Second), 0; !condition(n); n++ {
			if time.Now().After(deadline) {
				t.Fatal("it did not come true in time: " + what)
			}
			time.Sleep(time.Millisecond)
		}
	}
	last := ""
	eventually("the booking is heard", func(n int) bool {
		last = fmt.Sprint("r", n)
		call(a, "POST", "/add", fmt.Sprintf(`{"model_name":"m","request_id":%q,"worker_id":1,"sequence_hashes":[1,-2,3],"new_isl_tokens":12}`, last))
		_, text := call(b, "GET", "/loads", "")
		if strings.Contains(text, `"active_decode_blocks":3`) {
			return true
		}
		call(a, "POST", "/free", fmt.Sprintf(`{"model_name":"m","request_id":%q}`, last))
		return false
	})
	eventually("the end is heard", func(int) bool {
		call(a, "POST", "/free", fmt.Sprintf(`{"model_name":"m","request_id":%q}`, last))
		_, text := call(b, "GET", "/loads", "")
		return strings.Contains(text, `"active_decode_blocks":0`)
	})
}

func FuzzReplicaMessage(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) { _, _, _, _, _ = parseReplicaMessage(data) })
}
