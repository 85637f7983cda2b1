package sharedcache

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// AppendPages appends the names of a prompt's complete pages. With eagle a page is named by pairs: each of its tokens and the next one.
// size is the tokens of a page, at least 1.
func AppendPages(list []Page, tokens []uint32, size int, eagle bool) []Page {
	units, width := len(tokens), 4
	if eagle {
		units, width = max(0, units-1), 8
	}
	count := units / size
	list = slices.Grow(list, count)
	text := make([]byte, 0, sha256.Size+size*width)
	for i := range count {
		if i > 0 {
			text = append(text[:0], list[len(list)-1][:]...)
		}
		for at := i * size; at < (i+1)*size; at++ {
			text = binary.LittleEndian.AppendUint32(text, tokens[at])
			if eagle {
				text = binary.LittleEndian.AppendUint32(text, tokens[at+1])
			}
		}
		list = append(list, sha256.Sum256(text))
	}
	return list
}
