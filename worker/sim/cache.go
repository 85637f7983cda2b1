package sim

import "container/list"

// Block is one stored KV block as events report it.
type Block struct {
	// Hash is the engine's own name of the block; here it is the sequence hash of everything up to its end.
	Hash uint64
	// Local is the hash of the block's own tokens.
	Local uint64
}

// Events is told what the cache holds. The methods are called from the engine's goroutine of the rank, in order.
type Events interface {
	// Stored reports blocks that follow parent in this order; hasParent is false at the start of a prompt.
	Stored(rank int, parent uint64, hasParent bool, blocks []Block)
	// Removed reports evicted blocks.
	Removed(rank int, hashes []uint64)
	// Load reports the blocks in use after a step.
	Load(rank int, usedBlocks int)
}

// cache is the paged KV cache of one rank: blocks with an identity are shared by reference and stay until evicted; blocks that
// are being filled are only counted.
type cache struct {
	rank     int
	capacity int
	private  int // blocks without identity yet
	blocks   map[uint64]*cachedBlock
	idle     list.List // *cachedBlock without references, least recently used first
	events   Events
	removed  []uint64
}

type cachedBlock struct {
	hash       uint64
	references int
	position   int           // in its sequence, for eviction of tails before heads
	idle       *list.Element // set while references is 0
}

func newCache(rank, capacity int, events Events) *cache {
	return &cache{rank: rank, capacity: capacity, blocks: make(map[uint64]*cachedBlock), events: events}
}

// inUse returns the blocks that sequences hold.
func (c *cache) inUse() int { return len(c.blocks) - c.idle.Len() + c.private }

// matched returns how many of the leading hashes are cached.
func (c *cache) matched(hashes []uint64) int {
	for i, hash := range hashes {
		if c.blocks[hash] == nil {
			return i
		}
	}
	return len(hashes)
}

// reserve makes room for count more blocks, evicting idle ones; it changes nothing when there is no room.
func (c *cache) reserve(count int) bool {
	if c.inUse()+count > c.capacity {
		return false
	}
	for len(c.blocks)+c.private+count > c.capacity {
		victim := c.idle.Front().Value.(*cachedBlock)
		c.idle.Remove(victim.idle)
		delete(c.blocks, victim.hash)
		c.removed = append(c.removed, victim.hash)
	}
	if len(c.removed) > 0 {
		c.events.Removed(c.rank, c.removed)
		c.removed = c.removed[:0]
	}
	c.private += count
	return true
}

// hold takes a reference to a cached block.
func (c *cache) hold(hash uint64) {
	block := c.blocks[hash]
	if block.idle != nil {
		c.idle.Remove(block.idle)
		block.idle = nil
	}
	block.references++
}

// complete gives one private block its identity and a reference; it reports whether the block is new to the cache.
func (c *cache) complete(hash uint64, position int) bool {
	c.private--
	if block := c.blocks[hash]; block != nil {
		c.hold(hash)
		return false
	}
	c.blocks[hash] = &cachedBlock{hash: hash, references: 1, position: position}
	return true
}

// release drops the references of a sequence, its last block first, so that tails are evicted before what they extend.
func (c *cache) release(hashes []uint64, private int) {
	c.private -= private
	for i := len(hashes) - 1; i >= 0; i-- {
		block := c.blocks[hashes[i]]
		if block == nil {
			continue
		}
		if block.references--; block.references == 0 {
			block.idle = c.idle.PushBack(block)
		}
	}
}

// forget evicts all idle blocks: caching is off.
func (c *cache) forget() {
	for c.idle.Len() > 0 {
		victim := c.idle.Remove(c.idle.Front()).(*cachedBlock)
		delete(c.blocks, victim.hash)
		c.removed = append(c.removed, victim.hash)
	}
	if len(c.removed) > 0 {
		c.events.Removed(c.rank, c.removed)
		c.removed = c.removed[:0]
	}
}

// noEvents ignores everything.
type noEvents struct{}

func (noEvents) Stored(int, uint64, bool, []Block) {}
func (noEvents) Removed(int, []uint64)             {}
func (noEvents) Load(int, int)                     {}
