//go:build !race

package kvindex

// writeNodes writes n nodes side by side, from the first to the last, of each the sequence hash, then the links, and then the ranks.
// Links are a child field in the low half and a parent field in the high one: those of the first node, and of the second; those of the
// others count on from there. The last one has no child.
//
// An atomic store of Go is an exchange on this processor, which waits until all stores before it have come to the cache. Readers
// only need them in order, and so plain stores do, but not such as the compiler may change.
//
//go:noescape
func writeNodes(at *node, sequences *uint64, n int, set, first, second uint64)

// emptyNodes takes ranks and children from n nodes side by side, from the last to the first.
//
//go:noescape
func emptyNodes(last *node, n int)

// putSet writes a node's ranks, and is no exchange, either.
//
//go:noescape
func putSet(n *node, set uint64)

// putChild writes a node's child field.
//
//go:noescape
func putChild(n *node, field uint32)
