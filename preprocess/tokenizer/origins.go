package tokenizer

// origins tells how merging comes to each token when the token's own text is encoded: from which two tokens, and when. A token that has
// an origin, or is a symbol that merging begins with, is what its own text is encoded to, so that a piece which equals it needs no
// merging.
type origins struct {
	of    []origin // by id
	known []bool   // by id
}

// origin is the last merge of a token.
type origin struct {
	born        uint32 // its rank plus one; 0 for symbols and for tokens that merging never comes to
	left, right uint32
}

// newOrigins goes through all merges in their order. The first pair that really comes to be when its text is encoded is the token's
// origin, since encoding has only one way. A merge that comes before those that make its parts is passed over: there are few, and
// what has no origin is merged.
func newOrigins(m *merges, pairs []pair, tokens int, isSymbol func(id uint32) bool) *origins {
	o := &origins{of: make([]origin, tokens), known: make([]bool, tokens)}
	for id := range uint32(tokens) {
		o.known[id] = isSymbol(id)
	}
	for rank, p := range pairs {
		into := m.into[rank]
		if o.known[into] || !o.known[p.left] || !o.known[p.right] || !o.meet(m, p.left, p.right, uint32(rank)) {
			continue
		}
		o.known[into] = true
		o.of[into] = origin{uint32(rank) + 1, p.left, p.right}
	}
	return o
}

type pair struct{ left, right uint32 }

// meet tells whether left and right come to be side by side when their joined text is encoded with the merges below limit: whether
// no merge reaches across the place between them before. It goes back in time, undoing of the two tokens at that place the one that
// was made later. Of equal merges the one on the left comes first.
func (o *origins) meet(m *merges, left, right, limit uint32) bool {
	l, r := o.of[left], o.of[right]
	for {
		if rank, _ := m.rank(left, right); rank < limit {
			return false
		}
		switch {
		case l.born == 0 && r.born == 0:
			return true
		case l.born > r.born:
			limit, left = l.born-1, l.right
			l = o.of[left]
		default:
			limit, right = r.born, r.left
			r = o.of[right]
		}
	}
}

// isWhole tells whether a piece that equals the token is encoded to it.
func (b *bpe) isWhole(id uint32) bool { return b.ignoreMerges || b.origins.known[id] }
