package kvindex

import (
	"cmp"
	"slices"
)

// model is the index in the plainest way: for each rank and tier a map of names. It says what is right.
type model struct {
	options Options
	ranks   map[Rank]*modelRank
	refused int
}

type modelRank struct {
	device map[uint64]modelBlock
	lower  [Tiers]map[uint64]modelBlock
}

type modelBlock struct {
	root          bool
	parent, local uint64
	sequence      uint64
	placed        bool // the sequence hash is known; on the device always
}

func newModel(options Options) *model {
	return &model{options: options, ranks: make(map[Rank]*modelRank)}
}

func (m *model) total() (n int) {
	for _, r := range m.ranks {
		n += len(r.device)
		for _, blocks := range r.lower {
			n += len(blocks)
		}
	}
	return n
}

func (m *model) apply(e Event) error {
	r := m.ranks[e.Rank]
	if r == nil && e.Op == Stored {
		r = &modelRank{device: make(map[uint64]modelBlock)}
		for tier := range r.lower {
			r.lower[tier] = make(map[uint64]modelBlock)
		}
		m.ranks[e.Rank] = r
	}
	if r == nil {
		if e.Op == Removed && len(e.Hashes) > 0 {
			return ErrUnknownBlock
		}
		return nil
	}
	switch e.Op {
	case Stored:
		return m.store(r, e)
	case Removed:
		var err error
		for _, name := range e.Hashes {
			blocks := r.device
			if e.Tier != Device {
				blocks = r.lower[e.Tier]
			}
			if _, held := blocks[name]; !held {
				err = ErrUnknownBlock
				if m.options.FirstNameWins && e.Tier != Device {
					break
				}
			}
			delete(blocks, name)
		}
		return err
	default:
		clear(r.device)
		for _, blocks := range r.lower {
			clear(blocks)
		}
		return nil
	}
}

func (m *model) store(r *modelRank, e Event) error {
	if e.HasParent && slices.ContainsFunc(e.Blocks, func(b Block) bool { return b.Hash == e.Parent }) {
		return ErrSelfParent
	}
	blocks := r.device
	if e.Tier != Device {
		blocks = r.lower[e.Tier]
	}
	if _, held := blocks[e.Parent]; e.HasParent && e.Tier == Device && !held {
		return ErrUnknownParent
	}
	next := modelBlock{root: !e.HasParent, parent: e.Parent}
	for i, b := range e.Blocks {
		if _, held := blocks[b.Hash]; !held {
			next.local = b.Local
			if m.options.MaxBlocks > 0 && m.total() >= m.options.MaxBlocks {
				m.refused += len(e.Blocks) - i
				return ErrFull
			}
			next.place(r)
			if next.placed && e.Tier != Device && m.shutOut(e.Tier, next.sequence, b.Hash) {
				return nil
			}
			blocks[b.Hash] = next
			m.settle(r)
		}
		next = modelBlock{parent: b.Hash}
	}
	return nil
}

// place finds out the sequence hash.
func (b *modelBlock) place(r *modelRank) {
	if b.root {
		b.sequence, b.placed = b.local, true
		return
	}
	for _, blocks := range append([]map[uint64]modelBlock{r.device}, r.lower[:]...) {
		if parent, held := blocks[b.parent]; held && parent.placed {
			b.sequence, b.placed = chainHasher.Next(parent.sequence, b.local), true
			return
		}
	}
}

// shutOut reports whether a block in a lower tier is known under another name.
func (m *model) shutOut(tier Tier, sequence, name uint64) bool {
	for _, r := range m.ranks {
		for other, b := range r.lower[tier] {
			if m.options.FirstNameWins && b.placed && b.sequence == sequence && other != name {
				return true
			}
		}
	}
	return false
}

// settle places what can be placed now.
func (m *model) settle(r *modelRank) {
	for again := true; again; {
		again = false
		for tier, blocks := range r.lower {
			for name, b := range blocks {
				if b.placed {
					continue
				}
				if b.place(r); b.placed {
					again = true
					if m.shutOut(Tier(tier), b.sequence, name) {
						delete(blocks, name)
					} else {
						blocks[name] = b
					}
				}
			}
		}
	}
}

func (m *model) removeRank(rank Rank) { delete(m.ranks, rank) }

func (m *model) removeWorker(workerID uint64) {
	for rank := range m.ranks {
		if rank.WorkerID == workerID {
			delete(m.ranks, rank)
		}
	}
}

func holds(blocks map[uint64]modelBlock, sequence uint64) bool {
	for _, b := range blocks {
		if b.placed && b.sequence == sequence {
			return true
		}
	}
	return false
}

func (m *model) find(query Query) []Match {
	list := []Match{}
	sequence := chainHasher.AppendSequence(nil, query.Locals)
	for rank, r := range m.ranks {
		match := Match{Rank: rank}
		at := 0
		for at < len(sequence) && holds(r.device, sequence[at]) {
			at++
		}
		match.Blocks[Device] = uint32(at)
		for tier := HostPinned; tier < Tiers && !query.DeviceOnly; tier++ {
			for at < len(sequence) && holds(r.lower[tier], sequence[at]) {
				at++
				match.Blocks[tier]++
			}
		}
		if at > 0 {
			list = append(list, match)
		}
	}
	return sortMatches(list)
}

func sortMatches(list []Match) []Match {
	slices.SortFunc(list, func(a, b Match) int {
		return cmp.Or(cmp.Compare(a.Rank.WorkerID, b.Rank.WorkerID), cmp.Compare(a.Rank.DPRank, b.Rank.DPRank))
	})
	return list
}

func (m *model) blocks() (count [Tiers]int) {
	for _, r := range m.ranks {
		count[Device] += len(r.device)
		for tier := HostPinned; tier < Tiers; tier++ {
			count[tier] += len(r.lower[tier])
		}
	}
	return count
}

// nodes counts the different blocks on devices that are reached by somebody or stranded.
func (m *model) nodes() int {
	different := make(map[uint64]bool)
	for _, r := range m.ranks {
		for _, b := range r.device {
			different[b.sequence] = true
		}
	}
	return len(different)
}
