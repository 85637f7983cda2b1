package peers

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/inference"
	"signalbox/internal/golden"
	"signalbox/kvevents"
	"signalbox/router"
	"signalbox/router/affinity"
	"signalbox/router/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorded returns the payloads of a recording, with what they say.
func recorded(t *testing.T, name, topic string) (payloads [][]byte, decoded []json.RawMessage) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, "event_plane"), name))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Messages []struct {
			Frames  []string `json:"frames_hex"`
			Decoded struct {
				Payload json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, message := range file.Messages {
		var parts [][]byte
		for _, frame := range message.Frames {
			part, err := hex.DecodeString(frame)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, part)
		}
		envelope, err := kvevents.ParseFrames(parts, topic)
		if err != nil {
			t.Fatal(err)
		}
		payloads, decoded = append(payloads, bytes.Clone(envelope.Payload)), append(decoded, message.Decoded.Payload)
	}
	if len(payloads) < 10 {
		t.Fatalf("%s has %d messages", name, len(payloads))
	}
	return payloads, decoded
}

// What the real routers and workers say is understood, and said again it is the same to the byte.
func TestRecordedSequences(t *testing.T) {
	payloads, decoded := recorded(t, "active-sequences-events.json", SequencesTopic)
	booked := 0
	for i, payload := range payloads {
		reports, err := ParseSequences(payload, 0)
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		var want struct {
			Events []struct {
				RequestID string `json:"request_id"`
				Worker    struct {
					WorkerID uint64 `json:"worker_id"`
					DPRank   uint32 `json:"dp_rank"`
				}
				Data     json.RawMessage
				RouterID uint64 `json:"router_id"`
			}
		}
		if err := json.Unmarshal(decoded[i], &want); err != nil {
			t.Fatal(err)
		}
		if len(reports) != len(want.Events) {
			t.Fatalf("message %d: %d events, recorded %d", i, len(reports), len(want.Events))
		}
		again := &Sequences{waiting: make(chan []byte, len(reports)), channel: &channel{}}
		var events [][]byte
		for j, report := range reports {
			w := want.Events[j]
			if report.RequestID != w.RequestID || report.Rank != (inference.Rank{WorkerID: w.Worker.WorkerID, DPRank: w.Worker.DPRank}) {
				t.Errorf("message %d: %+v, recorded %+v", i, report, w)
			}
			again.routerID = w.RouterID
			switch report.Kind {
			case kv.RemoteBooked:
				booked++
				again.Booked(report.Booked)
			case kv.RemotePrefillCompleted:
				again.PrefillCompleted(report.Step)
			default:
				again.Freed(report.Step)
			}
			events = append(events, <-again.waiting)
		}
		if got := appendBatch(nil, events); !bytes.Equal(got, payload) {
			t.Errorf("message %d said again:\n%x\nrecorded\n%x", i, got, payload)
		}
		if own, _ := ParseSequences(payload, want.Events[0].RouterID); len(own) != 0 {
			t.Errorf("message %d: the router heard itself", i)
		}
	}
	if booked < 5 {
		t.Errorf("only %d bookings were compared", booked)
	}
}

func TestRecordedBindings(t *testing.T) {
	payloads, decoded := recorded(t, "session-affinity-events.json", SessionsTopic)
	for i, payload := range payloads {
		var want struct {
			SessionID string  `json:"session_id"`
			WorkerID  uint64  `json:"worker_id"`
			DPRank    *uint32 `json:"dp_rank"`
			Sequence  uint64
			Writer    uint64 `json:"writer_id"`
		}
		if err := json.Unmarshal(decoded[i], &want); err != nil {
			t.Fatal(err)
		}
		expected := affinity.Binding{SessionID: want.SessionID, Target: router.Pin{WorkerID: want.WorkerID}, Version: want.Sequence, Writer: want.Writer}
		if want.DPRank != nil {
			expected.Target.Rank, expected.Target.HasRank = *want.DPRank, true
		}
		got, from, err := ParseBinding(payload)
		if err != nil || got != expected || from != 0 {
			t.Errorf("message %d: %+v from %d, %v; recorded %+v", i, got, from, err, expected)
		}
		if again, from, err := ParseBinding(AppendBinding(nil, got, 5)); err != nil || again != expected || from != 5 {
			t.Errorf("message %d: said again it is %+v from %d, %v", i, again, from, err)
		}
	}
}

var endpoint = discovery.EndpointID{Namespace: "n", Component: "backend", Name: "generate"}

// two returns the planes of two processes of one fleet.
func two(t *testing.T) (planes [2]*Plane) {
	t.Helper()
	store := &mem.Store{}
	for i := range planes {
		backend := store.Open(mem.Options{})
		t.Cleanup(func() { _ = backend.Close(context.Background()) })
		planes[i] = &Plane{Backend: backend, Host: "127.0.0.1", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	}
	return planes
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come true in time: " + what)
		}
	}
}

// Two routers of the same workers see each other's load: one that is idle itself sends its requests where the other does not.
func TestRoutersSeeEachOthersLoad(t *testing.T) {
	planes := two(t)
	var routers [2]*kv.Router
	for i := range routers {
		pool := router.NewPool(router.PoolOptions{Endpoint: endpoint.String()})
		pool.SetWorkers([]router.Worker{{ID: 1}, {ID: 2}})
		var heard atomic.Pointer[kv.Router]
		link, err := planes[i].Sequences(endpoint, func(reports []kv.Remote) {
			if r := heard.Load(); r != nil {
				r.Apply(reports)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := kv.New(kv.Options{Config: kv.DefaultConfig(), Pool: pool, BlockSize: 4, Replicas: link})
		if err != nil {
			t.Fatal(err)
		}
		heard.Store(r)
		routers[i] = r
		t.Cleanup(link.Close)
	}
	place := func(r *kv.Router, id string, tokens int) *router.Placement {
		prompt := make([]uint32, tokens)
		for i := range prompt {
			prompt[i] = uint32(len(id)*1000 + i)
		}
		placement, err := r.Place(context.Background(), &inference.Request{ID: id, TokenIDs: prompt}, router.Attempt{})
		if err != nil {
			t.Fatal(err)
		}
		return placement
	}
	// Messages before the connection stands are lost: talk until one arrives.
	var kept *router.Placement
	tries := 0
	eventually(t, "the second router hears the first", func() bool {
		if kept != nil {
			kept.End(nil)
		}
		tries++
		kept = place(routers[0], fmt.Sprint("r", tries), 400)
		for deadline := time.Now().Add(20 * time.Millisecond); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if routers[1].Stats().ActiveRequests == 1 {
				return true
			}
		}
		return false
	})
	for i := range 5 {
		other := place(routers[1], fmt.Sprint("second router ", i), 40)
		if other.WorkerID == kept.WorkerID {
			t.Error("the second router chose the worker that the first one keeps busy")
		}
		other.End(nil)
	}
	prefill := func(r *kv.Router) (sum uint64) {
		for _, load := range r.AppendLoads(nil) {
			sum += load.ActivePrefillTokens
		}
		return sum
	}
	if got := prefill(routers[1]); got != 400 {
		t.Errorf("the second router counts %d prompt tokens, want 400", got)
	}
	kept.FirstToken()
	eventually(t, "the prefill's end is heard", func() bool { return prefill(routers[1]) == 0 })
	if routers[1].Stats().ActiveRequests != 1 || routers[1].Stats().BlockRecords != 100 {
		t.Errorf("after the prefill: %+v", routers[1].Stats())
	}
	kept.End(nil)
	eventually(t, "the request's end is heard", func() bool { return routers[1].Stats().ActiveRequests == 0 })
	eventually(t, "the first router is left with nothing of the second's", func() bool { return routers[0].Stats().ActiveRequests == 0 })
}

func TestRoutersTellEachOtherOfSessions(t *testing.T) {
	planes := two(t)
	heard := make(chan affinity.Binding, 64)
	ours, err := planes[0].Sessions(endpoint, func(b affinity.Binding) { t.Errorf("a router heard itself: %+v", b) })
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := planes[1].Sessions(endpoint, func(b affinity.Binding) {
		select {
		case heard <- b:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	binding := affinity.Binding{SessionID: "s", Target: router.Pin{WorkerID: 7, Rank: 1, HasRank: true}, Version: 9, Writer: 3}
	eventually(t, "the binding arrives", func() bool {
		ours.Publish(binding)
		select {
		case got := <-heard:
			if got != binding {
				t.Errorf("%+v arrived, want %+v", got, binding)
			}
			return true
		case <-time.After(5 * time.Millisecond):
			return false
		}
	})
	ours.Close()
	theirs.Close()
}

func FuzzMessages(f *testing.F) {
	f.Add(AppendBinding(nil, affinity.Binding{SessionID: "s", Target: router.Pin{WorkerID: 1, HasRank: true}}, 2))
	f.Add(appendBatch(nil, [][]byte{appendEvent(nil, 1, kv.Step{RequestID: "r"}, func(dst []byte) []byte {
		return appendBooked(dst, &kv.Booked{Hashes: []uint64{1, 2}, PrefillTokens: 3, Modelled: true, Expected: time.Second})
	})}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		_, _, _ = ParseBinding(payload)
		reports, err := ParseSequences(payload, 0)
		if err == nil && len(reports) > batchEvents {
			t.Errorf("%d events", len(reports))
		}
	})
}
