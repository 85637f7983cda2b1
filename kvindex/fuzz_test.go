package kvindex

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// eventsFrom reads events out of any bytes: few ranks and few hashes, so that they meet.
func eventsFrom(data []byte) []Event {
	var events []Event
	for len(data) >= 4 {
		event := Event{Rank: Rank{WorkerID: uint64(data[0] & 3)}, Op: Op(data[0]>>2&3) + 1, HasParent: data[0]&16 != 0, Parent: uint64(data[1] & 15)}
		if event.Op > Cleared {
			event.Op = Stored
		}
		n := min(int(data[2]&7), len(data)-3)
		for _, b := range data[3 : 3+n] {
			event.Blocks = append(event.Blocks, Block{Hash: uint64(b & 15), Local: uint64(b >> 4 & 3)})
			event.Hashes = append(event.Hashes, uint64(b&15))
		}
		events = append(events, event)
		data = data[3+n:]
	}
	return events
}

// Events that no engine sends: names that mean now this, now that, parents in circles. The index stays a plain map of what it was
// told, and in order inside.
func FuzzApply(f *testing.F) {
	f.Add([]byte{0, 0, 3, 1, 18, 35, 16, 2, 2, 18, 35, 4, 0, 2, 1, 2})
	f.Add([]byte{0x10, 1, 3, 1, 2, 3, 0, 0, 3, 1, 1, 1, 0x10, 1, 2, 2, 17, 8, 0, 1, 1})
	f.Add(binary.LittleEndian.AppendUint64(nil, 0x0123456789abcdef))
	f.Fuzz(func(t *testing.T, data []byte) {
		index, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		plain := newModel(Options{})
		for _, event := range eventsFrom(data) {
			if got, want := index.Apply(event), plain.apply(event); !errors.Is(got, want) {
				t.Fatalf("%+v: %v, expected %v", event, got, want)
			}
			for _, prompt := range [][]uint64{{0, 1, 2, 3}, {1, 1, 1}, {2, 0}, {3}} {
				if got, want := find(index, Query{Locals: prompt}), plain.find(Query{Locals: prompt}); !slices.Equal(got, want) {
					t.Fatalf("%v finds %v, expected %v", prompt, got, want)
				}
			}
		}
		for worker := range uint64(4) {
			index.RemoveWorker(worker)
		}
		if stats := index.Stats(); stats.Total() != 0 || stats.Nodes != 0 {
			t.Fatalf("after all have left: %+v", stats)
		}
	})
}
