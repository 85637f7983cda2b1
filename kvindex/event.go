package kvindex

import (
	"errors"
	"fmt"
)

// Tier is where a rank keeps a block. Tiers are searched in this order.
type Tier uint8

// The tiers, from the fastest.
const (
	Device Tier = iota
	HostPinned
	Disk
	External

	// Tiers is how many there are.
	Tiers = 4
)

var tierNames = [Tiers]string{"device", "host_pinned", "disk", "external"}

// String returns the name that KV events carry.
func (t Tier) String() string {
	if t < Tiers {
		return tierNames[t]
	}
	return fmt.Sprintf("Tier(%d)", uint8(t))
}

// ParseTier returns the tier with a name that KV events carry; "" is the device.
func ParseTier(name string) (Tier, error) {
	if name == "" {
		return Device, nil
	}
	for i, known := range tierNames {
		if name == known {
			return Tier(i), nil
		}
	}
	return 0, fmt.Errorf("storage tier %q is not known; known are %q", name, tierNames)
}

// Rank is one data-parallel rank of a worker. Ranks share nothing: each has a cache of its own.
type Rank struct {
	WorkerID uint64
	DPRank   uint32
}

// Block is one block as a stored event names it.
type Block struct {
	// Hash is the engine's own name for the block and everything before it. It is opaque, and means something only together
	// with the rank.
	Hash uint64
	// Local is the local block hash of the block's tokens (package kvhash). Look-ups match on it.
	Local uint64
}

// Op is what an event tells.
type Op uint8

// The events.
const (
	// Stored adds Blocks as a chain below Parent, or from the start of the prompt.
	Stored Op = iota + 1
	// Removed drops the blocks named by Hashes.
	Removed
	// Cleared drops all blocks of the rank, in all tiers.
	Cleared
)

// Event is one change of what a rank holds. The index keeps none of its slices.
type Event struct {
	Rank Rank
	Tier Tier
	Op   Op

	// HasParent tells that Stored blocks follow the block that the engine calls Parent. Without, they start a prompt.
	HasParent bool
	Parent    uint64
	Blocks    []Block  // of Stored
	Hashes    []uint64 // of Removed
}

// What Apply can find wrong with an event. An index is advisory: whoever applies events counts or logs these and goes on.
var (
	// ErrUnknownParent refuses a whole Stored event of the device tier: the rank does not hold the parent, so that nobody knows
	// which prompt the blocks belong to.
	ErrUnknownParent = errors.New("the rank does not hold the parent block")
	// ErrSelfParent refuses a whole Stored event whose parent is among its own blocks.
	ErrSelfParent = errors.New("a block cannot be its own parent")
	// ErrUnknownBlock tells that the rank did not hold at least one of the blocks of a Removed event. The others are gone.
	ErrUnknownBlock = errors.New("the rank does not hold the block")
	// ErrFull tells that the index is at its limit, so that some blocks of a Stored event, always the last ones, are not in it.
	ErrFull = errors.New("the index is at its limit of blocks")
	// ErrInvalidEvent refuses an event with a tier or an operation that does not exist.
	ErrInvalidEvent = errors.New("the event has no such tier or operation")
)
