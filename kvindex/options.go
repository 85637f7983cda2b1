package kvindex

import "fmt"

// Options describe an index.
type Options struct {
	// Shards is how many events can be applied at the same time; 0 means 1. All ranks of a worker are in the same shard, and each
	// look-up visits all shards: more shards than cores that apply events only make look-ups slower.
	Shards int
	// MaxBlocks is the largest number of blocks, counted for each rank and tier that holds them; 0 means no limit. A block
	// costs about 45 bytes. At the limit, blocks are refused until others have been removed: see [ErrFull] and Stats.Refused.
	MaxBlocks int
	// Replay keeps what [Index.Events] needs: 8 bytes more for each different block.
	Replay bool
	// FirstNameWins gives lower tiers two habits of the Dynamo router. A block that one rank holds there under one engine hash
	// shuts out other ranks' hashes for it: a stored event ends, without an error, at the first such block. And a removed event
	// ends at the first block that is not there. Without it, which is right for engines, each rank's hashes are its own in all
	// tiers, and a removed event drops all that is there. It implies one shard.
	FirstNameWins bool
}

func (o Options) validate() error {
	if o.Shards < 0 {
		return fmt.Errorf("kvindex: %d shards: an index has at least 1", o.Shards)
	}
	if o.MaxBlocks < 0 {
		return fmt.Errorf("kvindex: limit of %d blocks: give a positive number, or 0 for no limit", o.MaxBlocks)
	}
	return nil
}

// Stats describe an index at one moment.
type Stats struct {
	Workers int
	Ranks   int
	// Blocks is the number of live blocks, counted for each rank and tier that holds them.
	Blocks [Tiers]int
	// Nodes is the number of different blocks on devices, counted once per shard.
	Nodes int
	// Bytes is the memory of the index: what is allocated, used or not.
	Bytes int
	// Refused counts blocks that the limit kept out since the start.
	Refused uint64
	// Known counts stored events for devices of which all blocks were there already, since the start.
	Known uint64
}

// Total is the number of live blocks in all tiers.
func (s Stats) Total() int {
	return s.Blocks[Device] + s.Blocks[HostPinned] + s.Blocks[Disk] + s.Blocks[External]
}
