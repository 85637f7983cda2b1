package kvindex

import (
	"math/bits"
	"slices"
)

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

	sequence []uint64 // the query's
	ids      []int    // numbers in their shard of the ranks listed
	held     []uint64 // ranks that hold all so far, as bits
	other    []uint64
	places   map[Rank]int // in Ranks
	searches []search     // by shard
	gaps     []gap
	rounds   int // that the searches took
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

// MaxDevice raises what ranks hold on their devices to what another answer to the same query says, if that is more. Lower tiers stay
// as they are.
func (m *Matches) MaxDevice(side *Matches) {
	if len(side.Ranks) == 0 {
		return
	}
	if m.places == nil {
		m.places = make(map[Rank]int)
	}
	clear(m.places)
	for i := range m.Ranks {
		m.places[m.Ranks[i].Rank] = i
	}
	for _, other := range side.Ranks {
		at, ok := m.places[other.Rank]
		if !ok {
			at = len(m.Ranks)
			m.Ranks = append(m.Ranks, Match{Rank: other.Rank})
		}
		m.Ranks[at].Blocks[Device] = max(m.Ranks[at].Blocks[Device], other.Blocks[Device])
	}
	m.Ranks = slices.DeleteFunc(m.Ranks, func(match Match) bool { return match.Total() == 0 })
}

// prepare empties the matches and returns the query's sequence hashes.
func (m *Matches) prepare(query *Query) []uint64 {
	m.Ranks, m.ids = m.Ranks[:0], m.ids[:0]
	if len(query.Sequence) == len(query.Locals) {
		return query.Sequence
	}
	m.sequence = chainHasher.AppendSequence(m.sequence[:0], query.Locals)
	return m.sequence
}

// find answers a query from all shards.
func (m *Matches) find(shards []*shard, sequence []uint64, deviceOnly bool) {
	for len(m.searches) < len(shards) {
		m.searches = append(m.searches, search{})
	}
	searches := m.searches[:len(shards)]
	for i, s := range shards {
		searches[i].start(s, sequence)
	}
	m.run(searches)
	for i, s := range shards {
		first := len(m.Ranks)
		for !s.answer(m, &searches[i], deviceOnly) {
			m.Ranks, m.ids = m.Ranks[:first], m.ids[:first]
			searches[i].start(s, sequence)
			m.run(searches[i : i+1])
		}
	}
	for i := range searches {
		searches[i].end()
	}
}

// answer lists what the shard's ranks hold, and reports whether that is good.
func (s *shard) answer(m *Matches, search *search, deviceOnly bool) bool {
	first := len(m.Ranks)
	r := search.readers
	if search.few {
		search.list(m)
	} else {
		search.broad(m)
	}
	current := search.view.current(r.device)
	for tier := HostPinned; tier < Tiers && !deviceOnly; tier++ {
		if r.lower[tier] != nil {
			search.view = r.lower[tier].view.Load()
			search.lower(m, first, tier)
			current = current && search.view.current(r.lower[tier])
		}
	}
	return current && s.readers.Load() == r
}

// current reports whether the view is good for what was read with it: numbers of wide sets mean something else, and a table no
// longer has all that is there, once they have been replaced. The same goes for numbers of ranks. It is rare.
func (v *view) current(s *space) bool {
	now := s.view.Load()
	return now == v || now.table == v.table && now.wides == v.wides
}

// list adds the ranks that have been found, of few. One that is not known came just now, and the look-up will be repeated.
func (s *search) list(m *Matches) {
	count := 0
	for _, end := range s.ends {
		count += bits.OnesCount64(uint64(end.ranks))
	}
	m.Ranks, m.ids = slices.Grow(m.Ranks, count), slices.Grow(m.ids, count)
	at := len(m.Ranks)
	ranks, ids, names := m.Ranks[:at+count], m.ids[:at+count], s.readers.names
	for _, end := range s.ends {
		for rest := uint64(end.ranks); rest != 0 && at < len(ranks) && at < len(ids); rest &= rest - 1 {
			if id := bits.TrailingZeros64(rest); id < len(names) {
				ids[at] = id
				match := &ranks[at] // a copy would wait for its parts
				match.Rank.WorkerID, match.Rank.DPRank = names[id].WorkerID, names[id].DPRank
				match.Blocks[Device], match.Blocks[HostPinned], match.Blocks[Disk], match.Blocks[External] = uint32(end.blocks), 0, 0, 0
				at++
			}
		}
	}
	m.Ranks, m.ids = ranks[:at], ids[:at]
}

// add lists a rank.
func (s *search) add(m *Matches, id int, tier Tier, blocks int) {
	names := s.readers.names
	if id >= len(names) {
		return // it came just now, and the look-up will be repeated
	}
	m.Ranks, m.ids = append(m.Ranks, Match{Rank: names[id]}), append(m.ids, id)
	m.Ranks[len(m.Ranks)-1].Blocks[tier] = uint32(blocks)
}
