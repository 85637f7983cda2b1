package tokenizer

import (
	"cmp"
	"slices"
)

// Merging a word of bytes need not begin with bytes: many pairs of them are merged whatever comes before and behind, since all that might
// take one of the two has a higher rank. Whether that is so depends on no more than the byte before the pair and the one behind it. With those
// merged at once, about half of the steps of merging are left.

// bytePair is what is known of two bytes in a row.
type bytePair struct {
	rank, id uint32 // of what they become; the rank has notAtOnce
	// before is the lowest rank of merges of a token that ends with the first byte with the second one alone, behind that of merges of
	// the first one alone with a token that begins with the second. So what takes the second byte from a pair that it begins has before
	// or a higher rank, and what takes the first byte from a pair that it ends has behind or a higher one.
	before, behind uint32
}

// notAtOnce is above the rank of a pair whose token is part of a merge that comes before, which no merges have that were learnt one by one.
const notAtOnce = 1 << 31

// nothing is what is known of most pairs.
var nothing = bytePair{none, 0, none, none}

func (p *bytePair) lowest() uint32 { return min(p.rank, p.before, p.behind) }

// joinBytes finds out what is to be known of pairs of bytes, given the id+1 of each that merging may begin with, and the bytes with which a
// token begins and ends; negative if these are none of them.
func (m *merges) joinBytes(bytes *[256]uint32, ends func(id uint32) (first, last int)) {
	all := make([]bytePair, 1<<16) // the first byte is the lower one
	// By token: which two bytes, or which one, become it.
	pairs, singles := make([]*bytePair, m.nobody+1), make([]bool, m.nobody+1)
	for i := range all {
		p := &all[i]
		*p = nothing
		left, right := bytes[i&0xFF], bytes[i>>8]
		if left == 0 || right == 0 {
			continue
		}
		if p.rank, p.id = m.rank(left-1, right-1); p.rank != none {
			pairs[p.id] = p
		}
	}
	for _, id := range bytes {
		if id > 0 {
			singles[id-1] = true
		}
	}
	for rank, p := range m.pairs {
		rank := uint32(rank)
		for _, part := range []uint32{p.left, p.right} {
			if made := pairs[part]; made != nil && rank <= made.rank {
				made.rank |= notAtOnce
			}
		}
		if !singles[p.left] && !singles[p.right] {
			continue
		}
		_, left := ends(p.left)
		right, _ := ends(p.right)
		if left < 0 || right < 0 {
			continue
		}
		meeting := &all[left|right<<8]
		if singles[p.right] {
			meeting.before = min(meeting.before, rank)
		}
		if singles[p.left] {
			meeting.behind = min(meeting.behind, rank)
		}
	}

	told := make([]uint16, 0, 1<<16) // the pairs of which there is something to be known
	for i, p := range all {
		if p != nothing {
			told = append(told, uint16(i))
		}
	}
	// What comes up often has low ranks, and is to lie together.
	slices.SortFunc(told, func(i, j uint16) int { return cmp.Compare(all[i].lowest(), all[j].lowest()) })
	m.bytes, m.bytePairs = make([]uint16, 1<<16), make([]bytePair, 0, len(told)+1)
	if len(told) < len(all) {
		m.bytePairs = append(m.bytePairs, nothing) // for all others
	}
	for _, i := range told {
		m.bytes[i] = uint16(len(m.bytePairs))
		m.bytePairs = append(m.bytePairs, all[i])
	}
}
