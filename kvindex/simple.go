package kvindex

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"signalbox/kvhash"
)

type scratch struct{}

var chain = func() kvhash.Hasher {
	hasher, _ := kvhash.New(kvhash.Scope{BlockSize: 1})
	return hasher
}()

type simple struct {
	mutex   sync.Mutex
	options Options
	seen    [Tiers]bool
	known   map[Rank]*simpleRank
	owners  [Tiers]map[simpleEdge]*simpleOwners
	refused uint64
}

type simpleEdge struct {
	root          bool
	parent, local uint64
}

type simpleOwners struct {
	name  uint64
	ranks map[Rank]bool
}

type simpleBlock struct {
	edge     simpleEdge
	sequence uint64
	order    int
}

type simpleRank struct {
	tiers [Tiers]map[uint64]simpleBlock
	order int
}

func newSimple(options Options) *simple {
	s := &simple{options: options, known: make(map[Rank]*simpleRank)}
	for tier := range s.owners {
		s.owners[tier] = make(map[simpleEdge]*simpleOwners)
	}
	return s
}

func (s *simple) total() int {
	n := 0
	for _, rank := range s.known {
		for _, blocks := range rank.tiers {
			n += len(blocks)
		}
	}
	return n
}

func (s *simple) apply(event Event) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if event.Tier >= Tiers {
		return ErrInvalidEvent
	}
	rank := s.known[event.Rank]
	if rank == nil && event.Op == Stored {
		rank = &simpleRank{}
		for tier := range rank.tiers {
			rank.tiers[tier] = make(map[uint64]simpleBlock)
		}
		s.known[event.Rank] = rank
	}
	switch event.Op {
	case Stored:
		return s.store(rank, event)
	case Removed:
		return s.remove(rank, event)
	case Cleared:
		if rank != nil {
			s.clear(event.Rank)
		}
		return nil
	}
	return ErrInvalidEvent
}

func (s *simple) store(rank *simpleRank, event Event) error {
	if event.HasParent {
		for _, block := range event.Blocks {
			if block.Hash == event.Parent {
				return fmt.Errorf("block %d: %w", block.Hash, ErrSelfParent)
			}
		}
		if _, held := rank.tiers[Device][event.Parent]; !held && event.Tier == Device {
			return fmt.Errorf("parent %d: %w", event.Parent, ErrUnknownParent)
		}
	}
	s.seen[event.Tier] = true
	edge := simpleEdge{root: !event.HasParent, parent: event.Parent}
	blocks := rank.tiers[event.Tier]
	for i, block := range event.Blocks {
		edge.local = block.Local
		if _, held := blocks[block.Hash]; !held {
			if s.options.FirstNameWins && event.Tier != Device {
				owners := s.owners[event.Tier][edge]
				if owners == nil {
					owners = &simpleOwners{name: block.Hash, ranks: make(map[Rank]bool)}
					s.owners[event.Tier][edge] = owners
				}
				if owners.name != block.Hash {
					return nil
				}
				owners.ranks[event.Rank] = true
			}
			if s.options.MaxBlocks > 0 && s.total() >= s.options.MaxBlocks {
				s.refused += uint64(len(event.Blocks) - i)
				return ErrFull
			}
			rank.order++
			stored := simpleBlock{edge: edge, order: rank.order}
			if event.Tier == Device {
				stored.sequence = block.Local
				if !edge.root {
					stored.sequence = chain.Next(blocks[edge.parent].sequence, block.Local)
				}
			}
			blocks[block.Hash] = stored
		}
		edge = simpleEdge{parent: block.Hash}
	}
	return nil
}

func (s *simple) remove(rank *simpleRank, event Event) (err error) {
	for _, hash := range event.Hashes {
		if rank == nil {
			return fmt.Errorf("block %d: %w", hash, ErrUnknownBlock)
		}
		if _, held := rank.tiers[event.Tier][hash]; !held {
			err = fmt.Errorf("block %d: %w", hash, ErrUnknownBlock)
			if s.options.FirstNameWins && event.Tier != Device {
				return err
			}
			continue
		}
		s.drop(event.Rank, rank, event.Tier, hash)
	}
	return err
}

func (s *simple) drop(name Rank, rank *simpleRank, tier Tier, hash uint64) {
	edge := rank.tiers[tier][hash].edge
	delete(rank.tiers[tier], hash)
	if owners := s.owners[tier][edge]; owners != nil {
		if delete(owners.ranks, name); len(owners.ranks) == 0 {
			delete(s.owners[tier], edge)
		}
	}
}

func (s *simple) clear(name Rank) {
	rank := s.known[name]
	for tier := range rank.tiers {
		for hash := range rank.tiers[tier] {
			s.drop(name, rank, Tier(tier), hash)
		}
	}
}

func (s *simple) removeRank(rank Rank) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.known[rank] != nil {
		s.clear(rank)
		delete(s.known, rank)
	}
}

func (s *simple) removeWorker(workerID uint64) {
	for _, rank := range s.ranks() {
		if rank.WorkerID == workerID {
			s.removeRank(rank)
		}
	}
}

func (s *simple) find(matches *Matches, query Query) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	matches.Ranks = matches.Ranks[:0]
	sequence := chain.AppendSequence(nil, query.Locals)
	for name, rank := range s.known {
		match := Match{Rank: name}
		held := make(map[uint64]uint64)
		for hash, block := range rank.tiers[Device] {
			held[block.sequence] = hash
		}
		at, last := 0, uint64(0)
		for at < len(sequence) {
			hash, ok := held[sequence[at]]
			if !ok {
				break
			}
			at, last = at+1, hash
		}
		match.Blocks[Device] = uint32(at)
		for tier := HostPinned; tier < Tiers && !query.DeviceOnly; tier++ {
			edges := make(map[simpleEdge]uint64)
			for hash, block := range rank.tiers[tier] {
				edges[block.edge] = hash
			}
			for at < len(sequence) {
				next, ok := edges[simpleEdge{root: at == 0, parent: last, local: query.Locals[at]}]
				if !ok {
					break
				}
				at, last = at+1, next
				match.Blocks[tier]++
			}
		}
		if match.Total() > 0 {
			matches.Ranks = append(matches.Ranks, match)
		}
	}
}

func (s *simple) events(name Rank) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		rank := s.known[name]
		if rank == nil {
			return
		}
		for tier, blocks := range rank.tiers {
			hashes := slices.SortedFunc(maps.Keys(blocks), func(a, b uint64) int { return cmp.Compare(blocks[a].order, blocks[b].order) })
			for _, hash := range hashes {
				edge := blocks[hash].edge
				if !yield(Event{Rank: name, Tier: Tier(tier), Op: Stored, HasParent: !edge.root, Parent: edge.parent,
					Blocks: []Block{{Hash: hash, Local: edge.local}}}) {
					return
				}
			}
		}
	}
}

func (s *simple) ranks() []Rank {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.SortedFunc(maps.Keys(s.known), func(a, b Rank) int {
		return cmp.Or(cmp.Compare(a.WorkerID, b.WorkerID), cmp.Compare(a.DPRank, b.DPRank))
	})
}

func (s *simple) tierSeen(tier Tier) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return tier < Tiers && s.seen[tier]
}

func (s *simple) stats() Stats {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	stats := Stats{Ranks: len(s.known), Refused: s.refused}
	workers := make(map[uint64]bool)
	for name, rank := range s.known {
		workers[name.WorkerID] = true
		for tier, blocks := range rank.tiers {
			stats.Blocks[tier] += len(blocks)
		}
	}
	stats.Workers = len(workers)
	return stats
}
