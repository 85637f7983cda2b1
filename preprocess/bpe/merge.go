package bpe

import (
	"container/heap"
	"fmt"
	"unicode/utf8"
)

// merge appends the ids of the piece after all merges, lowest rank first, leftmost of equals first.
func (t *Tokenizer) merge(dst []uint32, piece string) []uint32 {
	start := len(dst)
	for i := range len(piece) {
		id, ok := t.ids[piece[i:i+1]]
		if !ok {
			continue
		}
		dst = append(dst, id)
	}
	const short = 128
	if len(piece) > short {
		return t.mergeLong(dst, start)
	}
	for {
		parts := dst[start:]
		best, at := merge{rank: ^uint32(0)}, -1
		for i := 0; i+1 < len(parts); i++ {
			if m, ok := t.merges[uint64(parts[i])<<32|uint64(parts[i+1])]; ok && m.rank < best.rank {
				best, at = m, i
			}
		}
		if at < 0 {
			return dst
		}
		parts[at] = best.id
		copy(parts[at+1:], parts[at+2:])
		dst = dst[:len(dst)-1]
	}
}

// candidate is a possible merge of two neighbours.
type candidate struct {
	merge
	at          int
	left, right uint32
}

type candidates []candidate

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return c[i].rank < c[j].rank || c[i].rank == c[j].rank && c[i].at < c[j].at
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	old := *c
	last := old[len(old)-1]
	*c = old[:len(old)-1]
	return last
}

// mergeLong is merge in n log n: neighbours are linked, candidates wait in a heap and are dropped when they are out of date.
func (t *Tokenizer) mergeLong(dst []uint32, start int) []uint32 {
	parts := dst[start:]
	next, previous := make([]int, len(parts)), make([]int, len(parts))
	var queue candidates
	consider := func(i int) {
		if i < 0 || next[i] >= len(parts) {
			return
		}
		left, right := parts[i], parts[next[i]]
		if m, ok := t.merges[uint64(left)<<32|uint64(right)]; ok {
			heap.Push(&queue, candidate{m, i, left, right})
		}
	}
	for i := range parts {
		next[i], previous[i] = i+1, i-1
	}
	for i := range parts {
		consider(i)
	}
	gone := make([]bool, len(parts))
	for len(queue) > 0 {
		c := heap.Pop(&queue).(candidate)
		if gone[c.at] || next[c.at] >= len(parts) || parts[c.at] != c.left || parts[next[c.at]] != c.right {
			continue
		}
		right := next[c.at]
		gone[right] = true
		parts[c.at] = c.id
		next[c.at] = next[right]
		if next[right] < len(parts) {
			previous[next[right]] = c.at
		}
		consider(previous[c.at])
		consider(c.at)
	}
	out := dst[:start]
	for i, id := range parts {
		if !gone[i] {
			out = append(out, id)
		}
	}
	return out
}

var fromRune = func() map[rune]byte {
	table := make(map[rune]byte, 256)
	n := 0
	for b := range 256 {
		r := rune(b)
		if !(b >= 33 && b <= 126 || b >= 161 && b <= 172 || b >= 174) {
			r = rune(256 + n)
			n++
		}
		table[r] = byte(b)
	}
	return table
}()

// fromAlphabet turns a vocabulary entry, written in the byte-level alphabet, into bytes.
func fromAlphabet(name string) ([]byte, error) {
	piece := make([]byte, 0, len(name))
	for _, r := range name {
		b, ok := fromRune[r]
		if !ok {
			return nil, fmt.Errorf("vocabulary entry %q is not in the byte-level alphabet", name)
		}
		piece = append(piece, b)
	}
	return piece, nil
}

// replaceInvalid replaces what is no UTF-8 by U+FFFD, one for each longest beginning of a character.
func replaceInvalid(b []byte) string {
	out := make([]byte, 0, len(b)+8)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r != utf8.RuneError || size > 1 {
			out = append(out, b[:size]...)
			b = b[size:]
			continue
		}
		out = append(out, "\uFFFD"...)
		b = b[badLength(b):]
	}
	return string(out)
}

// badLength is the length of the ill-formed sequence that b begins with: a cut character counts as one.
func badLength(b []byte) int {
	need := 0
	low, high := byte(0x80), byte(0xBF)
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		need = 1
	case c >= 0xE0 && c <= 0xEF:
		need = 2
		if c == 0xE0 {
			low = 0xA0
		}
		if c == 0xED {
			high = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		need = 3
		if c == 0xF0 {
			low = 0x90
		}
		if c == 0xF4 {
			high = 0x8F
		}
	}
	n := 1
	for n <= need && n < len(b) && b[n] >= low && b[n] <= high {
		n++
		low, high = 0x80, 0xBF
	}
	return n
}
