package tokenizer

import "math/bits"

// trie finds the longest token that a text begins with. It is one hash table of edges. Nodes at which a token ends are numbered by the
// token's id, the others from inner on.
type trie struct {
	slots []uint64 // node<<30 | byte<<22 | child, +1 so that 0 is free
	shift uint
	inner uint32
	next  uint32
	count int
	// pairs holds the node of the first two bytes, +1; 0 for none.
	pairs []uint32
}

const (
	childBits = 22 // more nodes than that are refused
	rootNode  = 1<<childBits - 1
)

func newTrie(tokens, edges int) *trie {
	t := &trie{inner: uint32(tokens), next: uint32(tokens), pairs: make([]uint32, 1<<16)}
	size := tableSize(edges)
	t.slots = make([]uint64, size)
	t.shift = uint(64 - bits.Len(uint(size-1)))
	return t
}

func edgeKey(node uint32, c byte) uint64 { return uint64(node)<<8 | uint64(c) }

func (t *trie) start(key uint64) uint64 { return key * 0x9E3779B97F4A7C15 >> t.shift }

// child returns the node below; false if there is none.
func (t *trie) child(node uint32, c byte) (uint32, bool) {
	key := edgeKey(node, c)
	mask := uint64(len(t.slots) - 1)
	for i := t.start(key); ; i++ {
		slot := t.slots[i&mask]
		if slot>>childBits == key && slot != 0 {
			return uint32(slot) & rootNode, true
		}
		if slot == 0 {
			return 0, false
		}
	}
}

// add puts a token in. It returns false when the trie is full.
func (t *trie) add(token []byte, id uint32) bool {
	node := uint32(rootNode)
	for i, c := range token {
		last := i == len(token)-1
		key := edgeKey(node, c)
		at := t.start(key)
		mask := uint64(len(t.slots) - 1)
		for t.slots[at&mask] != 0 && t.slots[at&mask]>>childBits != key {
			at++
		}
		slot := &t.slots[at&mask]
		switch {
		case *slot == 0:
			child := id
			if !last {
				child = t.next
				t.next++
			}
			if t.count++; child >= rootNode || 4*t.count > 3*len(t.slots) {
				return false
			}
			*slot = key<<childBits | uint64(child)
		case last:
			// Tokens come in order of length, so that nothing but another id of the same text can be here.
		}
		node = uint32(*slot) & rootNode
		if i == 1 {
			t.pairs[int(token[0])|int(c)<<8] = node + 1
		}
	}
	return true
}

// longest returns the longest token of at most limit bytes that begins at i, and its length; length 0 if there is none.
func (t *trie) longest(text string, i, limit int) (id uint32, size int) {
	end := min(len(text), i+limit)
	if i >= end {
		return 0, 0
	}
	node, ok := t.child(rootNode, text[i])
	if !ok {
		return 0, 0
	}
	if node < t.inner {
		id, size = node, 1
	}
	if i+1 >= end {
		return id, size
	}
	pair := t.pairs[int(text[i])|int(text[i+1])<<8]
	if pair == 0 {
		return id, size
	}
	node = pair - 1
	for n := 2; ; n++ {
		if node < t.inner {
			id, size = node, n
		}
		if i+n >= end {
			return id, size
		}
		if node, ok = t.child(node, text[i+n]); !ok {
			return id, size
		}
	}
}
