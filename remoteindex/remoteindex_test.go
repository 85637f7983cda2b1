package remoteindex

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/internal/golden"
	"signalbox/kvindex"
	"signalbox/transport/tcp"
	"signalbox/transport/wire"
	"signalbox/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a real client asks and a real server answers is understood; asked again it is the same to the byte.
func TestRecordedExchanges(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, "recovery"), "served-indexer-query-1.6.1.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Exchanges []struct {
			Request *struct {
				Model      string   `json:"model_name"`
				Hashes     []uint64 `json:"block_hashes"`
				DeviceOnly *bool    `json:"device_only"`
			}
			Payload string `json:"request_payload_hex"`
			Decoded []struct {
				Body struct{ Data json.RawMessage }
			}
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, exchange := range file.Exchanges {
		if exchange.Request == nil {
			continue
		}
		checked++
		payload, err := hex.DecodeString(exchange.Payload)
		if err != nil {
			t.Fatal(err)
		}
		var q question
		if err := q.parse(payload); err != nil || q.model != exchange.Request.Model || len(q.locals) != len(exchange.Request.Hashes) {
			t.Errorf("%+v, %v; recorded %+v", q, err, exchange.Request)
		}
		if exchange.Request.DeviceOnly != nil && !bytes.Equal(q.append(nil), payload) {
			t.Errorf("asked again: %x, recorded %x", q.append(nil), payload)
		}
		for _, frame := range exchange.Decoded {
			if frame.Body.Data == nil {
				continue
			}
			value, err := wire.AppendMessagePack(nil, frame.Body.Data)
			if err != nil {
				t.Fatal(err)
			}
			var matches kvindex.Matches
			err = parseMatches(&matches, value)
			if strings.Contains(string(frame.Body.Data), "Error") {
				if err == nil || !strings.Contains(err.Error(), "served indexer model nope is not registered") {
					t.Errorf("%v", err)
				}
				continue
			}
			if want := bytes.Contains(frame.Body.Data, []byte(`"worker_id"`)); err != nil || (len(matches.Ranks) == 1) != want {
				t.Errorf("%s: %+v, %v", frame.Body.Data, matches.Ranks, err)
			}
			for _, match := range matches.Ranks {
				if match.Rank.WorkerID != 17621683129449267922 || match.Blocks != [kvindex.Tiers]uint32{6} {
					t.Errorf("%+v", match)
				}
			}
		}
	}
	if checked < 4 {
		t.Errorf("only %d exchanges were checked", checked)
	}
}

// fixed is an index with one answer; it also takes note of placements.
type fixed struct {
	mutex    sync.Mutex
	rows     []kvindex.Match
	asked    []kvindex.Query
	recorded []kvindex.Rank
}

func (f *fixed) Find(matches *kvindex.Matches, query kvindex.Query) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.asked = append(f.asked, query)
	matches.Ranks = append(matches.Ranks[:0], f.rows...)
}

func (f *fixed) Record(rank kvindex.Rank, locals, sequence []uint64, _ time.Duration) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.recorded = append(f.recorded, rank)
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come true in time: " + what)
		}
	}
}

// One router answers another's questions over the real request plane; when it goes, the other one knows nothing and says so.
func TestOneRouterAsksAnother(t *testing.T) {
	store := &mem.Store{}
	serving, asking := store.Open(mem.Options{}), store.Open(mem.Options{})
	defer asking.Close(context.Background())
	defer serving.Close(context.Background())
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	server, err := tcp.NewServer(tcp.Options{Host: "127.0.0.1"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := tcp.NewClient(tcp.Options{Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	workers := discovery.EndpointID{Namespace: "n", Component: "backend", Name: "generate"}
	index := &fixed{rows: []kvindex.Match{{Rank: kvindex.Rank{WorkerID: 1, DPRank: 1}, Blocks: [kvindex.Tiers]uint32{3, 2, 0, 1}},
		{Rank: kvindex.Rank{WorkerID: 1<<63 + 5}, Blocks: [kvindex.Tiers]uint32{0, 4}}}}
	served := NewServer(serving, worker.OnTCP(server))
	stop, err := served.Serve(workers, "m", Served{Index: index, Recorder: index, Now: func() time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := served.Serve(workers, "m", Served{Index: index}); err == nil {
		t.Error("one model was served twice")
	}
	ask := func(model string) *Client {
		c, err := NewClient(Options{Backend: asking, Queries: client, Workers: workers, Model: model, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	known, unknown := ask("m"), ask("other")
	defer known.Close()
	defer unknown.Close()
	var matches kvindex.Matches
	eventually(t, "the server is found and answers", func() bool {
		known.Find(&matches, kvindex.Query{Locals: []uint64{1, 2, 1 << 63}})
		return len(matches.Ranks) == 2
	})
	for _, row := range index.rows {
		if got := matches.Of(row.Rank); got != row {
			t.Errorf("%+v arrived, want %+v", got, row)
		}
	}
	index.mutex.Lock()
	query := index.asked[0]
	index.mutex.Unlock()
	if len(query.Locals) != 3 || query.Locals[2] != 1<<63 || query.DeviceOnly {
		t.Errorf("%+v was asked", query)
	}
	known.Find(&matches, kvindex.Query{Locals: []uint64{1}, DeviceOnly: true})
	if len(matches.Ranks) != 1 || matches.Ranks[0].Blocks != [kvindex.Tiers]uint32{3} {
		t.Errorf("devices alone: %+v", matches.Ranks)
	}
	known.Record(kvindex.Rank{WorkerID: 9}, []uint64{1}, []uint64{2}, 0)
	eventually(t, "the placement is recorded", func() bool {
		index.mutex.Lock()
		defer index.mutex.Unlock()
		return len(index.recorded) == 1 && index.recorded[0].WorkerID == 9
	})
	eventually(t, "the other client finds the server too", func() bool {
		_, found := unknown.next(queryEndpoint)
		return found
	})
	unknown.Find(&matches, kvindex.Query{Locals: []uint64{1}})
	if failures, _ := unknown.Failures(); len(matches.Ranks) != 0 || failures != 1 {
		t.Errorf("a model that is not served: %+v, %d failures", matches.Ranks, failures)
	}
	before, _ := known.Failures()
	stop()
	eventually(t, "the server is gone", func() bool { _, found := known.next(queryEndpoint); return !found })
	known.Find(&matches, kvindex.Query{Locals: []uint64{1}})
	if failures, _ := known.Failures(); len(matches.Ranks) != 0 || failures != before+1 {
		t.Errorf("without server: %+v, %d failures after %d", matches.Ranks, failures, before)
	}
}

func FuzzMessages(f *testing.F) {
	matches := kvindex.Matches{Ranks: []kvindex.Match{{Rank: kvindex.Rank{WorkerID: 1}, Blocks: [kvindex.Tiers]uint32{1, 2, 3}}}}
	f.Add(appendMatches(nil, &matches, false))
	f.Add((&question{model: "m", locals: []uint64{1, 2}}).append(nil))
	f.Add((&decision{model: "m", locals: []uint64{1}, sequence: []uint64{2}}).append(nil))
	f.Add(msgp.AppendNil(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = (&question{}).parse(data)
		_ = (&decision{}).parse(data)
		_ = parseMatches(&kvindex.Matches{}, data)
	})
}
