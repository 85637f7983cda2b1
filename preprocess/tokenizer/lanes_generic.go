//go:build !amd64

package tokenizer

// merge merges the pair of lowest rank, the leftmost of equals, and begins to look up the pairs that its token makes with its neighbours;
// settle has to be called before the next one is merged. It returns false if no pair is left.
func (l *lane) merge(m *merges) bool { return l.mergeGeneric(m) }

// settle notes what came of the pairs that are looked up.
func (l *lane) settle(m *merges) { l.settleGeneric(m) }
