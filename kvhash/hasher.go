package kvhash

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// DefaultSeed is the seed of a local block hash without adapter and namespace, and of every public sequence chain.
const DefaultSeed uint64 = 1337

// Scope is everything besides the tokens that decides a block's identity.
type Scope struct {
	// BlockSize is the number of tokens per block; at least 1.
	BlockSize int
	// LoRA is the name of the resolved adapter; "" means the base model. Numeric adapter ids never enter a hash.
	LoRA string
	// CacheNamespace keeps the cache of one tenant apart (also called cache salt); "" means shared.
	CacheNamespace string
	// Eagle widens each block's window by one token, as engines with EAGLE-style speculation do: block i covers tokens
	// [i*BlockSize, i*BlockSize+BlockSize], both ends included.
	Eagle bool
}

func (s Scope) validate() error {
	if s.BlockSize < 1 {
		return fmt.Errorf("kvhash: block size %d: a block holds at least 1 token", s.BlockSize)
	}
	return nil
}

// BlockSeed returns the public seed of local block hashes for an adapter name and a cache namespace, either of which may be "".
func BlockSeed(lora, cacheNamespace string) uint64 {
	seed := DefaultSeed
	if lora != "" {
		seed += xxh3.HashString(lora)
	}
	if cacheNamespace != "" {
		seed += xxh3.HashStringSeed(cacheNamespace, 1)
	}
	return seed
}

// Hasher computes local block hashes and sequence hashes in one scope. The zero Hasher yields no blocks; make one with [New] or
// [TrackingKey.Hasher]. It is a comparable value without references and safe for concurrent use.
type Hasher struct {
	blockSeed uint64
	chainSeed uint64
	blockSize int
	// lookahead is the number of tokens beyond its own that a block's window covers: 1 in Eagle mode, else 0.
	lookahead int
}

// New returns the hasher of the public identities of a scope. A block size below 1 is an error.
func New(scope Scope) (Hasher, error) {
	if err := scope.validate(); err != nil {
		return Hasher{}, err
	}
	return newHasher(scope, BlockSeed(scope.LoRA, scope.CacheNamespace), DefaultSeed), nil
}

func newHasher(scope Scope, blockSeed, chainSeed uint64) Hasher {
	hasher := Hasher{blockSeed: blockSeed, chainSeed: chainSeed, blockSize: scope.BlockSize}
	if scope.Eagle {
		hasher.lookahead = 1
	}
	return hasher
}

// BlockSize returns the tokens per block.
func (h Hasher) BlockSize() int { return h.blockSize }

// Eagle reports whether blocks overlap by one token.
func (h Hasher) Eagle() bool { return h.lookahead != 0 }

// Seeds returns the seed of local block hashes and that of the sequence chain.
func (h Hasher) Seeds() (block, chain uint64) { return h.blockSeed, h.chainSeed }

// Blocks returns how many complete blocks n tokens hold.
func (h Hasher) Blocks(n int) int {
	if h.blockSize < 1 || n <= h.lookahead {
		return 0
	}
	return (n - h.lookahead) / h.blockSize
}

// window returns the tokens that decide block i; the caller has checked that block i is complete.
func (h Hasher) window(tokens []uint32, i int) []uint32 {
	start := i * h.blockSize
	return tokens[start : start+h.blockSize+h.lookahead]
}

// Block returns the local hash of one block's window: BlockSize tokens, one more in Eagle mode.
func (h Hasher) Block(window []uint32) uint64 {
	return xxh3.HashSeed(tokenBytes(window), h.blockSeed)
}

// AppendBlocks extends locals, the local hashes of the leading len(locals) blocks of tokens, to all complete blocks of tokens.
// Hashes already there are taken as they are: pass locals[:0] to hash from the start, or the earlier result after tokens grew.
func (h Hasher) AppendBlocks(locals []uint64, tokens []uint32) []uint64 {
	for i, n := len(locals), h.Blocks(len(tokens)); i < n; i++ {
		locals = append(locals, h.Block(h.window(tokens, i)))
	}
	return locals
}

// AppendSequence extends sequence, the sequence hashes of the leading len(sequence) blocks, to all blocks of locals.
func (h Hasher) AppendSequence(sequence, locals []uint64) []uint64 {
	for i := len(sequence); i < len(locals); i++ {
		if i == 0 {
			sequence = append(sequence, locals[0])
			continue
		}
		sequence = append(sequence, h.Next(sequence[i-1], locals[i]))
	}
	return sequence
}

// Next returns the sequence hash of a block with the given local hash that follows a block with sequence hash parent. The first
// block of a sequence has no parent: its sequence hash is its local hash.
func (h Hasher) Next(parent, local uint64) uint64 { return chain(parent, local, h.chainSeed) }
