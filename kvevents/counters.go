package kvevents

import (
	"errors"
	"sync/atomic"

	"signalbox/kvindex"
)

// Counters tell what happened since the start. They only grow.
type Counters struct {
	// Stored, Removed and Cleared count the events that the sink took, those out of recovery answers included.
	Stored, Removed, Cleared uint64
	// StoredBlocks and RemovedBlocks count the blocks in them.
	StoredBlocks, RemovedBlocks uint64

	// The events that the sink refused, by reason; all of them are counted above as well.
	UnknownParent, UnknownBlock, IndexFull, InvalidEvent uint64

	// Stale counts events that had been applied already: duplicates and late ones.
	Stale uint64
	// Unusable counts events of another residency domain, or of a kind or tier that is not known.
	Unusable uint64
	// Malformed counts messages that could not be read; Foreign counts messages of one rank's publisher that spoke of another.
	Malformed, Foreign uint64

	// Batches counts the live messages that were taken.
	Batches uint64
	// Started counts publishers that began to be listened to, Connected the connections to them, Activated the times that a rank's
	// picture became complete for the first time.
	Started, Connected, Activated uint64

	// Gaps counts holes in a publisher's event ids; Restarts counts publishers that began anew.
	Gaps, Restarts uint64
	// Disconnects counts connections that failed or could not be made.
	Disconnects uint64
	// Dropped counts live messages that did not fit into the memory for messages that wait for a recovery.
	Dropped uint64

	// Recoveries that succeeded, by what the worker answered: all its blocks, the missing events, or that nothing is missing.
	Dumps, Ranges, Unneeded uint64
	// FailedQueries counts queries without a usable answer; FailedRecoveries counts those that were given up.
	FailedQueries, FailedRecoveries uint64

	// Loads counts load reports.
	Loads uint64
}

// counters are the live Counters.
type counters struct {
	stored, removed, cleared, storedBlocks, removedBlocks  atomic.Uint64
	unknownParent, unknownBlock, indexFull, invalidEvent   atomic.Uint64
	stale, unusable, malformed, foreign                    atomic.Uint64
	gaps, restarts, disconnects, dropped                   atomic.Uint64
	dumps, ranges, unneeded, failedQueries, failedRecovers atomic.Uint64
	loads, batches, started, connected, activated          atomic.Uint64
}

func (c *counters) snapshot() Counters {
	return Counters{
		Stored: c.stored.Load(), Removed: c.removed.Load(), Cleared: c.cleared.Load(),
		StoredBlocks: c.storedBlocks.Load(), RemovedBlocks: c.removedBlocks.Load(),
		UnknownParent: c.unknownParent.Load(), UnknownBlock: c.unknownBlock.Load(), IndexFull: c.indexFull.Load(), InvalidEvent: c.invalidEvent.Load(),
		Stale: c.stale.Load(), Unusable: c.unusable.Load(), Malformed: c.malformed.Load(), Foreign: c.foreign.Load(),
		Gaps: c.gaps.Load(), Restarts: c.restarts.Load(), Disconnects: c.disconnects.Load(), Dropped: c.dropped.Load(),
		Dumps: c.dumps.Load(), Ranges: c.ranges.Load(), Unneeded: c.unneeded.Load(),
		FailedQueries: c.failedQueries.Load(), FailedRecoveries: c.failedRecovers.Load(), Loads: c.loads.Load(),
		Batches: c.batches.Load(), Started: c.started.Load(), Connected: c.connected.Load(), Activated: c.activated.Load(),
	}
}

// applied counts one event that went to the sink, and what the sink said.
func (c *counters) applied(change *kvindex.Event, err error) {
	switch change.Op {
	case kvindex.Stored:
		c.stored.Add(1)
		c.storedBlocks.Add(uint64(len(change.Blocks)))
	case kvindex.Removed:
		c.removed.Add(1)
		c.removedBlocks.Add(uint64(len(change.Hashes)))
	case kvindex.Cleared:
		c.cleared.Add(1)
	}
	switch {
	case err == nil:
	case errors.Is(err, kvindex.ErrUnknownParent):
		c.unknownParent.Add(1)
	case errors.Is(err, kvindex.ErrUnknownBlock):
		c.unknownBlock.Add(1)
	case errors.Is(err, kvindex.ErrFull):
		c.indexFull.Add(1)
	default:
		c.invalidEvent.Add(1)
	}
}
