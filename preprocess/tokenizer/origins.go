package tokenizer

// origins tells how merging comes to each token when the token's own text is encoded: from which two tokens, and when. A token that has
// an origin, or is a symbol that merging begins with, is what its own text is encoded to, so that a piece which equals it needs no
// merging.
type origins struct {
	// born is, by id, the rank of the token's last merge plus one; 0 for symbols and for tokens that merging never comes to.
	born        []uint32
	left, right []uint32
	known       []bool
}

// newOrigins goes through all merges in their order. The first pair that really comes to be when its text is encoded is the token's
// origin, since encoding has only one way. A merge that comes before those that make its parts is passed over: there are few, and
// what has no origin is merged.
func newOrigins(m *merges, pairs []pair, tokens int, isSymbol func(id uint32) bool) *origins {
	o := &origins{born: make([]uint32, tokens), left: make([]uint32, tokens), right: make([]uint32, tokens), known: make([]bool, tokens)}
	for id := range uint32(tokens) {
		o.known[id] = isSymbol(id)
	}
	for rank, p := range pairs {
		into := m.into[rank]
		if o.known[into] || !o.known[p.left] || !o.known[p.right] || !o.meet(m, p.left, p.right, uint32(rank)) {
			continue
		}
		o.known[into] = true
		o.born[into], o.left[into], o.right[into] = uint32(rank)+1, p.left, p.right
	}
	return o
}

type pair struct{ left, right uint32 }

// meet tells whether left and right come to be side by side when their joined text is encoded with the merges below limit: whether
// no merge reaches across the place between them before. It goes back in time, undoing of the two tokens at that place the one that
// was made later. Of equal merges the one on the left comes first.
func (o *origins) meet(m *merges, left, right, limit uint32) bool {
	for {
		if m.rank(left, right) < limit {
			return false
		}
		l, r := o.born[left], o.born[right]
		switch {
		case l == 0 && r == 0:
			return true
		case l > r:
			limit, left = l-1, o.right[left]
		default:
			limit, right = r, o.left[right]
		}
	}
}

// isWhole tells whether a piece that equals the token is encoded to it.
func (b *bpe) isWhole(id uint32) bool { return b.ignoreMerges || b.origins.known[id] }
