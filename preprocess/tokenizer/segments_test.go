package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// conversations are made of few segments, so that some come again.
func conversation(special []string) *rapid.Generator[string] {
	segments := []string{"", "\n", "user\nWhat is the capital of France, and how many people live there today? Tell me in one sentence.",
		"assistant\nParis. " + strings.Repeat("Two million people. ", 8), strings.Repeat(" ", 90), strings.Repeat("中文 text, ", 12),
		" " + strings.Repeat("word ", 30), "short"}
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(0, 8).Draw(t, "turns") {
			b.WriteString(rapid.SampledFrom(segments).Draw(t, "segment"))
			b.WriteString(rapid.SampledFrom(special).Draw(t, "special"))
			b.WriteString(tricky.Draw(t, "noise"))
		}
		return b.String()
	})
}

func TestRemembersOnlyWhatEncodingGives(t *testing.T) {
	for _, name := range []string{"qwen3", "llama2", "deepseek_v3", "unigram_synth", "gemma3"} {
		t.Run(name, func(t *testing.T) {
			plain := load(t, name)
			remembering := *plain
			remembering.Remember(segmentShards * 3000) // few enough bytes that segments are dropped
			special := []string{"", "<|im_end|>", "<think>", "</s>", "<mask>", "<start_of_turn>", "<｜end▁of▁sentence｜>"}
			rapid.Check(t, func(t *rapid.T) {
				s := conversation(special).Draw(t, "text")
				want := plain.Encode(nil, s, true)
				for range 2 { // the second time with all that has room
					if got := remembering.Encode(nil, s, true); !slices.Equal(got, want) {
						t.Fatalf("%q: %v, want %v", s, got, want)
					}
				}
				for i := range remembering.segments.shards {
					if held := remembering.segments.shards[i].bytes; held > remembering.segments.limit {
						t.Fatalf("shard %d holds %d bytes of %d", i, held, remembering.segments.limit)
					}
				}
			})
			if stats := remembering.CacheStats(); stats.Hits == 0 || stats.Misses == 0 || stats.CachedTokens == 0 {
				t.Errorf("%+v: nothing was tested", stats)
			}
		})
	}
}

func TestForgetsTheOldest(t *testing.T) {
	c := newSegmentCache(segmentShards * 1000)
	text := func(i int) string { return strings.Repeat(string(rune('a'+i)), 100) }
	c.put(0, text(0), false, []uint32{1})
	c.put(16, text(1), false, []uint32{2})
	c.put(32, text(2), false, []uint32{3})
	if c.get(0, text(0), false) == nil {
		t.Fatal("three of 264 bytes have room in 1000")
	}
	c.put(48, text(3), false, []uint32{4})
	if c.get(16, text(1), false) != nil {
		t.Error("the one not asked for the longest is still there")
	}
	for _, i := range []uint64{0, 32, 48} {
		if c.get(i, text(int(i/16)), false) == nil {
			t.Errorf("segment %d is gone", i/16)
		}
	}
	if c.get(0, text(0), true) != nil || c.get(0, text(1), false) != nil {
		t.Error("another text with the same hash is taken for it")
	}
}

func TestManyEncodeAtOnce(t *testing.T) {
	texts := texts(t)
	for _, name := range []string{"qwen3", "gemma3"} {
		tok := *load(t, name)
		tok.Remember(1 << 20)
		want := make([][]uint32, len(texts))
		for i, s := range texts {
			want[i] = load(t, name).Encode(nil, s, false)
		}
		var wait sync.WaitGroup
		for worker := range 4 {
			wait.Go(func() {
				for round := range 3 {
					for i := range texts {
						i = (i*(2*worker+1) + round) % len(texts)
						if got := tok.Encode(nil, texts[i], false); !slices.Equal(got, want[i]) {
							t.Errorf("%s text %d: other ids", name, i)
						}
					}
				}
			})
		}
		wait.Wait()
	}
}
