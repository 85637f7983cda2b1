//go:build !amd64 || race

package kvindex

func writeNodes(at *node, sequences *uint64, n int, set, first, second uint64) {
	writeNodesGeneric(at, sequences, n, set, first, second)
}

func emptyNodes(last *node, n int) { emptyNodesGeneric(last, n) }

func putSet(n *node, set uint64) { n.set.Store(set) }

func putChild(n *node, field uint32) { n.child.Store(field) }
