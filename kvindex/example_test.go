package kvindex_test

import (
	"fmt"

	"signalbox/kvhash"
	"signalbox/kvindex"
)

func Example() {
	index, err := kvindex.New(kvindex.Options{Shards: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	hasher, err := kvhash.New(kvhash.Scope{BlockSize: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	locals := hasher.AppendBlocks(nil, tokens)

	// A worker's engine has computed the first two blocks, and moved a third to host memory. It has its own names for them.
	rank := kvindex.Rank{WorkerID: 7}
	for _, event := range []kvindex.Event{
		{Rank: rank, Op: kvindex.Stored, Blocks: []kvindex.Block{{Hash: 100, Local: locals[0]}, {Hash: 101, Local: locals[1]}}},
		{Rank: rank, Tier: kvindex.HostPinned, Op: kvindex.Stored, HasParent: true, Parent: 101, Blocks: []kvindex.Block{{Hash: 102, Local: locals[2]}}},
	} {
		if err := index.Apply(event); err != nil {
			fmt.Println(err)
		}
	}

	var matches kvindex.Matches // reuse it
	index.Find(&matches, kvindex.Query{Locals: locals})
	for _, match := range matches.Ranks {
		fmt.Printf("worker %d: %d blocks on the device, %d more in host memory\n", match.Rank.WorkerID,
			match.Blocks[kvindex.Device], match.Blocks[kvindex.HostPinned])
	}
	// Output: worker 7: 2 blocks on the device, 1 more in host memory
}
