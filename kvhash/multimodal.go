package kvhash

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// Range is a half-open range of token positions, [Start, End).
type Range struct{ Start, End int }

// Object is a multimodal object (an image, say) of a request: a 64-bit hash of its content and the token ranges that stand for
// it. Only the hash enters identities; the ranges say which blocks the object touches.
type Object struct {
	Hash    uint64
	Offsets []Range
}

// AppendBlocksWithObjects is [Hasher.AppendBlocks] for a prompt with multimodal objects: objects[i] lists those of block i. A
// block with none, or beyond the end of objects, hashes as plain text; entries beyond the last block are ignored.
func (h Hasher) AppendBlocksWithObjects(locals []uint64, tokens []uint32, objects [][]Object) []uint64 {
	for i, n := len(locals), h.Blocks(len(tokens)); i < n; i++ {
		if i < len(objects) && len(objects[i]) > 0 {
			locals = append(locals, h.BlockWithObjects(h.window(tokens, i), objects[i]))
			continue
		}
		locals = append(locals, h.Block(h.window(tokens, i)))
	}
	return locals
}

// BlockWithObjects returns the local hash of one block's window with its objects. The objects' order and ranges do not matter,
// their number does: the same object twice is not the same block as the object once.
func (h Hasher) BlockWithObjects(window []uint32, objects []Object) uint64 {
	if len(objects) == 0 {
		return h.Block(window)
	}
	var hashSpace [16]uint64
	hashes := hashSpace[:0]
	for _, object := range objects {
		hashes = append(hashes, object.Hash)
	}
	slices.Sort(hashes)

	var inputSpace [1024]byte
	input := append(inputSpace[:0], tokenBytes(window)...)
	for _, hash := range hashes {
		input = binary.LittleEndian.AppendUint64(input, hash)
	}
	return xxh3.HashSeed(input, h.blockSeed)
}

// SplitObjects distributes a request's objects over the blocks of a prompt of the given token count. An object appears in every
// block that one of its ranges touches, once per block, in request order, with the touching parts of its ranges relative to the
// block's start. The result has one entry per block, a trailing partial one included; untouched blocks have a nil entry.
func (h Hasher) SplitObjects(objects []Object, tokens int) [][]Object {
	if h.blockSize < 1 || tokens < 1 {
		return nil
	}
	blocks := make([][]Object, (tokens-1)/h.blockSize+1)
	for i := range blocks {
		start := i * h.blockSize
		end := min(start+h.blockSize, tokens)
		for _, object := range objects {
			var touching []Range
			for _, offset := range object.Offsets {
				from, to := max(offset.Start, start), min(offset.End, end)
				if from < to {
					touching = append(touching, Range{Start: from - start, End: to - start})
				}
			}
			if touching != nil {
				blocks[i] = append(blocks[i], Object{Hash: object.Hash, Offsets: touching})
			}
		}
	}
	return blocks
}

const (
	padValueBase = 1_000_000
	padValueMask = 1<<30 - 1
)

// PadValue returns the token id that stands for every placeholder token of the object with the given hash, where a prompt's
// objects are expressed as substituted tokens rather than as a suffix to the block.
func PadValue(objectHash uint64) uint32 {
	return padValueBase + uint32(objectHash&padValueMask)
}

// SubstitutePlaceholders overwrites, in place, each maximal run of the placeholder token with the pad value of the next object
// in objectHashes. Runs beyond the last object reuse its value; without objects the tokens stay as they are.
func SubstitutePlaceholders(tokens []uint32, placeholder uint32, objectHashes []uint64) {
	if len(objectHashes) == 0 {
		return
	}
	run, inRun := -1, false
	for i, token := range tokens {
		if token != placeholder {
			inRun = false
			continue
		}
		if !inRun {
			inRun = true
			run = min(run+1, len(objectHashes)-1)
		}
		tokens[i] = PadValue(objectHashes[run])
	}
}
