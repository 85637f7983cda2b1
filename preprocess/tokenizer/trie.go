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
	// shorter holds, by token, the longest other token that it begins with, or noShorter.
	shorter []uint32
}

const noShorter = 1<<32 - 1

const (
	childBits = 22 // more nodes than that are refused
	rootNode  = 1<<childBits - 1
)

func newTrie(tokens, edges int) *trie {
	t := &trie{inner: uint32(tokens), next: uint32(tokens), pairs: make([]uint32, 1<<16), shorter: make([]uint32, tokens)}
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

// add puts a token in; shorter tokens come first, so that the node at which one ends is not there yet. It returns false when the trie
// is full.
func (t *trie) add(token []byte, id uint32) bool {
	node, shorter := uint32(rootNode), uint32(noShorter)
	for i, c := range token {
		if node < t.inner {
			shorter = node
		}
		last := i == len(token)-1
		key := edgeKey(node, c)
		at := t.start(key)
		mask := uint64(len(t.slots) - 1)
		for t.slots[at&mask] != 0 && t.slots[at&mask]>>childBits != key {
			at++
		}
		slot := &t.slots[at&mask]
		if *slot == 0 {
			child := id
			if !last {
				child = t.next
				t.next++
			}
			if t.count++; child >= rootNode || 4*t.count > 3*len(t.slots) {
				return false
			}
			*slot = key<<childBits | uint64(child)
		}
		node = uint32(*slot) & rootNode
		if i == 1 {
			t.pairs[int(token[0])|int(c)<<8] = node + 1
		}
	}
	t.shorter[id] = shorter
	return true
}

// longest returns the longest token that begins at i; noShorter if there is none.
func (t *trie) longest(text string, i int) (id uint32) {
	id = noShorter
	node, ok := t.child(rootNode, text[i])
	if !ok {
		return id
	}
	if node < t.inner {
		id = node
	}
	if i++; i == len(text) {
		return id
	}
	pair := t.pairs[int(text[i-1])|int(text[i])<<8]
	if pair == 0 {
		return id
	}
	for node = pair - 1; ; {
		if node < t.inner {
			id = node
		}
		if i++; i == len(text) {
			return id
		}
		if node, ok = t.child(node, text[i]); !ok {
			return id
		}
	}
}
