package kvindex

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// world draws events about prompts over few different blocks, so that prefixes are shared, blocks come back, and gaps open and
// close.
type world struct {
	ranks   []Rank
	shared  bool // all ranks give a block the same name, as engines with a common seed do
	doubles bool // an engine may have two names for a block
}

func (w world) prompt(t *rapid.T) []uint64 {
	return rapid.SliceOfN(rapid.Uint64Range(1, 2), 1, 7).Draw(t, "prompt")
}

func (w world) rank(t *rapid.T) Rank { return rapid.SampledFrom(w.ranks).Draw(t, "rank") }

// name is an engine's name for the block with a sequence hash.
func (w world) name(rank Rank, sequence uint64, second bool) uint64 {
	name := sequence * 3
	if !w.shared {
		name += rank.WorkerID*1000003 + uint64(rank.DPRank)*10007
	}
	if second {
		name++
	}
	return name
}

func (w world) event(t *rapid.T) Event {
	rank, prompt := w.rank(t), w.prompt(t)
	sequence := chainHasher.AppendSequence(nil, prompt)
	names := make([]uint64, len(prompt))
	for i := range names {
		names[i] = w.name(rank, sequence[i], w.doubles && rapid.IntRange(0, 4).Draw(t, "second") == 0)
	}
	event := Event{Rank: rank, Op: Stored}
	if rapid.Bool().Draw(t, "lower") {
		event.Tier = Tier(rapid.IntRange(0, 3).Draw(t, "tier"))
	}
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1, 2, 3, 4:
		from := 0
		if rapid.Bool().Draw(t, "continues") {
			from = rapid.IntRange(0, len(prompt)-1).Draw(t, "from")
		}
		for i := from; i < len(prompt); i++ {
			event.Blocks = append(event.Blocks, Block{Hash: names[i], Local: prompt[i]})
		}
		if from > 0 {
			event.HasParent, event.Parent = true, names[from-1]
			if rapid.IntRange(0, 20).Draw(t, "self") == 0 {
				event.Blocks[len(event.Blocks)-1].Hash = event.Parent
			}
		}
	case 9:
		if rapid.IntRange(0, 3).Draw(t, "clear") == 0 {
			event.Op = Cleared
			break
		}
		fallthrough
	default:
		event.Op = Removed
		from := rapid.IntRange(0, len(names)).Draw(t, "from")
		event.Hashes = names[from:min(len(names), from+rapid.IntRange(0, 4).Draw(t, "count"))]
		if rapid.Bool().Draw(t, "backwards") {
			slices.Reverse(event.Hashes)
		}
	}
	return event
}

func drawWorld(t *rapid.T) world {
	w := world{shared: rapid.Bool().Draw(t, "shared names"), doubles: rapid.Bool().Draw(t, "second names")}
	workers := rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "workers")
	for worker := range workers {
		for dp := range rapid.SampledFrom([]int{1, 2}).Draw(t, "ranks") {
			w.ranks = append(w.ranks, Rank{WorkerID: uint64(worker), DPRank: uint32(dp)})
		}
	}
	return w
}

// Whatever happens, look-ups, sizes and replays are those of plain maps.
func TestIndexIsAPlainMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		options := Options{
			Shards: rapid.IntRange(0, 3).Draw(t, "shards"), Replay: true,
			FirstNameWins: rapid.Bool().Draw(t, "first name wins"),
			MaxBlocks:     rapid.SampledFrom([]int{0, 0, 1, 5, 30}).Draw(t, "limit"),
		}
		index, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		plain := newModel(options)
		if len(w.ranks) > 10 {
			// Everyone holds the beginning of a prompt, so that there are wide sets.
			for _, rank := range w.ranks {
				sequence := chainHasher.AppendSequence(nil, []uint64{1, 1})
				event := Event{Rank: rank, Op: Stored, Blocks: []Block{{w.name(rank, sequence[0], false), 1}, {w.name(rank, sequence[1], false), 1}}}
				check(t, index, plain, event)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"event":         func(t *rapid.T) { check(t, index, plain, w.event(t)) },
			"another event": func(t *rapid.T) { check(t, index, plain, w.event(t)) },
			"leave": func(t *rapid.T) {
				rank := w.rank(t)
				if rapid.Bool().Draw(t, "worker") {
					index.RemoveWorker(rank.WorkerID)
					plain.removeWorker(rank.WorkerID)
				} else {
					index.RemoveRank(rank)
					plain.removeRank(rank)
				}
			},
			"": func(t *rapid.T) { compare(t, w, index, plain) },
			"replay": func(t *rapid.T) {
				copied, _ := New(Options{Replay: true})
				for _, rank := range index.Ranks() {
					for event := range index.Events(rank) {
						if err := copied.Apply(event); err != nil {
							t.Fatalf("replayed event %+v: %v", event, err)
						}
					}
				}
				for range 5 {
					// A block in a lower tier is told by its parent's name, which may be gone where blocks have two.
					query := Query{Locals: w.prompt(t), DeviceOnly: w.doubles}
					if got, want := find(copied, query), find(index, query); !slices.Equal(got, want) {
						t.Fatalf("replayed, %v finds %v, before %v", query.Locals, got, want)
					}
				}
			},
		})
		for _, rank := range w.ranks {
			index.RemoveWorker(rank.WorkerID)
		}
		if stats := index.Stats(); stats.Total() != 0 || stats.Nodes != 0 || stats.Ranks != 0 || stats.Workers != 0 {
			t.Fatalf("after all have left: %+v", stats)
		}
	})
}

func check(t *rapid.T, index *Index, plain *model, event Event) {
	got, want := index.Apply(event), plain.apply(event)
	if !errors.Is(got, want) {
		t.Fatalf("event %+v: %v, expected %v", event, got, want)
	}
}

func find(index *Index, query Query) []Match {
	var matches Matches
	index.Find(&matches, query)
	return sortMatches(matches.Ranks)
}

func compare(t *rapid.T, w world, index *Index, plain *model) {
	query := Query{Locals: w.prompt(t), DeviceOnly: rapid.Bool().Draw(t, "device only")}
	if rapid.Bool().Draw(t, "sequence given") {
		query.Sequence = chainHasher.AppendSequence(nil, query.Locals)
	}
	if got, want := find(index, query), plain.find(query); !slices.Equal(got, want) {
		t.Fatalf("%+v finds\n%v, expected\n%v", query, got, want)
	}
	stats := index.Stats()
	if stats.Blocks != plain.blocks() || stats.Ranks != len(plain.ranks) || stats.Refused != uint64(plain.refused) {
		t.Fatalf("%+v, expected %v blocks of %d ranks, %d refused", stats, plain.blocks(), len(plain.ranks), plain.refused)
	}
	if room := index.shards[0].budget; room.limited && int(room.room.Load()) != plain.options.MaxBlocks-stats.Total() {
		t.Fatalf("room for %d blocks with %d of %d", room.room.Load(), stats.Total(), plain.options.MaxBlocks)
	}
	if len(index.shards) == 1 && stats.Nodes < plain.nodes() || stats.Nodes > 2*stats.Blocks[Device] {
		t.Fatalf("%d nodes for %d different of %d blocks", stats.Nodes, plain.nodes(), stats.Blocks[Device])
	}
	inspect(t, index)
}

// inspect checks what must always be true inside.
func inspect(t *rapid.T, index *Index) {
	for _, s := range index.shards {
		d := s.device
		live, listed := 0, 0
		linked := 0
		for id := uint32(1); id < uint32(len(d.pages)*pageNodes); id++ {
			n := d.node(id)
			if d.vacant.has(id) {
				continue
			}
			above := d.above(id, n)
			live++
			inTable := above == 0 || above != detachedParent && d.node(above).child.Load()&severalChildren != 0
			if found := d.find(n.sequence.Load()); inTable != (found == id) {
				t.Fatalf("node %d behind %d: the table has %d", id, above, found)
			}
			if inTable {
				listed++
			}
			if at, _ := d.detached.find(n.sequence.Load()); (above == detachedParent) != (at == id) {
				t.Fatalf("node %d behind %d: detached is %d", id, above, at)
			}
			d.stack = d.stack[:0]
			d.pushChildren(id, n)
			linked += len(d.stack)
			for _, child := range d.stack {
				c := d.node(child)
				if d.above(child, c) != id {
					t.Fatalf("node %d is a child of %d, and its parent is %d", child, id, d.above(child, c))
				}
				for _, r := range s.ranks {
					if r != nil && d.has(c, r.id) && !d.has(n, r.id) {
						t.Fatalf("rank %d reaches node %d past its parent", r.id, child)
					}
				}
			}
			if n.child.Load()&severalChildren != 0 && len(d.stack) < 2 {
				t.Fatalf("node %d keeps a list for %d children", id, len(d.stack))
			}
			if d.unheld(id, n) && n.child.Load() == 0 {
				t.Fatalf("node %d is nobody's", id)
			}
			if above != 0 && above != detachedParent {
				linked--
			}
		}
		if live != d.live || listed != d.table.count {
			t.Fatalf("%d nodes live and %d in the table, counted are %d and %d", live, listed, d.live, d.table.count)
		}
		if linked != 0 {
			t.Fatalf("%d more children than parents say", linked)
		}
		for tier := HostPinned; tier < Tiers; tier++ {
			if space := s.lower[tier]; space != nil && space.live != space.table.count {
				t.Fatalf("tier %s: %d nodes live, %d in the table", tier, space.live, space.table.count)
			}
		}
	}
}
