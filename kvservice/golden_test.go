package kvservice

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"signalbox/internal/golden"
	"signalbox/kvhash"
	"signalbox/transport/zmq"
)

// recording is a session with a real service.
type recording struct {
	Exchanges []struct {
		Method, Path string
		Request      json.RawMessage
		Status       int
		ContentType  *string `json:"content_type"`
		Response     json.RawMessage
	}
	Messages []struct {
		Frames []string `json:"frames_hex"`
	} `json:"replica_sync_messages"`
}

func readRecording(t *testing.T, name string) (r recording) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, "kv_services"), name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Exchanges) < 10 {
		t.Fatalf("%s has %d exchanges", name, len(r.Exchanges))
	}
	return r
}

// replay asks a service everything that was asked in the session, in order. The wording of what a parser says is its own.
func replay(t *testing.T, service http.Handler, r recording, before func(exchange int)) {
	t.Helper()
	for i, e := range r.Exchanges {
		if before != nil {
			before(i)
		}
		body := []byte(e.Request)
		var raw string
		if json.Unmarshal(e.Request, &raw) == nil && raw != "" {
			body = []byte(raw) // no JSON on purpose
		}
		if string(body) == "null" {
			body = nil
		}
		w := httptest.NewRecorder()
		service.ServeHTTP(w, httptest.NewRequest(e.Method, e.Path, bytes.NewReader(body)))
		if w.Code != e.Status {
			t.Errorf("%d: %s %s %s: status %d, recorded %d: %s", i, e.Method, e.Path, e.Request, w.Code, e.Status, w.Body)
			continue
		}
		if got := w.Header().Get("Content-Type"); e.ContentType != nil && got != *e.ContentType || e.ContentType == nil && got != "" {
			t.Errorf("%d: %s %s: content type %q, recorded %v", i, e.Method, e.Path, got, e.ContentType)
		}
		var want any
		if err := json.Unmarshal(e.Response, &want); err != nil {
			t.Fatal(err)
		}
		if text, is := want.(string); is {
			if head, _, _ := strings.Cut(text, ":"); !strings.HasPrefix(w.Body.String(), head) {
				t.Errorf("%d: %s %s: %q, recorded %q", i, e.Method, e.Path, w.Body, text)
			}
			continue
		}
		var got any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Errorf("%d: %s %s: %v: %s", i, e.Method, e.Path, err, w.Body)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d: %s %s %s (-recorded +got):\n%s", i, e.Method, e.Path, e.Request, diff)
		}
	}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func TestSlotTrackerSession(t *testing.T) {
	s, err := NewSlots(SlotOptions{SyncAddress: "127.0.0.1:0", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	replay(t, s, readRecording(t, "slot-tracker-http-1.6.1.json"), nil)
}

// What the real services tell their replicas is understood, and told again it is the same to the byte.
func TestReplicaMessages(t *testing.T) {
	for _, name := range []string{"slot-tracker-http-1.6.1.json", "select-service-http-1.6.1.json"} {
		for i, message := range readRecording(t, name).Messages {
			topic, _ := hex.DecodeString(message.Frames[0])
			payload, err := hex.DecodeString(message.Frames[1])
			if err != nil || string(topic) != replicaTopic {
				t.Fatalf("%s, message %d: topic %q, %v", name, i, topic, err)
			}
			where, event, from, err := parseReplicaMessage(payload)
			if err != nil || where != (pool{"m", "default"}) || event.RequestID == "" || event.Rank.WorkerID == 0 {
				t.Errorf("%s, message %d: %+v in %+v, %v", name, i, event, where, err)
			}
			if bytes.Contains(payload, []byte("prefill_load_hint\xc0")) {
				continue // a request without prompt work; told again it says so in another way
			}
			if again := appendReplicaMessage(nil, from, where, 4, &event); !bytes.Equal(again, payload) {
				t.Errorf("%s, message %d told again:\n%x\nrecorded\n%x", name, i, again, payload)
			}
		}
	}
}

// engineOf publishes raw batches as an engine does.
type engineOf struct {
	*zmq.Publisher
	sequence uint64
}

func (e *engineOf) send(events ...[]byte) {
	batch := msgp.AppendArrayHeader(nil, 2)
	batch = msgp.AppendFloat64(batch, 1)
	batch = msgp.AppendArrayHeader(batch, uint32(len(events)))
	for _, event := range events {
		batch = append(batch, event...)
	}
	e.Publish([]byte("kv-events"), binary.BigEndian.AppendUint64(nil, e.sequence), batch)
	e.sequence++
}

func storedRaw(medium string, parent *uint64, first uint32, hashes ...uint64) []byte {
	b := msgp.AppendArrayHeader(nil, 7)
	b = msgp.AppendString(b, "BlockStored")
	b = msgp.AppendArrayHeader(b, uint32(len(hashes)))
	for _, hash := range hashes {
		b = msgp.AppendUint64(b, hash)
	}
	if parent != nil {
		b = msgp.AppendUint64(b, *parent)
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendArrayHeader(b, uint32(4*len(hashes)))
	for i := range uint32(4 * len(hashes)) {
		b = msgp.AppendUint32(b, first+i)
	}
	b = msgp.AppendInt(b, 4)
	b = msgp.AppendNil(b)
	return msgp.AppendString(b, medium)
}

func removedRaw(hash uint64) []byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendString(b, "BlockRemoved")
	b = msgp.AppendArrayHeader(b, 1)
	b = msgp.AppendUint64(b, hash)
	return msgp.AppendString(b, "GPU")
}

// The recorded session, with engines of the test's own that publish what those of the recording did: worker 1 holds three blocks and a
// fourth in host memory, worker 2 holds one; later worker 1 loses the third.
func TestIndexerSession(t *testing.T) {
	var engines [2]*engineOf
	text := ""
	{
		raw, err := os.ReadFile(filepath.Join(golden.Dir(t, "kv_services"), "indexer-http-1.6.1.json"))
		if err != nil {
			t.Fatal(err)
		}
		text = string(raw)
	}
	for i, port := range []string{"44859", "40361"} {
		publisher, err := zmq.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer publisher.Close()
		engines[i] = &engineOf{Publisher: publisher}
		text = strings.ReplaceAll(text, ":"+port, fmt.Sprint(":", publisher.Port()))
	}
	var r recording
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	x := NewIndexer(IndexerOptions{Logger: quiet})
	defer x.Close()
	longest := func(worker uint64) uint64 {
		found, err := x.find(pool{"m", "default"}, func(blockSize int) ([]uint64, error) {
			hasher, err := kvhash.New(kvhash.Scope{BlockSize: blockSize})
			tokens := make([]uint32, 16)
			for i := range tokens {
				tokens[i] = uint32(i + 1)
			}
			return hasher.AppendBlocks(nil, tokens), err
		})
		at := found.Instances[fmt.Sprint(worker)]
		if err != nil || at == nil {
			return 0
		}
		return at.Longest
	}
	await := func(what string, condition func() bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it did not come true in time: " + what)
			}
		}
	}
	queries := 0
	replay(t, x, r, func(exchange int) {
		e := r.Exchanges[exchange]
		if e.Path == "/workers" && exchange > 5 && engines[0].sequence == 0 {
			await("the engines are listened to", func() bool { return engines[0].Subscribers() == 1 && engines[1].Subscribers() == 1 })
			parent := uint64(13)
			await("what they hold is known", func() bool {
				// A subscription takes effect a moment after the connection: the first batch may be lost.
				engines[0].send(storedRaw("GPU", nil, 1, 11, 12, 13), storedRaw("CPU_PINNED", &parent, 13, 14))
				engines[1].send(storedRaw("GPU", nil, 1, 11))
				for range 20 {
					if longest(1) == 16 && longest(2) == 4 {
						return true
					}
					time.Sleep(time.Millisecond)
				}
				return false
			})
		}
		if e.Path == "/register_peer" {
			compareRestored(t, x)
		}
		if e.Path == "/query" && e.Method == "POST" && e.Status == 200 {
			if queries++; queries == 5 {
				await("a removal is known", func() bool {
					engines[0].send(removedRaw(13))
					for range 20 {
						if longest(1) == 8 {
							return true
						}
						time.Sleep(time.Millisecond)
					}
					return false
				})
			}
		}
	})
}

// compareRestored has a second indexer begin with all that the first one holds.
func compareRestored(t *testing.T, x *Indexer) {
	t.Helper()
	server := httptest.NewServer(x)
	defer server.Close()
	second := NewIndexer(IndexerOptions{Logger: quiet})
	defer second.Close()
	if err := second.Restore(t.Context(), server.URL); err != nil {
		t.Fatal(err)
	}
	_, want := call(x, "GET", "/dump", "")
	if _, got := call(second, "GET", "/dump", ""); got != want {
		t.Errorf("it holds %s, the first one %s", got, want)
	}
	http.DefaultClient.CloseIdleConnections()
}
