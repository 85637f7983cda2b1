package kvindex

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestNamesAreAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table names
		plain := make(map[uint64]uint32)
		// With so few names, buckets fill up, overflow and drain again.
		name := rapid.Uint64Range(0, rapid.SampledFrom([]uint64{3, 100, 2000}).Draw(t, "names"))
		fill := func(t *rapid.T) {
			for _, key := range rapid.SliceOfN(name, 1, 200).Draw(t, "keys") {
				if _, there := plain[key]; !there {
					plain[key] = uint32(len(plain) + 1)
					table.insert(key, plain[key])
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": fill,
			"enter": func(t *rapid.T) {
				key := name.Draw(t, "key")
				table.reserve(1)
				number := table.enter(key)
				if *number != plain[key] {
					t.Fatalf("name %d entered has number %d, expected %d", key, *number, plain[key])
				}
				*number = 7
				plain[key] = 7
			},
			"remove": func(t *rapid.T) {
				for _, key := range rapid.SliceOfN(name, 1, 200).Draw(t, "keys") {
					got, ok := table.remove(key)
					if want, there := plain[key]; ok != there || got != want {
						t.Fatalf("name %d removed had number %d, %t, expected %d, %t", key, got, ok, want, there)
					}
					delete(plain, key)
				}
			},
			"": func(t *rapid.T) {
				if got := maps.Collect(table.all); !maps.Equal(got, plain) || table.count != len(plain) {
					t.Fatalf("%d names: %v, expected %v", table.count, got, plain)
				}
				for range 10 {
					key := name.Draw(t, "key")
					got, ok := table.find(key)
					if want, there := plain[key]; ok != there || got != want {
						t.Fatalf("name %d has number %d, %t, expected %d, %t", key, got, ok, want, there)
					}
				}
			},
		})
	})
}

func TestFurtherCountsAndFilters(t *testing.T) {
	var f further
	for range 2 * furtherCountMask {
		f.add(1 << 31)
	}
	for range furtherCountMask {
		f.remove()
	}
	if f&(1<<31) == 0 {
		t.Error("a count that was too large to be kept let go of its entries")
	}
	f = 0
	f.add(1 << 31)
	f.add(1 << 20)
	if f.remove(); f&(1<<20) == 0 {
		t.Error("the filter lost an entry that is still there")
	}
	if f.remove(); f != 0 {
		t.Errorf("%x is left of nothing", f)
	}
}

func TestTableFindsWhatIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := newSpace(false)
		ids := make(map[uint64]uint32)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			sequence := rapid.Uint64Range(0, 200).Draw(t, "sequence")
			if id, there := ids[sequence]; there {
				space.delist(id)
				space.destroy(id)
				delete(ids, sequence)
			} else {
				id, _ := space.create(sequence, 0, 1)
				space.enlist(id)
				ids[sequence] = id
			}
			other := rapid.Uint64Range(0, 200).Draw(t, "other")
			if got := space.find(other); got != ids[other] {
				t.Fatalf("block %d is node %d, expected %d", other, got, ids[other])
			}
		}
		if space.live != len(ids) || space.table.count != len(ids) {
			t.Fatalf("%d live, %d listed, expected %d", space.live, space.table.count, len(ids))
		}
	})
}

func TestSetsAreSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := setWriter{wides: &wides{}}
		sets := make([]set, 4)
		plain := make([]map[int]bool, len(sets))
		for i := range plain {
			plain[i] = make(map[int]bool)
		}
		rank := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(59, 66), rapid.IntRange(0, 400), rapid.Just(maxRanks-1))
		if rapid.Bool().Draw(t, "no very high numbers") {
			rank = rapid.IntRange(0, 200)
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			at, id := rapid.IntRange(0, len(sets)-1).Draw(t, "set"), rank.Draw(t, "rank")
			if rapid.IntRange(0, 2).Draw(t, "kind") == 0 {
				sets[at] = w.without(sets[at], id)
				delete(plain[at], id)
			} else {
				sets[at] = w.with(sets[at], id)
				plain[at][id] = true
			}
			for i, s := range sets {
				want := slices.Sorted(maps.Keys(plain[i]))
				got := w.ids(nil, s)
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Fatalf("set %d has %v, expected %v", i, got, want)
				}
				if (s == 0) != (len(want) == 0) {
					t.Fatalf("set %d is %x and has %d ranks", i, s, len(want))
				}
				probe := rank.Draw(t, "probe")
				if w.has(s, probe) != plain[i][probe] {
					t.Fatalf("set %d has %d: %t", i, probe, w.has(s, probe))
				}
				if s.form() == formWide && len(want) <= 3 {
					t.Fatalf("a wide set for %v", want)
				}
			}
		}
	})
}

// Engines whose hashes are their own: each loses only what it names itself.
func TestEachRanksNamesAreItsOwn(t *testing.T) {
	for tier := range Tier(Tiers) {
		index, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		a, b := Rank{WorkerID: 1}, Rank{WorkerID: 2}
		mustApply(t, index, Event{Rank: a, Tier: tier, Op: Stored, Blocks: []Block{{11, 101}, {12, 102}, {13, 103}}})
		mustApply(t, index, Event{Rank: b, Tier: tier, Op: Stored, Blocks: []Block{{21, 101}, {22, 102}}})
		mustApply(t, index, Event{Rank: b, Tier: tier, Op: Stored, HasParent: true, Parent: 22, Blocks: []Block{{23, 103}}})
		mustApply(t, index, Event{Rank: a, Tier: tier, Op: Removed, Hashes: []uint64{13}})
		mustApply(t, index, Event{Rank: b, Tier: tier, Op: Removed, Hashes: []uint64{23, 22}})
		want := []Match{{Rank: a}, {Rank: b}}
		want[0].Blocks[tier], want[1].Blocks[tier] = 2, 1
		if got := find(index, Query{Locals: []uint64{101, 102, 103}}); !slices.Equal(got, want) {
			t.Errorf("tier %s: %v, expected %v", tier, got, want)
		}
	}
}

func TestOptionsAndTiers(t *testing.T) {
	for _, options := range []Options{{Shards: -1}, {MaxBlocks: -1}} {
		if _, err := New(options); err == nil {
			t.Errorf("%+v passes", options)
		}
	}
	for tier := range Tier(Tiers) {
		if parsed, err := ParseTier(tier.String()); err != nil || parsed != tier {
			t.Errorf("%s is read as %v, %v", tier, parsed, err)
		}
	}
	if tier, err := ParseTier(""); err != nil || tier != Device {
		t.Errorf("no name is read as %v, %v", tier, err)
	}
	if _, err := ParseTier("gpu"); err == nil {
		t.Error("an unknown tier passes")
	}
	if Tier(9).String() != "Tier(9)" {
		t.Errorf("an unknown tier is called %s", Tier(9))
	}
}

func TestInvalidEventsChangeNothing(t *testing.T) {
	index, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range []Event{{Op: 0}, {Op: 9}, {Op: Stored, Tier: Tiers, Blocks: []Block{{1, 1}}}} {
		if err := index.Apply(event); err == nil {
			t.Errorf("%+v passes", event)
		}
	}
	if stats := index.Stats(); stats.Workers != 0 || stats.Ranks != 0 || stats.Total() != 0 {
		t.Errorf("%+v", stats)
	}
}
