package kvevents

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"signalbox/kvindex"
)

// pack writes a value of maps, lists, strings and numbers; maps are written as pairs, so that their order is that of the test.
func pack(value any) []byte { return appendValue(nil, value) }

type pairs []any

func appendValue(dst []byte, value any) []byte {
	switch value := value.(type) {
	case pairs:
		dst = msgp.AppendMapHeader(dst, uint32(len(value)/2))
		for _, v := range value {
			dst = appendValue(dst, v)
		}
	case []any:
		dst = msgp.AppendArrayHeader(dst, uint32(len(value)))
		for _, v := range value {
			dst = appendValue(dst, v)
		}
	case string:
		dst = msgp.AppendString(dst, value)
	case []byte:
		dst = msgp.AppendBytes(dst, value)
	case int:
		dst = msgp.AppendInt64(dst, int64(value))
	case uint64:
		dst = append(dst, 0xcf)
		dst = binary.BigEndian.AppendUint64(dst, value)
	case float64:
		dst = msgp.AppendFloat64(dst, value)
	case nil:
		dst = msgp.AppendNil(dst)
	}
	return dst
}

func TestShapesOfKVEvents(t *testing.T) {
	block := func(hash any) pairs { return pairs{"block_hash", hash, "tokens_hash", 7, "mm_extra_info", nil} }
	rank := kvindex.Rank{WorkerID: 1<<63 + 5, DPRank: 0}
	stored := kvindex.Event{Rank: rank, Op: kvindex.Stored, Blocks: []kvindex.Block{{Hash: 1<<64 - 3, Local: 7}}}
	cases := map[string]struct {
		value any
		want  []Event
		err   string
	}{
		"nothing":           {[]any{}, nil, ""},
		"only what must be": {[]any{pairs{"worker_id", rank.WorkerID, "event", pairs{"event_id", 0, "data", pairs{"stored", pairs{"blocks", []any{block(-3)}}}}}}, []Event{{ID: 0, Change: stored}}, ""},
		"any order, members of later versions": {[]any{pairs{"event", pairs{"dp_rank", nil, "later", []any{pairs{"x", 1.5}}, "data", pairs{"stored", pairs{"later", nil, "blocks",
			[]any{pairs{"later", "x", "mm_extra_info", pairs{"mm_objects", []any{}}, "tokens_hash", 7, "block_hash", -3}}, "parent_hash", nil}}, "event_id", 300},
			"later", pairs{}, "residency_domain", "worker", "storage_tier", "device", "worker_id", rank.WorkerID}}, []Event{{ID: 300, Change: stored}}, ""},
		"cleared, legacy":  {[]any{pairs{"worker_id", rank.WorkerID, "event", pairs{"event_id", 4, "data", "cleared"}}}, []Event{{ID: 4, Change: kvindex.Event{Rank: rank, Op: kvindex.Cleared}, Legacy: true}}, ""},
		"cleared, a map":   {[]any{pairs{"worker_id", rank.WorkerID, "residency_domain", "worker", "event", pairs{"event_id", 4, "data", pairs{"cleared", nil}}}}, []Event{{ID: 4, Change: kvindex.Event{Rank: rank, Op: kvindex.Cleared}}}, ""},
		"another domain":   {[]any{pairs{"worker_id", rank.WorkerID, "residency_domain", "cache_owner", "event", pairs{"event_id", 4, "data", "cleared"}}}, []Event{{ID: 4, Change: kvindex.Event{Rank: rank}}}, ""},
		"domain nil":       {[]any{pairs{"worker_id", rank.WorkerID, "residency_domain", nil, "event", pairs{"event_id", 4, "data", "cleared"}}}, []Event{{ID: 4, Change: kvindex.Event{Rank: rank}}}, ""},
		"unknown tier":     {[]any{pairs{"worker_id", rank.WorkerID, "storage_tier", "tape", "event", pairs{"event_id", 4, "data", pairs{"removed", pairs{"block_hashes", []any{1}}}}}}, []Event{{ID: 4, Change: kvindex.Event{Rank: rank}}}, ""},
		"unknown kind":     {[]any{pairs{"worker_id", rank.WorkerID, "event", pairs{"event_id", 4, "data", pairs{"moved", pairs{}}}}}, []Event{{ID: 4, Change: kvindex.Event{Rank: rank}}}, ""},
		"no data":          {[]any{pairs{"worker_id", rank.WorkerID, "event", pairs{"event_id", 4}}}, []Event{{ID: 4, Change: kvindex.Event{Rank: rank}}}, ""},
		"two of a message": {[]any{pairs{"worker_id", 1, "event", pairs{"event_id", 1, "data", pairs{"removed", pairs{"block_hashes", []any{uint64(5), 6}}}}}, pairs{"worker_id", 1, "storage_tier", "external", "event", pairs{"event_id", 2, "dp_rank", 3, "data", pairs{"removed", pairs{"block_hashes", []any{7}}}}}}, []Event{{ID: 1, Change: kvindex.Event{Rank: kvindex.Rank{WorkerID: 1}, Op: kvindex.Removed, Hashes: []uint64{5, 6}}}, {ID: 2, Change: kvindex.Event{Rank: kvindex.Rank{WorkerID: 1, DPRank: 3}, Tier: kvindex.External, Op: kvindex.Removed, Hashes: []uint64{7}}}}, ""},

		"a map":             {pairs{}, nil, "KV events"},
		"no worker":         {[]any{pairs{"event", pairs{"event_id", 4}}}, nil, "worker_id and event_id"},
		"no id":             {[]any{pairs{"worker_id", 1, "event", pairs{"data", "cleared"}}}, nil, "worker_id and event_id"},
		"no event":          {[]any{pairs{"worker_id", 1}}, nil, "KV event 1 of 1"},
		"a block of no use": {[]any{pairs{"worker_id", 1, "event", pairs{"event_id", 4, "data", pairs{"stored", pairs{"blocks", []any{pairs{"block_hash", 1}}}}}}}, nil, "event: data: stored: blocks: a block needs"},
		"a hash of text":    {[]any{pairs{"worker_id", 1, "event", pairs{"event_id", 4, "data", pairs{"stored", pairs{"blocks", []any{block("x")}}}}}}, nil, "block_hash"},
		"a rank too large":  {[]any{pairs{"worker_id", 1, "event", pairs{"event_id", 4, "dp_rank", 1 << 32}}}, nil, "dp_rank"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var batch Batch
			err := batch.Decode(pack(c.value))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || len(batch.Events) != 0 {
					t.Fatalf("%v, %d events; want an error with %q", err, len(batch.Events), c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, batch.Events); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
			if err := batch.Decode(append(pack(c.value), 0)); err == nil || !strings.Contains(err.Error(), "1 bytes after the end") {
				t.Errorf("a byte more: %v", err)
			}
		})
	}
}

func TestFramesThatAreNotRight(t *testing.T) {
	frames := func(change func(parts [][]byte) [][]byte) [][]byte {
		envelope := pack(pairs{"publisher_id", 7, "sequence", 3, "published_at", 1, "topic", "kv-events", "payload", []byte{0x90}})
		head := binary.BigEndian.AppendUint32([]byte{1}, uint32(len(envelope)))
		return change([][]byte{[]byte("kv-events"), binary.BigEndian.AppendUint64(nil, 7), binary.BigEndian.AppendUint64(nil, 3), append(head, envelope...)})
	}
	body := func(envelope any) func([][]byte) [][]byte {
		return func(p [][]byte) [][]byte {
			text := pack(envelope)
			p[3] = append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(text))), text...)
			return p
		}
	}
	cases := map[string]struct {
		change func(parts [][]byte) [][]byte
		want   string
	}{
		"right":            {func(p [][]byte) [][]byte { return p }, ""},
		"three":            {func(p [][]byte) [][]byte { return p[:3] }, "3 frames"},
		"topic":            {func(p [][]byte) [][]byte { p[0] = []byte("kv-events2"); return p }, `"kv-events2"`},
		"id":               {func(p [][]byte) [][]byte { p[1] = p[1][1:]; return p }, "7 and 8 bytes"},
		"version":          {func(p [][]byte) [][]byte { p[3][0] = 2; return p }, "version 1"},
		"empty":            {func(p [][]byte) [][]byte { p[3] = nil; return p }, "version 1"},
		"length":           {func(p [][]byte) [][]byte { p[3] = append(p[3], 0); return p }, "announces"},
		"other publisher":  {func(p [][]byte) [][]byte { p[1][7] = 8; return p }, "publisher 8, the envelope 7"},
		"other sequence":   {func(p [][]byte) [][]byte { p[2][7] = 8; return p }, "sequence 8, the envelope 3"},
		"topic inside":     {body(pairs{"topic", "load"}), `topic: "load"; want "kv-events"`},
		"payload a string": {body(pairs{"payload", "x"}), "payload"},
		"incomplete":       {body(pairs{"publisher_id", 7, "sequence", 3, "topic", "kv-events"}), "must be there"},
		"an array":         {body([]any{}), "envelope"},
	}
	for name, c := range cases {
		_, err := ParseFrames(frames(c.change), "kv-events")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestLoadReportsThatAreNotRight(t *testing.T) {
	for want, value := range map[string]any{
		"load report: msgp":        []any{},
		"worker_id must":           pairs{"dp_rank", 1},
		"load report: worker_id":   pairs{"worker_id", "x"},
		"load report: kv_used_blo": pairs{"worker_id", 1, "kv_used_blocks", "x"},
	} {
		if _, err := ParseLoad(pack(value)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", value, err)
		}
	}
	load, err := ParseLoad(pack(pairs{"later", 1, "kv_used_blocks", 4, "worker_id", 9}))
	if want := (Load{Rank: kvindex.Rank{WorkerID: 9}, UsedBlocks: Figure{4, true}}); err != nil || load != want {
		t.Errorf("%v %+v", err, load)
	}
}

func TestRecoveryAnswersThatAreNotRight(t *testing.T) {
	for want, value := range map[string]any{
		"recovery answer: msgp":           []any{},
		`2 members; want one: {"event":"`: pairs{"event", "error", "error", pairs{"message", "no"}},
		`the unknown kind "Tree"`:         pairs{"Tree", pairs{}},
		"the worker says: wrong":          pairs{"Error", "wrong"},
		"could not dump its blocks: busy": pairs{"TreeDumpFailed", pairs{"last_event_id", 4, "message", "busy"}},
		"Events without its events":       pairs{"Events", pairs{"last_event_id", 4}},
		"TreeDump without its events":     pairs{"TreeDump", pairs{"events", []any{}, "reset_scope", "all"}},
		"TooNew without its":              pairs{"TooNew", pairs{}},
		`a dump of scope "device"`:        pairs{"TreeDump", pairs{"events", []any{}, "last_event_id", 4, "reset_scope", "device"}},
		"TreeDump: events: KV event 1":    pairs{"TreeDump", pairs{"events", []any{1}, "last_event_id", 4, "reset_scope", "all"}},
	} {
		var a answer
		if err := a.decode(pack(value)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", value, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(pack([]any{pairs{"worker_id", 1, "storage_tier", "disk", "residency_domain", "worker", "event", pairs{"event_id", 4, "dp_rank", 1, "data", pairs{"stored", pairs{"parent_hash", 5, "blocks", []any{pairs{"block_hash", 1, "tokens_hash", 2}}}}}}}))
	f.Add(pack([]any{pairs{"worker_id", 1, "event", pairs{"event_id", 4, "data", pairs{"removed", pairs{"block_hashes", []any{1, 2}}}}}}))
	f.Add(pack(pairs{"TreeDump", pairs{"events", []any{}, "last_event_id", 4, "reset_scope", "all"}}))
	f.Add(pack(pairs{"publisher_id", 7, "sequence", 3, "published_at", 1, "topic", "kv-events", "payload", []byte{0x90}}))
	f.Add(pack(pairs{"worker_id", 1, "kv_used_blocks", 4}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var batch Batch
		if err := batch.Decode(data); err == nil {
			for _, event := range batch.Events {
				if len(event.Change.Blocks)+len(event.Change.Hashes) > len(data) {
					t.Fatal("more blocks than bytes")
				}
			}
		} else if len(batch.Events) > 0 {
			t.Fatal("events of a payload that can't be read")
		}
		var a answer
		_ = a.decode(data)
		_, _ = ParseEnvelope(data, "kv-events")
		_, _ = ParseLoad(data)
	})
}

// message16 is a message with one stored event of 16 blocks, as a prompt of 1024 tokens makes.
func message16() [][]byte {
	blocks := []any{}
	for i := range 16 {
		blocks = append(blocks, pairs{"block_hash", uint64(i)<<40 | 1<<63, "tokens_hash", uint64(i)<<41 | 1<<63, "mm_extra_info", nil})
	}
	payload := pack([]any{pairs{"worker_id", uint64(1 << 63), "storage_tier", "device", "residency_domain", "worker", "event",
		pairs{"event_id", 4, "data", pairs{"stored", pairs{"parent_hash", uint64(5), "start_position", nil, "blocks", blocks}}, "dp_rank", 1}}})
	envelope := pack(pairs{"publisher_id", 7, "sequence", 3, "published_at", 1, "topic", "kv-events", "payload", payload})
	return [][]byte{[]byte("kv-events"), binary.BigEndian.AppendUint64(nil, 7), binary.BigEndian.AppendUint64(nil, 3),
		append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(envelope))), envelope...)}
}

func TestDecodingAllocatesNothing(t *testing.T) {
	parts := message16()
	var batch Batch
	if n := testing.AllocsPerRun(100, func() {
		envelope, err := ParseFrames(parts, KVEventsTopic)
		if err == nil {
			err = batch.Decode(envelope.Payload)
		}
		if err != nil || len(batch.Events[0].Change.Blocks) != 16 {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecode(b *testing.B) {
	parts := message16()
	var batch Batch
	b.ReportAllocs()
	for b.Loop() {
		envelope, _ := ParseFrames(parts, KVEventsTopic)
		_ = batch.Decode(envelope.Payload)
	}
}
