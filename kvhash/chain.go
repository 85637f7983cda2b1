package kvhash

import "math/bits"

// Parts of XXH3's secret that its form for 9 to 16 bytes uses, and the multiplier of its final mixing.
const (
	chainFlipLow   = 0x1f67b3b7a4a44072 ^ 0x78e5c0cc4ee679cb
	chainFlipHigh  = 0x2172ffcc7dd05a82 ^ 0x8e2443f7744608b8
	avalanchePrime = 0x165667919e3779f9
)

// chain is the seeded XXH3 of two numbers in little-endian bytes. It is written out because it runs once for each block of each prompt
// and event: the general function spends more time on finding out how much it hashes.
func chain(parent, local, seed uint64) uint64 {
	low, high := parent^(chainFlipLow+seed), local^(chainFlipHigh-seed)
	productHigh, productLow := bits.Mul64(low, high)
	x := 16 + bits.ReverseBytes64(low) + high + (productHigh ^ productLow)
	x ^= x >> 37
	x *= avalanchePrime
	return x ^ x>>32
}
