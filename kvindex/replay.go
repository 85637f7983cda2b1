package kvindex

import (
	"cmp"
	"slices"
)

// events tells in stored events what a rank holds.
func (s *shard) events(r *rank) []Event {
	return append(s.deviceEvents(r), s.lowerEvents(r)...)
}

// held is one name under which a rank holds a node.
type held struct {
	id, parent uint32
	name       uint64
}

func (s *shard) deviceEvents(r *rank) (events []Event) {
	d := s.device
	all := make([]held, 0, r.blocks.count)
	nameOf := make(map[uint32]uint64, r.blocks.count)
	for name, id := range r.blocks.all {
		if n := d.node(id); d.has(n, r.id) {
			all = append(all, held{id, d.above(id, n), name})
			nameOf[id] = name
		}
	}
	slices.SortFunc(all, func(a, b held) int {
		return cmp.Or(cmp.Compare(a.parent, b.parent), cmp.Compare(a.id, b.id), cmp.Compare(a.name, b.name))
	})
	behind := func(parent uint32) []held {
		first, _ := slices.BinarySearchFunc(all, parent, func(h held, parent uint32) int { return cmp.Compare(h.parent, parent) })
		end := first
		for end < len(all) && all[end].parent == parent {
			end++
		}
		return all[first:end]
	}
	rest := slices.Clone(behind(0))
	for len(rest) > 0 {
		h := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		event := Event{Rank: r.name, Op: Stored, HasParent: h.parent != 0, Parent: nameOf[h.parent]}
		for {
			event.Blocks = append(event.Blocks, Block{Hash: h.name, Local: *d.local(h.id)})
			if nameOf[h.id] != h.name {
				break // another name for the block; what follows it follows the first
			}
			next := behind(h.id)
			if len(next) != 1 {
				rest = append(rest, next...)
				break
			}
			h = next[0]
		}
		events = append(events, event)
	}
	return events
}

func (s *shard) lowerEvents(r *rank) (events []Event) {
	if r.lower == nil {
		return nil
	}
	for tier := HostPinned; tier < Tiers; tier++ {
		for _, at := range r.lower.names[tier].all {
			block := r.lower.records[at]
			events = append(events, Event{Rank: r.name, Tier: tier, Op: Stored, HasParent: !block.root, Parent: block.parent,
				Blocks: []Block{{Hash: block.hash, Local: block.local}}})
		}
	}
	return events
}

// addTo adds the shard's size.
func (s *shard) addTo(stats *Stats) {
	stats.Ranks += len(s.numberOf)
	stats.Refused += s.refused
	stats.Known += s.known
	stats.Nodes += s.device.live
	stats.Bytes += s.device.bytes() + cap(s.pending)*16 + len(s.ranks)*8
	for tier := HostPinned; tier < Tiers; tier++ {
		if s.lower[tier] != nil {
			stats.Bytes += s.lower[tier].bytes()
		}
	}
	for _, r := range s.ranks {
		if r == nil {
			continue
		}
		stats.Blocks[Device] += r.blocks.count
		stats.Bytes += r.blocks.bytes()
		if r.lower != nil {
			for tier := HostPinned; tier < Tiers; tier++ {
				stats.Blocks[tier] += r.lower.names[tier].count
			}
			stats.Bytes += r.lower.bytes()
		}
	}
}
