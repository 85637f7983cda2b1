package kvhash_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"signalbox/kvhash"
)

func mustNew(t testing.TB, scope kvhash.Scope) kvhash.Hasher {
	t.Helper()
	hasher, err := kvhash.New(scope)
	if err != nil {
		t.Fatal(err)
	}
	return hasher
}

func drawScope(t *rapid.T) kvhash.Scope {
	return kvhash.Scope{
		BlockSize:      rapid.IntRange(1, 80).Draw(t, "block size"),
		LoRA:           rapid.SampledFrom([]string{"", "adapter-a", "b"}).Draw(t, "lora"),
		CacheNamespace: rapid.SampledFrom([]string{"", "tenant", "adapter-a"}).Draw(t, "namespace"),
		Eagle:          rapid.Bool().Draw(t, "eagle"),
	}
}

// A sequence that grows must keep the identities of its earlier blocks and get the same new ones as a sequence hashed at once;
// otherwise output blocks of a running request never match the next turn's prompt.
func TestGrowingEqualsAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scope := drawScope(t)
		hasher, err := kvhash.New(scope)
		if err != nil {
			t.Fatal(err)
		}
		tokens := rapid.SliceOfN(rapid.Uint32(), 0, 400).Draw(t, "tokens")
		wantLocals := hasher.AppendBlocks(nil, tokens)
		wantSequence := hasher.AppendSequence(nil, wantLocals)
		if len(wantLocals) != hasher.Blocks(len(tokens)) {
			t.Fatalf("%d blocks hashed, Blocks says %d", len(wantLocals), hasher.Blocks(len(tokens)))
		}

		var locals, sequence, streamLocals, streamSequence []uint64
		stream := hasher.Stream()
		for seen := 0; seen < len(tokens); {
			step := rapid.IntRange(1, len(tokens)-seen).Draw(t, "step")
			streamLocals, streamSequence = stream.Append(streamLocals, streamSequence, tokens[seen:seen+step]...)
			seen += step
			locals = hasher.AppendBlocks(locals, tokens[:seen])
			sequence = hasher.AppendSequence(sequence, locals)
		}
		if !slices.Equal(locals, wantLocals) || !slices.Equal(sequence, wantSequence) {
			t.Fatalf("grown %v %v, at once %v %v", locals, sequence, wantLocals, wantSequence)
		}
		if !slices.Equal(streamLocals, wantLocals) || !slices.Equal(streamSequence, wantSequence) {
			t.Fatalf("streamed %v %v, at once %v %v", streamLocals, streamSequence, wantLocals, wantSequence)
		}
		if n := len(wantSequence); stream.Blocks() != n || n > 0 && stream.Sequence() != wantSequence[n-1] {
			t.Fatalf("stream stands at block %d, hash %d", stream.Blocks(), stream.Sequence())
		}
	})
}

// Prompts that share k blocks share exactly k sequence hashes; beyond that nothing may match, even where blocks are equal again.
func TestSequenceHashesEqualOnlyForEqualPrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hasher, err := kvhash.New(drawScope(t))
		if err != nil {
			t.Fatal(err)
		}
		tokens := rapid.SliceOfN(rapid.Uint32(), 1, 400).Draw(t, "tokens")
		changed := slices.Clone(tokens)
		at := rapid.IntRange(0, len(tokens)-1).Draw(t, "changed position")
		changed[at]++
		left := hasher.AppendSequence(nil, hasher.AppendBlocks(nil, tokens))
		right := hasher.AppendSequence(nil, hasher.AppendBlocks(nil, changed))
		for i := range left {
			end := (i + 1) * hasher.BlockSize()
			if hasher.Eagle() {
				end++
			}
			if same := left[i] == right[i]; same != (at >= end) {
				t.Fatalf("block %d equal=%v although token %d of window end %d changed", i, same, at, end)
			}
		}
	})
}

func TestBlockCount(t *testing.T) {
	for _, c := range []struct {
		size   int
		eagle  bool
		tokens int
		want   int
	}{
		{16, false, 0, 0}, {16, false, 15, 0}, {16, false, 16, 1}, {16, false, 33, 2},
		{16, true, 0, 0}, {16, true, 1, 0}, {16, true, 16, 0}, {16, true, 17, 1}, {16, true, 32, 1}, {16, true, 33, 2},
		{1, true, 1, 0}, {1, true, 2, 1},
	} {
		hasher := mustNew(t, kvhash.Scope{BlockSize: c.size, Eagle: c.eagle})
		if got := hasher.Blocks(c.tokens); got != c.want {
			t.Errorf("block size %d, eagle %v: %d tokens have %d blocks, want %d", c.size, c.eagle, c.tokens, got, c.want)
		}
	}
	if got := (kvhash.Hasher{}).AppendBlocks(nil, []uint32{1, 2}); got != nil {
		t.Errorf("the zero Hasher made blocks: %v", got)
	}
}

func TestBadScopesAndKeysAreErrors(t *testing.T) {
	for _, size := range []int{0, -1} {
		if _, err := kvhash.New(kvhash.Scope{BlockSize: size}); err == nil {
			t.Errorf("block size %d was accepted", size)
		}
	}
	key := make([]byte, kvhash.TrackingKeySize)
	for _, c := range []struct {
		key []byte
		id  string
	}{{key[:31], "a"}, {append(key, 0), "a"}, {key, ""}, {key, " a"}, {key, "a\n"}} {
		if _, err := kvhash.NewTrackingKey(c.key, c.id); err == nil {
			t.Errorf("key of %d bytes with id %q was accepted", len(c.key), c.id)
		}
	}
	if _, err := kvhash.NewUniversal(kvhash.Scope{BlockSize: 4, Eagle: true}); err == nil {
		t.Error("universal blocks accepted Eagle mode")
	}
	universal, _ := kvhash.NewUniversal(kvhash.Scope{BlockSize: 4})
	for _, runs := range [][]kvhash.PlaceholderRun{
		{{Offset: -1, Length: 2}}, {{Offset: 0, Length: 0}}, {{Offset: 6, Length: 3}}, {{Offset: 0, Length: 3}, {Offset: 2, Length: 1}},
		{{Offset: 1 << 62, Length: 1 << 62}},
	} {
		if _, err := universal.AppendBlocks(nil, make([]uint32, 8), runs); err == nil {
			t.Errorf("runs %v were accepted", runs)
		}
	}
	for _, position := range []int{-1, kvhash.MaxLineagePosition + 1} {
		if _, err := kvhash.NewLineage(position, 1, 2); err == nil {
			t.Errorf("position %d was accepted", position)
		}
	}
}

func TestSubstitutePlaceholders(t *testing.T) {
	const image = 7
	tokens := []uint32{image, image, 1, image, 2, 2, image}
	kvhash.SubstitutePlaceholders(tokens, image, []uint64{10, 20})
	want := []uint32{1000010, 1000010, 1, 1000020, 2, 2, 1000020}
	if !slices.Equal(tokens, want) {
		t.Errorf("got %v, want %v", tokens, want)
	}
	untouched := []uint32{image, 1}
	kvhash.SubstitutePlaceholders(untouched, image, nil)
	if !slices.Equal(untouched, []uint32{image, 1}) {
		t.Errorf("tokens changed without objects: %v", untouched)
	}
}

func TestBigrams(t *testing.T) {
	got := kvhash.AppendBigrams([]uint32{9}, [][2]uint32{{1, 2}, {2, 3}, {3, 4}})
	if want := []uint32{9, 1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := kvhash.AppendBigrams(nil, nil); got != nil {
		t.Errorf("no pairs gave %v", got)
	}
}

func TestLoRAID(t *testing.T) {
	if got := kvhash.LoRAID("adapter-a"); got != 969475657 {
		t.Errorf("adapter-a has id %d, engines know it as 969475657", got)
	}
}

func TestHashingDoesNotAllocate(t *testing.T) {
	hasher := mustNew(t, kvhash.Scope{BlockSize: 16, LoRA: "adapter-a"})
	tokens := make([]uint32, 4096)
	objects := [][]kvhash.Object{0: {{Hash: 3}, {Hash: 1}}, 255: nil}
	locals, sequence := make([]uint64, 0, 256), make([]uint64, 0, 256)
	if n := testing.AllocsPerRun(10, func() {
		locals = hasher.AppendBlocks(locals[:0], tokens)
		locals = hasher.AppendBlocksWithObjects(locals[:0], tokens, objects)
		sequence = hasher.AppendSequence(sequence[:0], locals)
	}); n != 0 {
		t.Errorf("%v allocations per prompt", n)
	}
}

func ExampleHasher() {
	hasher, err := kvhash.New(kvhash.Scope{BlockSize: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	locals := hasher.AppendBlocks(nil, tokens)
	sequence := hasher.AppendSequence(nil, locals)
	fmt.Println(len(locals), "complete blocks; the first is its own prefix:", locals[0] == sequence[0])

	// The request goes on: only the blocks that became complete are hashed.
	tokens = append(tokens, 10, 11, 12)
	locals = hasher.AppendBlocks(locals, tokens)
	sequence = hasher.AppendSequence(sequence, locals)
	fmt.Println(len(sequence), "blocks")
	// Output:
	// 2 complete blocks; the first is its own prefix: true
	// 3 blocks
}

func BenchmarkAppendBlocks(b *testing.B) {
	for _, size := range []int{16, 64, 512} {
		b.Run(fmt.Sprintf("block=%d", size), func(b *testing.B) {
			hasher := mustNew(b, kvhash.Scope{BlockSize: size})
			tokens := make([]uint32, 8192)
			for i := range tokens {
				tokens[i] = uint32(i * 7919)
			}
			var locals, sequence []uint64
			b.SetBytes(int64(4 * len(tokens)))
			b.ReportAllocs()
			for b.Loop() {
				locals = hasher.AppendBlocks(locals[:0], tokens)
				sequence = hasher.AppendSequence(sequence[:0], locals)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(locals)), "ns/block")
		})
	}
}
