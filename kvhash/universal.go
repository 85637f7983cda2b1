package kvhash

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/zeebo/xxh3"
)

// PlaceholderRun is a run of placeholder tokens that stands for one multimodal object in the universal scheme.
type PlaceholderRun struct {
	Hash   uint64
	Offset int
	Length int
}

// Lineage is a 128-bit positional lineage hash: a block's position, its sequence hash and part of its parent's.
type Lineage struct{ High, Low uint64 }

// String returns the 32 hexadecimal digits of the hash.
func (l Lineage) String() string { return fmt.Sprintf("%016x%016x", l.High, l.Low) }

// Universal computes the identities that the block manager uses. Text blocks hash as in routing; a block that a placeholder run
// touches does not, so these identities never meet those of the router.
type Universal struct {
	hasher Hasher
}

// NewUniversal returns the universal scheme of a scope. Eagle mode is unknown to it and an error.
func NewUniversal(scope Scope) (Universal, error) {
	if scope.Eagle {
		return Universal{}, fmt.Errorf("kvhash: the universal block scheme has no Eagle mode")
	}
	hasher, err := New(scope)
	return Universal{hasher: hasher}, err
}

// Hasher returns the plain hasher underneath; it chains the sequence hashes.
func (u Universal) Hasher() Hasher { return u.hasher }

// Slot encodings of a block with placeholders: kind, 32-bit value, 64-bit object hash.
const (
	slotText        = 0
	slotPlaceholder = 1
	slotSize        = 13
)

// AppendBlocks extends locals to all complete blocks of tokens. Runs must not overlap and must lie in ascending order within the
// tokens.
func (u Universal) AppendBlocks(locals []uint64, tokens []uint32, runs []PlaceholderRun) ([]uint64, error) {
	end := 0
	for _, run := range runs {
		if run.Offset < end || run.Length < 1 || run.Length > len(tokens)-run.Offset {
			return locals, fmt.Errorf("kvhash: placeholder run of %d tokens at %d: runs must be ascending, disjoint and within the %d tokens",
				run.Length, run.Offset, len(tokens))
		}
		end = run.Offset + run.Length
	}
	size := u.hasher.blockSize
	var slots []byte
	for i, n := len(locals), u.hasher.Blocks(len(tokens)); i < n; i++ {
		start := i * size
		next := sort.Search(len(runs), func(k int) bool { return runs[k].Offset+runs[k].Length > start })
		if next == len(runs) || runs[next].Offset >= start+size {
			locals = append(locals, u.hasher.Block(tokens[start:start+size]))
			continue
		}
		slots = slots[:0]
		for position := start; position < start+size; position++ {
			if next < len(runs) && position >= runs[next].Offset+runs[next].Length {
				next++
			}
			if next < len(runs) && position >= runs[next].Offset {
				slots = appendSlot(slots, slotPlaceholder, uint32(position-runs[next].Offset), runs[next].Hash)
			} else {
				slots = appendSlot(slots, slotText, tokens[position], 0)
			}
		}
		locals = append(locals, xxh3.HashSeed(slots, u.hasher.blockSeed))
	}
	return locals, nil
}

func appendSlot(slots []byte, kind byte, value uint32, hash uint64) []byte {
	slots = append(slots, kind)
	slots = binary.LittleEndian.AppendUint32(slots, value)
	return binary.LittleEndian.AppendUint64(slots, hash)
}

// MaxLineagePosition is the last block position that a lineage hash can express.
const MaxLineagePosition = 1<<24 - 1

// NewLineage packs position, sequence hash and the parent's sequence hash (0 at the root) from the top: 2 bits of mode, the
// position, all of the sequence hash, and as many low bits of the parent's as remain. The mode widens the position from 8 to 16
// to 24 bits as it grows. Positions outside [0, MaxLineagePosition] are an error.
func NewLineage(position int, sequence, parent uint64) (Lineage, error) {
	if position < 0 || position > MaxLineagePosition {
		return Lineage{}, fmt.Errorf("kvhash: block position %d: a lineage hash holds 0 to %d", position, MaxLineagePosition)
	}
	mode, width := uint64(0), uint(8)
	for position >= 1<<width {
		mode++
		width += 8
	}
	parentWidth := 62 - width
	lead := mode<<width | uint64(position)
	return Lineage{
		High: lead<<parentWidth | sequence>>(width+2),
		Low:  sequence<<parentWidth | parent&(1<<parentWidth-1),
	}, nil
}
