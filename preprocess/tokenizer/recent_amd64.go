package tokenizer

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasVAES tells of all instructions that the steps of batches use for 64 bytes at once.
var hasVAES = hasVBMI2 && hasBMI2 && cpu.X86.HasPOPCNT && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VBMI && cpu.X86.HasAVX512VAES && cpu.X86.HasAES

// hash returns what tables know the word by. It is two rounds of AES where the processor makes several of them at once.
func (k wordKey) hash() uint64 {
	if hasVAES {
		return hashVAES(k.low, k.high)
	}
	return k.product()
}

// hash returns what tables know the word by, in the same way.
func (key *longKey) hash() uint64 {
	if hasVAES {
		return hashLongVAES(&key.text)
	}
	return key.product()
}

//go:noescape
func hashVAES(low, high uint64) uint64

// find computes the keys and hashes of the pieces, writes the ids of those that are recent words of one id, and finds out which pieces are not
// among the recent words, and which are and have several ids.
func (r *recentWords) find(b *batch, s string) {
	n := b.n // of which 16 bytes can be read
	for n > 0 && int(b.bounds[n-1])+wordSize > len(s) {
		n--
	}
	switch {
	case n == 0:
	case hasVAES:
		compareVAES(b, &r.slots[0], unsafe.StringData(s), n, len(s)-wordSize)
	default:
		prepareAMD64(b, &r.slots[0], unsafe.StringData(s), n)
		compareAMD64(b, &r.slots[0], n)
		// Bits come from above, so that those of the last part are not where they belong if there are few.
		if last, few := n/64, n%64; few > 0 {
			b.missed[last] >>= 64 - few
			b.several[last] >>= 64 - few
		}
	}
	b.keepBits(n)
	r.findGeneric(b, s, n)
}

// compareVAES is find for n pieces, of which 16 bytes can be read, in a text in which that can be done up to last. It also writes what it takes for
// pieces behind these, up to a multiple of 16, and pieces in b.several may be missed.
//
//go:noescape
func compareVAES(b *batch, slots *wordKey, text *byte, n, last int)

// keepBits clears what is in b.missed and b.several of pieces that are not among the first n, or that are not recent.
func (b *batch) keepBits(n int) {
	for i := range b.missed {
		first := uint64(1)<<max(min(n-64*i, 64), 0) - 1
		b.missed[i] &= first
		b.several[i] &= first &^ b.missed[i]
	}
}

// byLength tells of which kind the missed pieces are.
func (b *batch) byLength() {
	if hasVAES {
		byLengthVBMI2(b, &upTo64)
		return
	}
	b.byLengthGeneric()
}

//go:noescape
func byLengthVBMI2(b *batch, numbers *[64]uint8)
