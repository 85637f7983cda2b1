package engine

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/golden"
	"signalbox/kvindex"
)

func readGolden(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, "zmq_raw"), name))
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

// edge is a block of a recorded index.
type edge struct {
	Parent *uint64 `json:"parent_hash"`
	Hash   uint64  `json:"block_hash"`
	Local  uint64  `json:"tokens_hash"`
}

// contents is what ranks and tiers hold: "parent: local" by block hash.
type contents map[string]map[uint64]string

func (c contents) add(where string, hash, local, parent uint64, hasParent bool) {
	if c[where] == nil {
		c[where] = map[uint64]string{}
	}
	text := "root"
	if hasParent {
		text = fmt.Sprint(parent)
	}
	c[where][hash] = fmt.Sprintf("%s: %d", text, local)
}

// apply applies events to plain maps.
func (c contents) apply(events []kvindex.Event) {
	for _, event := range events {
		where := fmt.Sprintf("dp%d/%s", event.Rank.DPRank, event.Tier)
		switch event.Op {
		case kvindex.Stored:
			parent, hasParent := event.Parent, event.HasParent
			for _, block := range event.Blocks {
				c.add(where, block.Hash, block.Local, parent, hasParent)
				parent, hasParent = block.Hash, true
			}
		case kvindex.Removed:
			for _, hash := range event.Hashes {
				delete(c[where], hash)
			}
		case kvindex.Cleared:
			for tier := range kvindex.Tier(kvindex.Tiers) {
				delete(c, fmt.Sprintf("dp%d/%s", event.Rank.DPRank, tier))
			}
		}
	}
	maps.DeleteFunc(c, func(_ string, blocks map[uint64]string) bool { return len(blocks) == 0 })
}

// recorded is a case of the recordings.
type recorded struct {
	Name       string
	BlockSize  int               `json:"block_size"`
	ImageToken *uint32           `json:"image_token_id"`
	Payloads   []string          `json:"payloads_hex"`
	Final      map[string][]edge `json:"final_index_1_6_1"`
	Expect     []struct {
		Events []struct {
			Event struct{ Data json.RawMessage }
		}
	}
}

func readCases(t *testing.T) []recorded {
	t.Helper()
	var r struct{ Cases []recorded }
	readGolden(t, "normalizer.json", &r)
	if len(r.Cases) < 20 {
		t.Fatalf("only %d cases", len(r.Cases))
	}
	return r.Cases
}

func (c recorded) normalizer(t *testing.T) *Normalizer {
	t.Helper()
	options := Options{WorkerID: 7, BlockSize: c.BlockSize}
	if c.ImageToken != nil {
		options.ImageToken, options.HasImageToken = *c.ImageToken, true
	}
	n, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRecordedBatches compares what batches of all eras leave in an index with what a real 1.6.1 indexer held after them.
func TestRecordedBatches(t *testing.T) {
	// What we read and they do not.
	better := map[string]contents{
		"vllm_v1_array_5": {"dp0/device": {11: "root: 14643705804678351452", 12: "11: 16777012769546811212", 13: "12: 483935686894639516"}},
		"vllm_map_batch":  {"dp0/device": {11: "root: 14643705804678351452"}},
		"bytes_hashes":    {"dp0/device": {0x0101010101010101: "root: 14643705804678351452"}},
	}
	for _, c := range readCases(t) {
		if c.ImageToken != nil {
			continue // their indexer was not told of the token
		}
		t.Run(c.Name, func(t *testing.T) {
			n := c.normalizer(t)
			got, want := contents{}, contents{}
			for i, payload := range c.Payloads {
				events, complete, err := n.Batch(fromHex(t, payload))
				if err != nil || !complete {
					t.Errorf("payload %d: %v, complete: %v", i, err, complete)
				}
				got.apply(events)
			}
			for where, edges := range c.Final {
				for _, e := range edges {
					if e.Parent != nil {
						want.add(where, e.Hash, e.Local, *e.Parent, true)
					} else {
						want.add(where, e.Hash, e.Local, 0, false)
					}
				}
			}
			if ours, ok := better[c.Name]; ok {
				want = ours
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestObjectsAsFrontendsGiveThem compares the hashes of blocks with images with those of the 1.5 release, which also took
// identifiers that engines make up: these are replaced by the form that both releases take.
func TestObjectsAsFrontendsGiveThem(t *testing.T) {
	compared := 0
	for _, c := range readCases(t) {
		if c.Name != "vllm_array_extra_keys" && c.Name != "mm_pad" {
			continue
		}
		n := c.normalizer(t)
		for i, payload := range c.Payloads {
			raw := bytes.ReplaceAll(fromHex(t, payload), bytes.Repeat([]byte("ab"), 32), []byte(strings.Repeat("ab", 8)+strings.Repeat("0", 48)))
			events, complete, err := n.Batch(raw)
			if err != nil || !complete || len(events) != 1 {
				t.Fatalf("%s %d: %d events, complete: %v, %v", c.Name, i, len(events), complete, err)
			}
			var data struct{ Stored struct{ Blocks []edge } }
			if err := json.Unmarshal(c.Expect[i].Events[0].Event.Data, &data); err != nil {
				t.Fatal(err)
			}
			for j, want := range data.Stored.Blocks {
				if got := events[0].Blocks[j]; got != (kvindex.Block{Hash: want.Hash, Local: want.Local}) {
					t.Errorf("%s %d: block %+v, want %+v", c.Name, i, got, want)
				}
				compared++
			}
		}
	}
	if compared != 4 {
		t.Errorf("%d blocks were compared", compared)
	}
}

// TestRecordedMocker reads the stream of a live engine; its external hashes happen to be sequence hashes, so that the local hash of a
// first block is the block's name.
func TestRecordedMocker(t *testing.T) {
	var r struct {
		BlockSize int `json:"block_size"`
		Messages  []struct {
			Frames []string `json:"frames_hex"`
		}
	}
	readGolden(t, "mocker-1.6.1-live.json", &r)
	n, err := New(Options{WorkerID: 7, BlockSize: r.BlockSize})
	if err != nil {
		t.Fatal(err)
	}
	index, err := kvindex.New(kvindex.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := 0
	for i, message := range r.Messages {
		events, complete, err := n.Batch(fromHex(t, message.Frames[len(message.Frames)-1]))
		if err != nil || !complete || len(events) == 0 {
			t.Fatalf("message %d: %d events, complete: %v, %v", i, len(events), complete, err)
		}
		for _, event := range events {
			if err := index.Apply(event); err != nil {
				t.Errorf("message %d: %+v: %v", i, event, err)
			}
			if event.Op == kvindex.Stored && !event.HasParent {
				first++
				if block := event.Blocks[0]; block.Hash != block.Local {
					t.Errorf("message %d: the first block %d has the local hash %d", i, block.Hash, block.Local)
				}
			}
		}
	}
	if first == 0 {
		t.Error("no prompt begins")
	}
}
