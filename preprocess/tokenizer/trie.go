package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// trie finds the longest token that a text begins with. The children of a node are neighbours, and behind them come their own children:
// what one word walks through lies close together.
type trie struct {
	labels []byte // by node: the byte that leads to it
	nodes  []trieNode
	// pairs holds the node of the first two bytes, bytes that of the first one, +1; 0 for none.
	pairs []uint32
	bytes [256]uint32
	// shorter holds, by token, the longest other token that it begins with, or noToken32.
	shorter []uint32
}

type trieNode struct {
	first uint32 // its first child
	token uint32 // that ends here, or noToken32
	count uint16 // of children
}

const noToken32 = 1<<32 - 1

// sortedToken has the first eight bytes at hand, which nearly always decide.
type sortedToken struct {
	head uint64
	id   uint32
}

func sortTokens(v *vocabulary, ids []uint32) []sortedToken {
	list := make([]sortedToken, len(ids))
	for i, id := range ids {
		var head [8]byte
		copy(head[:], v.token(id))
		list[i] = sortedToken{binary.BigEndian.Uint64(head[:]), id}
	}
	slices.SortFunc(list, func(a, b sortedToken) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		return bytes.Compare(v.token(a.id), v.token(b.id))
	})
	return list
}

// newTrie makes the trie of tokens with different texts that are not empty.
func newTrie(v *vocabulary, ids []uint32) *trie {
	t := &trie{pairs: make([]uint32, 1<<16), shorter: make([]uint32, len(v.spans))}
	t.labels = make([]byte, 0, 4*len(ids))
	t.nodes = make([]trieNode, 0, 4*len(ids))
	t.family(v, sortTokens(v, ids), 0, noToken32)
	for i := range t.bytes {
		if t.bytes[i] == 0 {
			continue
		}
		n := t.nodes[t.bytes[i]-1]
		for child := n.first; child < n.first+uint32(n.count); child++ {
			t.pairs[i|int(t.labels[child])<<8] = child + 1
		}
	}
	return t
}

// family adds the nodes for the byte at depth of tokens that agree before it, and what is below them. Shorter is the longest token that
// is all of what they agree in. It returns the first node and how many there are.
func (t *trie) family(v *vocabulary, tokens []sortedToken, depth int, shorter uint32) (first uint32, count uint16) {
	first = uint32(len(t.nodes))
	for i := 0; i < len(tokens); {
		c := v.token(tokens[i].id)[depth]
		t.labels = append(t.labels, c)
		t.nodes = append(t.nodes, trieNode{token: noToken32})
		if depth == 0 {
			t.bytes[c] = uint32(len(t.nodes))
		}
		count++
		for i < len(tokens) && v.token(tokens[i].id)[depth] == c {
			i++
		}
	}
	at, node := 0, first
	for at < len(tokens) {
		end, c := at, t.labels[node]
		for end < len(tokens) && v.token(tokens[end].id)[depth] == c {
			end++
		}
		below := shorter
		if id := tokens[at].id; len(v.token(id)) == depth+1 {
			t.nodes[node].token = id
			t.shorter[id] = shorter
			below = id
			at++
		}
		if at < end {
			childFirst, childCount := t.family(v, tokens[at:end], depth+1, below)
			t.nodes[node].first, t.nodes[node].count = childFirst, childCount
		}
		at = end
		node++
	}
	return first, count
}

// longest returns the longest token that begins at i; noToken32 if there is none.
func (t *trie) longest(text string, i int) uint32 {
	at := t.bytes[text[i]]
	if at == 0 {
		return noToken32
	}
	node := &t.nodes[at-1]
	id := node.token
	if i++; i == len(text) {
		return id
	}
	if at = t.pairs[int(text[i-1])|int(text[i])<<8]; at == 0 {
		return id
	}
	for node = &t.nodes[at-1]; ; {
		if node.token != noToken32 {
			id = node.token
		}
		if i++; i == len(text) || node.count == 0 {
			return id
		}
		labels := t.labels[node.first : node.first+uint32(node.count)]
		child := -1
		if c := text[i]; len(labels) > 12 {
			child = bytes.IndexByte(labels, c)
		} else {
			for j := range labels {
				if labels[j] == c {
					child = j
					break
				}
			}
		}
		if child < 0 {
			return id
		}
		node = &t.nodes[node.first+uint32(child)]
	}
}
