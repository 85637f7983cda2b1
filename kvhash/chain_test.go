package kvhash

import (
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

// The form that is written out must be the function that everyone else computes.
func TestChainIsXXH3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent, local, seed := rapid.Uint64().Draw(t, "parent"), rapid.Uint64().Draw(t, "local"), rapid.Uint64().Draw(t, "seed")
		pair := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, parent), local)
		if got, want := chain(parent, local, seed), xxh3.HashSeed(pair, seed); got != want {
			t.Fatalf("chain of %#x and %#x with seed %#x is %#x, expected %#x", parent, local, seed, got, want)
		}
	})
}

func BenchmarkChain(b *testing.B) {
	x := uint64(1)
	for b.Loop() {
		x = chain(x, 7, DefaultSeed)
	}
}
