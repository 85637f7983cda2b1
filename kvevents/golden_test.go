package kvevents

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/golden"
	"signalbox/kvindex"
)

// recording is a file of golden/event_plane.
type recording struct {
	Messages []struct {
		Frames  []string `json:"frames_hex"`
		Decoded struct {
			PublisherID uint64          `json:"publisher_id"`
			Sequence    uint64          `json:"sequence"`
			PublishedAt uint64          `json:"published_at"`
			Payload     json.RawMessage `json:"payload"`
		} `json:"decoded"`
	} `json:"messages"`
}

func readGolden(t *testing.T, folder, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, folder), name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func fromHex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// jsonEvent is a router event as recordings spell it.
type jsonEvent struct {
	WorkerID uint64  `json:"worker_id"`
	Tier     string  `json:"storage_tier"`
	Domain   *string `json:"residency_domain"`
	Event    struct {
		ID     uint64          `json:"event_id"`
		DPRank uint32          `json:"dp_rank"`
		Data   json.RawMessage `json:"data"`
	} `json:"event"`
}

func (e jsonEvent) want(t *testing.T) Event {
	t.Helper()
	tier, err := kvindex.ParseTier(e.Tier)
	if err != nil {
		t.Fatal(err)
	}
	event := Event{ID: e.Event.ID, Change: kvindex.Event{Rank: kvindex.Rank{WorkerID: e.WorkerID, DPRank: e.Event.DPRank}, Tier: tier}}
	if string(e.Event.Data) == `"cleared"` {
		event.Change.Op, event.Legacy = kvindex.Cleared, e.Domain == nil
		return event
	}
	var data struct {
		Stored *struct {
			Parent *uint64 `json:"parent_hash"`
			Blocks []struct {
				Hash  uint64 `json:"block_hash"`
				Local uint64 `json:"tokens_hash"`
			} `json:"blocks"`
		} `json:"stored"`
		Removed *struct {
			Hashes []uint64 `json:"block_hashes"`
		} `json:"removed"`
	}
	if err := json.Unmarshal(e.Event.Data, &data); err != nil {
		t.Fatal(err)
	}
	switch {
	case data.Stored != nil:
		event.Change.Op = kvindex.Stored
		if data.Stored.Parent != nil {
			event.Change.Parent, event.Change.HasParent = *data.Stored.Parent, true
		}
		for _, block := range data.Stored.Blocks {
			event.Change.Blocks = append(event.Change.Blocks, kvindex.Block{Hash: block.Hash, Local: block.Local})
		}
	case data.Removed != nil:
		event.Change.Op, event.Change.Hashes = kvindex.Removed, data.Removed.Hashes
	}
	return event
}

func wantEvents(t *testing.T, text json.RawMessage) []Event {
	t.Helper()
	var list []jsonEvent
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	events := make([]Event, len(list))
	for i := range list {
		events[i] = list[i].want(t)
	}
	return events
}

func TestRecordedKVEvents(t *testing.T) {
	count := 0
	for _, name := range []string{"kv-events.json", "kv-events-host-tier.json"} {
		var r recording
		readGolden(t, "event_plane", name, &r)
		var batch Batch // reused, as in the product
		for i, message := range r.Messages {
			envelope := parseRecorded(t, message.Frames, KVEventsTopic)
			if envelope.PublisherID != message.Decoded.PublisherID || envelope.Sequence != message.Decoded.Sequence || envelope.PublishedAt != message.Decoded.PublishedAt {
				t.Errorf("%s %d: envelope %+v", name, i, envelope)
			}
			if err := batch.Decode(envelope.Payload); err != nil {
				t.Fatalf("%s %d: %v", name, i, err)
			}
			if diff := cmp.Diff(wantEvents(t, message.Decoded.Payload), batch.Events); diff != "" {
				t.Errorf("%s %d: %s", name, i, diff)
			}
			count += len(batch.Events)
		}
	}
	if count < 70 {
		t.Errorf("only %d events were compared", count)
	}
}

func parseRecorded(t *testing.T, frames []string, topic string) Envelope {
	t.Helper()
	var parts [][]byte
	for _, frame := range frames {
		parts = append(parts, fromHex(t, frame))
	}
	envelope, err := ParseFrames(parts, topic)
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

func TestRecordedLoadReports(t *testing.T) {
	var r recording
	readGolden(t, "event_plane", "kv-metrics.json", &r)
	for i, message := range r.Messages {
		load, err := ParseLoad(parseRecorded(t, message.Frames, LoadTopic).Payload)
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		var want struct {
			WorkerID uint64  `json:"worker_id"`
			DPRank   uint32  `json:"dp_rank"`
			Decode   *uint64 `json:"active_decode_blocks"`
			Prefill  *uint64 `json:"active_prefill_tokens"`
			Used     *uint64 `json:"kv_used_blocks"`
		}
		if err := json.Unmarshal(message.Decoded.Payload, &want); err != nil {
			t.Fatal(err)
		}
		figure := func(value *uint64) Figure {
			if value == nil {
				return Figure{}
			}
			return Figure{*value, true}
		}
		if diff := cmp.Diff(Load{kvindex.Rank{WorkerID: want.WorkerID, DPRank: want.DPRank}, figure(want.Decode), figure(want.Prefill), figure(want.Used)}, load); diff != "" {
			t.Errorf("message %d: %s", i, diff)
		}
	}
	if len(r.Messages) == 0 {
		t.Error("no messages")
	}
}

func TestRecordedRecoveryAnswers(t *testing.T) {
	var r struct {
		Exchanges []struct {
			Label   string
			Request struct {
				WorkerID uint64  `json:"worker_id"`
				DPRank   uint32  `json:"dp_rank"`
				Start    *uint64 `json:"start_event_id"`
				End      *uint64 `json:"end_event_id"`
				Failed   bool    `json:"supports_tree_dump_failed"`
			}
			RequestHex string `json:"request_payload_hex"`
			Frames     []struct {
				Body string `json:"body_hex"`
			} `json:"response_frames"`
			Decoded []struct {
				Body *struct{ Data map[string]json.RawMessage }
			}
		}
	}
	readGolden(t, "recovery", "worker-kv-query-1.6.1.json", &r)
	kinds := map[string]int{}
	for _, exchange := range r.Exchanges {
		request := exchange.Request
		if request.End == nil && request.Failed { // what we never ask is left out
			query := appendQuery(nil, kvindex.Rank{WorkerID: request.WorkerID, DPRank: request.DPRank}, request.Start)
			if got := hex.EncodeToString(query); got != exchange.RequestHex {
				t.Errorf("%s: query\n%s, want\n%s", exchange.Label, got, exchange.RequestHex)
			}
		}
		for i, frame := range exchange.Frames {
			body := exchange.Decoded[i].Body
			if body == nil || len(body.Data) == 0 {
				continue
			}
			item := fromHex(t, frame.Body)
			value := item[len("\x82\xa4data") : len(item)-len("\xaecomplete_final\xc2")]
			var a answer
			err := a.decode(value)
			for kind, content := range body.Data {
				kinds[kind]++
				var want struct {
					Events json.RawMessage
					Last   uint64 `json:"last_event_id"`
					Newest uint64 `json:"newest_available"`
				}
				switch kind {
				case "Events", "TreeDump":
					if err := json.Unmarshal(content, &want); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(wantEvents(t, want.Events), a.batch.Events); err != nil || diff != "" || a.last != want.Last || (a.kind == answerDump) != (kind == "TreeDump") {
						t.Errorf("%s: %v, last %d: %s", exchange.Label, err, a.last, diff)
					}
				case "TooNew":
					if err := json.Unmarshal(content, &want); err != nil {
						t.Fatal(err)
					}
					if err != nil || a.kind != answerTooNew || a.last != want.Newest {
						t.Errorf("%s: %v %+v", exchange.Label, err, a)
					}
				case "InvalidRange":
					if err == nil || !strings.Contains(err.Error(), "refuses the range") {
						t.Errorf("%s: %v", exchange.Label, err)
					}
				case "Error":
					if err == nil || !strings.Contains(err.Error(), "mismatch") {
						t.Errorf("%s: %v", exchange.Label, err)
					}
				}
			}
		}
	}
	for _, kind := range []string{"Events", "TreeDump", "TooNew", "InvalidRange", "Error"} {
		if kinds[kind] == 0 {
			t.Errorf("no answer of kind %s was seen", kind)
		}
	}
}
