package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"signalbox/kvhash"
	"signalbox/kvindex"
)

// pack writes a value of lists, maps (in order), strings, numbers and bytes.
func pack(value any) []byte { return appendValue(nil, value) }

type list []any

type pairs []any

func appendValue(dst []byte, value any) []byte {
	switch value := value.(type) {
	case list:
		dst = msgp.AppendArrayHeader(dst, uint32(len(value)))
		for _, v := range value {
			dst = appendValue(dst, v)
		}
	case pairs:
		dst = msgp.AppendMapHeader(dst, uint32(len(value)/2))
		for _, v := range value {
			dst = appendValue(dst, v)
		}
	case string:
		dst = msgp.AppendString(dst, value)
	case int:
		dst = msgp.AppendInt64(dst, int64(value))
	case float64:
		dst = msgp.AppendFloat64(dst, value)
	case []byte:
		dst = msgp.AppendBytes(dst, value)
	case nil:
		dst = msgp.AppendNil(dst)
	}
	return dst
}

func newNormalizer(t testing.TB) *Normalizer {
	t.Helper()
	n, err := New(Options{WorkerID: 7, BlockSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// run feeds one batch of events and returns what they make.
func run(t *testing.T, n *Normalizer, events ...any) []kvindex.Event {
	t.Helper()
	made, complete, err := n.Batch(pack(list{1.5, list(events), 0}))
	if err != nil || !complete {
		t.Fatalf("complete: %v, %v", complete, err)
	}
	return append([]kvindex.Event(nil), made...)
}

// local is the local hash of two tokens.
func local(t *testing.T, lora, namespace string, tokens ...uint32) uint64 {
	t.Helper()
	hasher, err := kvhash.New(kvhash.Scope{BlockSize: 2, LoRA: lora, CacheNamespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return hasher.Block(tokens)
}

func store(hash int, more ...any) pairs {
	return append(pairs{"type", "BlockStored", "block_hashes", list{hash}, "token_ids", list{1, 2}, "block_size", 2}, more...)
}

func remove(hash int, more ...any) pairs {
	return append(pairs{"type", "BlockRemoved", "block_hashes", list{hash}}, more...)
}

// hashes lists the blocks that events store (+) and remove (-).
func hashes(events []kvindex.Event) string {
	text := []string{}
	for _, event := range events {
		for _, block := range event.Blocks {
			text = append(text, "+"+string(rune('a'-1+block.Hash)))
		}
		for _, hash := range event.Hashes {
			text = append(text, "-"+string(rune('a'-1+hash)))
		}
		if event.Op == kvindex.Cleared {
			text = append(text, "cleared")
		}
	}
	return strings.Join(text, " ")
}

func TestOnlyGroupsThatHoldWholePrefixesCount(t *testing.T) {
	n := newNormalizer(t)
	got := hashes(run(t, n,
		store(1), store(2, "group_idx", 0), store(3, "group_idx", 5), // no group, the first group, one that is not known
		store(4, "group_idx", 1, "kv_cache_spec_kind", "full_attention"), store(5, "group_idx", 2, "kv_cache_spec_kind", "sliding_window"),
		store(6, "group_idx", 3, "kv_cache_spec_kind", "mla_attention"), store(7, "kv_cache_spec_kind", "mamba"),
		store(8, "group_idx", 2, "medium", "DISK"), // groups don't matter off the device
		remove(4, "group_idx", 1), remove(5, "group_idx", 2), remove(9, "group_idx", 4), remove(10, "group_idx", 0)))
	if want := "+a +b +d +f +h -d -j"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if c := n.Counters(); c.OtherGroup != 5 || c.Accepted != 7 {
		t.Errorf("%+v", c)
	}
	// What one rank learned says nothing about another.
	made, _, err := n.Batch(pack(list{1.5, list{store(1, "group_idx", 1)}, 1}))
	if err != nil || len(made) != 0 {
		t.Errorf("%v %v", made, err)
	}
}

func TestABlockStoredTwiceIsRemovedWithItsLastRemoval(t *testing.T) {
	n := newNormalizer(t)
	got := hashes(run(t, n, store(1), store(1), store(1, "medium", "CPU"), remove(1), remove(1, "medium", "CPU"), remove(1), remove(1)))
	if want := "+a +a +a -a -a -a"; got != want { // the first removal of two stores is kept back, one of an unknown block goes on
		t.Errorf("%s, want %s", got, want)
	}
	if c := n.Counters(); c.Kept != 1 {
		t.Errorf("%+v", c)
	}
	if len(n.ranks[0].blocks) != 0 {
		t.Errorf("%v is remembered", n.ranks[0].blocks)
	}
	run(t, n, store(1), store(1), list{"AllBlocksCleared"})
	if got := hashes(run(t, n, store(1), remove(1))); got != "+a -a" {
		t.Errorf("after a clear: %s", got)
	}
}

func TestCacheNamespaces(t *testing.T) {
	child := func(hash, parent int, more ...any) pairs {
		return store(hash, append(pairs{"parent_block_hash", parent}, more...)...)
	}
	cases := map[string]struct {
		first any
		lora  string
	}{
		"map":                     {store(1, "cache_salt", "s"), ""},
		"sglang, later":           {store(1, "metadata", pairs{"cache_salt", "s", "other", 1}), ""},
		"sglang, tuple":           {list{"BlockStored", list{1}, nil, list{1, 2}, 2, nil, "GPU", pairs{"cache_salt", "s"}}, ""},
		"extra keys":              {store(1, "extra_keys", list{list{"dynamo-cache-salt:s", 4}}), ""},
		"extra keys with adapter": {store(1, "lora_name", "l", "extra_keys", list{list{"l", "dynamo-cache-salt:s"}}), "l"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNormalizer(t)
			second := child(2, 1)
			if c.lora != "" {
				second = append(second, "lora_name", c.lora)
			}
			events := run(t, n, c.first, second, child(3, 99))
			if len(events) != 3 {
				t.Fatalf("%d events", len(events))
			}
			want := []uint64{local(t, c.lora, "s", 1, 2), local(t, c.lora, "s", 1, 2), local(t, "", "", 1, 2)}
			for i := range want {
				if events[i].Blocks[0].Local != want[i] {
					t.Errorf("event %d has another hash", i)
				}
			}
			// The same block in another namespace: what its children belong to cannot be told.
			if got := hashes(run(t, n, store(1, "cache_salt", "z"), child(4, 1), child(5, 1, "cache_salt", "z"))); got != "+a +e" {
				t.Errorf("ambiguous: %s", got)
			}
		})
	}
}

func TestOneEventThatCannotBeReadLosesOnlyItself(t *testing.T) {
	for name, bad := range map[string]any{
		"a number": 5, "no members": list{}, "no name": list{5}, "hashes of text": pairs{"type", "BlockStored", "block_hashes", list{"x"}},
		"a short digest": store(1, "parent_block_hash", []byte{1}), "half a pair": pairs{"type", "BlockStored", "token_ids", list{list{1, 2}, 3}},
		"a pair among tokens": pairs{"type", "BlockStored", "token_ids", list{3, list{1, 2}}}, "a triple": pairs{"type", "BlockStored", "token_ids", list{list{1, 2, 3}}},
		"a medium of numbers": store(1, "medium", 4),
	} {
		n := newNormalizer(t)
		events, complete, err := n.Batch(pack(list{1.5, list{store(2), bad, remove(3), list{"LaterType", 1}}, nil}))
		if err != nil || complete || hashes(events) != "+b -c" {
			t.Errorf("%s: %s, complete: %v, %v", name, hashes(events), complete, err)
		}
		if c := n.Counters(); c.Unreadable != 1 || c.OtherType != 1 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	for want, batch := range map[string]any{"neither a list nor a map": 5, "a list of 1": list{1}, "engine batch: msgp": list{1, 2, 3}, "rank -1": list{1, list{}, -1}} {
		if _, _, err := newNormalizer(t).Batch(pack(batch)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", batch, err)
		}
	}
}

func TestWhatIsLeftOut(t *testing.T) {
	n := newNormalizer(t)
	got := hashes(run(t, n, store(1, "ownership", "kvcr"), store(2, "locality", "REMOTE"), store(3, "locality", "LOCAL"), store(4, "medium", "FS"), remove(5, "medium", "OBJ"),
		store(6, "parent_block_hash", 6), pairs{"type", "BlockStored", "block_hashes", list{7, 7}, "token_ids", list{1, 2, 3, 4}, "block_size", 2}))
	if got != "+c" {
		t.Error(got)
	}
	if c := n.Counters(); c.Elsewhere != 4 || c.Invalid != 2 {
		t.Errorf("%+v", c)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a block of no tokens")
	}
}

func TestABatchIsReadTheSameInAllShapes(t *testing.T) {
	want, _, err := newNormalizer(t).Batch(pack(list{1.5, list{store(1), remove(2, "medium", "CPU")}, 3}))
	if err != nil {
		t.Fatal(err)
	}
	for _, shape := range []any{
		pairs{"data_parallel_rank", 3, "ts", 1.5, "events", list{store(1), remove(2, "medium", "CPU")}, "later", nil},
		list{1, list{list{"BlockStored", list{1}, nil, list{1, 2}, 2}, list{"BlockRemoved", list{2}, "CPU", nil, nil, nil, nil, nil, "later"}}, 3, "later"},
	} {
		got, complete, err := newNormalizer(t).Batch(pack(shape))
		if diff := cmp.Diff(want, got); err != nil || !complete || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
}

func FuzzBatch(f *testing.F) {
	f.Add(pack(list{1.5, list{store(1, "extra_keys", list{list{"x", list{"y", 1}}}, "block_mm_infos", list{nil, pairs{"mm_objects", list{pairs{"mm_hash", 1}}}}), remove(2, "group_idx", 1)}, 3}))
	f.Add(pack(pairs{"events", list{list{"BlockStored", list{1, []byte("12345678")}, 5, list{list{1, 2}, list{2, 3}}, 2, nil, "GPU", "l"}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := newNormalizer(t)
		for range 2 {
			events, _, err := n.Batch(data)
			total := 0
			for _, event := range events {
				total += len(event.Blocks) + len(event.Hashes)
			}
			if err != nil && len(events) > 0 || total > len(data) {
				t.Fatalf("%d events, %d blocks, %v", len(events), total, err)
			}
		}
	})
}
