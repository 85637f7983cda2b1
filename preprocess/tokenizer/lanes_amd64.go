package tokenizer

// merge merges the pair of lowest rank, the leftmost of equals, and begins to look up the pairs that its token makes with its neighbours;
// settle has to be called before the next one is merged. It returns false if no pair is left.
func (l *lane) merge(m *merges) bool {
	if hasAVX2 {
		return mergeAVX2(l, m)
	}
	return l.mergeGeneric(m)
}

// settle notes what came of the pairs that are looked up.
func (l *lane) settle(m *merges) {
	if hasAVX2 {
		settleAVX2(l, m)
	} else {
		l.settleGeneric(m)
	}
}

// mergeAVX2 is mergeGeneric with instructions that compare eight numbers at once.
//
//go:noescape
func mergeAVX2(l *lane, m *merges) bool

// settleAVX2 is settleGeneric with instructions that compare eight numbers at once.
//
//go:noescape
func settleAVX2(l *lane, m *merges)
