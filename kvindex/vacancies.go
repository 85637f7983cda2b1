package kvindex

import "math/bits"

// vacancies knows which nodes of a space are vacant: a bit for each. It finds such that lie side by side, because a prompt whose nodes
// do is looked up by leaps. It goes round and round: where it has been, nodes become vacant until it comes again.
type vacancies struct {
	words []uint64
	count int
	at    uint32 // where the next search begins
}

// extentsTried is how many places without enough room are looked at before the best of them is taken.
const extentsTried = 24

// grow adds that many vacant nodes, a multiple of 64. The first of all, number 0, is none.
func (v *vacancies) grow(nodes int) {
	from := uint32(len(v.words) * 64)
	for range nodes / 64 {
		v.words = append(v.words, ^uint64(0))
	}
	if v.count += nodes; from == 0 {
		v.take(0, 1)
		from++
	}
	v.at = from
}

// has reports whether a node is vacant.
func (v *vacancies) has(id uint32) bool {
	return int(id/64) < len(v.words) && v.words[id/64]>>(id%64)&1 != 0
}

// take makes so many vacant nodes from one on used.
func (v *vacancies) take(id uint32, nodes int) {
	v.count -= nodes
	for nodes > 0 {
		n := min(nodes, 64-int(id%64))
		v.words[id/64] &^= ^uint64(0) >> (64 - n) << (id % 64)
		id += uint32(n)
		nodes -= n
	}
}

// give makes a used node vacant.
func (v *vacancies) give(id uint32) {
	v.words[id/64] |= 1 << (id % 64)
	v.count++
}

// giveAll makes so many used nodes from one on vacant.
func (v *vacancies) giveAll(id uint32, nodes int) {
	v.count += nodes
	for nodes > 0 {
		n := min(nodes, 64-int(id%64))
		v.words[id/64] |= ^uint64(0) >> (64 - n) << (id % 64)
		id += uint32(n)
		nodes -= n
	}
}

// extent returns the first vacant node from a number on, and how many there are from there side by side, up to a limit; 0 and 0 if
// there is none.
func (v *vacancies) extent(from uint32, limit int) (first uint32, length int) {
	at := int(from / 64)
	if at >= len(v.words) {
		return 0, 0
	}
	word := v.words[at] & (^uint64(0) << (from % 64))
	for word == 0 {
		if at++; at == len(v.words) {
			return 0, 0
		}
		word = v.words[at]
	}
	shift := bits.TrailingZeros64(word)
	first = uint32(at*64 + shift)
	length = bits.TrailingZeros64(^(word >> shift))
	for full := shift+length == 64; full && length < limit; {
		if at++; at == len(v.words) {
			break
		}
		more := bits.TrailingZeros64(^v.words[at])
		length += more
		full = more == 64
	}
	return first, length
}

// pick returns vacant nodes side by side, as many as wanted if possible; 0 and 0 if there are none. They are still to be taken.
func (v *vacancies) pick(want int) (first uint32, length int) {
	from, wrapped := v.at, false
	for tried := 0; tried < extentsTried; tried++ {
		at, n := v.extent(from, want)
		if n == 0 {
			if wrapped {
				break
			}
			from, wrapped = 0, true
			continue
		}
		if n > length {
			first, length = at, n
			if n >= want {
				break
			}
		}
		from = at + uint32(n)
	}
	length = min(length, want)
	v.at = first + uint32(length)
	return first, length
}

func (v *vacancies) bytes() int { return cap(v.words) * 8 }
