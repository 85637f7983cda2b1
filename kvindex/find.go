package kvindex

// Query is a prompt to look up.
type Query struct {
	// Locals are the local block hashes of the prompt's complete blocks, from its start.
	Locals []uint64
	// Sequence are the public sequence hashes of the same blocks, if the caller has them already: it saves computing them. It is
	// used only if it is as long as Locals.
	Sequence []uint64
	// DeviceOnly leaves the lower tiers out.
	DeviceOnly bool
}

// Match is what one rank holds of a prompt.
type Match struct {
	Rank Rank
	// Blocks counts, by tier. Device counts the leading blocks of the prompt that the rank holds without a gap. Each lower
	// tier, in order, counts the blocks with which it continues where the tiers before it ended.
	Blocks [Tiers]uint32
}

// Total is the number of leading blocks held in any tier.
func (m Match) Total() uint32 {
	return m.Blocks[Device] + m.Blocks[HostPinned] + m.Blocks[Disk] + m.Blocks[External]
}

// Matches is the answer to a query. Reuse one for many queries: [Index.Find] allocates only while it grows.
type Matches struct {
	// Ranks lists the ranks that hold at least one block of the prompt, each once, in no particular order.
	Ranks []Match

	scratch scratch
}

// Of returns what the rank holds.
func (m *Matches) Of(rank Rank) Match {
	for _, match := range m.Ranks {
		if match.Rank == rank {
			return match
		}
	}
	return Match{Rank: rank}
}
