package tokenizer

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Special tokens cut a conversation into segments, and the tokens of a segment do not depend on what is before or behind it. A
// segmentCache remembers the tokens of whole segments, so that the next turn of a conversation costs what its new segments cost. Each
// entry keeps its text: what it answers is what encoding would give.
type segmentCache struct {
	seed   maphash.Seed
	shards [segmentShards]segmentShard
	limit  int // bytes, of one shard

	hits, misses, known, encoded atomic.Uint64
}

const (
	segmentShards = 16
	// minSegment is the length in bytes from which looking up is cheaper than encoding.
	minSegment = 64
	// segmentOverhead is what an entry takes beside its text and ids, in bytes.
	segmentOverhead = 160
)

type segmentShard struct {
	mu      sync.Mutex
	entries map[uint64]*segment
	// A ring: head.older is the newest entry, head.newer the oldest.
	head  segment
	bytes int
}

type segment struct {
	hash         uint64
	text         string
	first        bool // it was at the beginning of the whole text
	ids          []uint32
	newer, older *segment
}

func (s *segment) bytes() int { return len(s.text) + 4*len(s.ids) + segmentOverhead }

func newSegmentCache(maxBytes int) *segmentCache {
	c := &segmentCache{seed: maphash.MakeSeed(), limit: maxBytes / segmentShards}
	for i := range c.shards {
		shard := &c.shards[i]
		shard.entries = make(map[uint64]*segment)
		shard.head.newer, shard.head.older = &shard.head, &shard.head
	}
	return c
}

// get returns the ids of a segment, which the caller must not change; nil if it is not there.
func (c *segmentCache) get(hash uint64, text string, first bool) []uint32 {
	shard := &c.shards[hash%segmentShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	found := shard.entries[hash]
	if found == nil || found.first != first || found.text != text {
		return nil
	}
	if shard.head.older != found {
		found.unlink()
		shard.push(found)
	}
	return found.ids
}

// put stores a segment and drops those that were not asked for the longest until there is room.
func (c *segmentCache) put(hash uint64, text string, first bool, ids []uint32) {
	added := &segment{hash: hash, first: first, text: strings.Clone(text), ids: slices.Clone(ids)}
	if added.bytes() > c.limit/2 {
		return
	}
	shard := &c.shards[hash%segmentShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if old := shard.entries[hash]; old != nil {
		shard.drop(old)
	}
	for shard.bytes+added.bytes() > c.limit {
		shard.drop(shard.head.newer)
	}
	shard.entries[hash] = added
	shard.bytes += added.bytes()
	shard.push(added)
}

// push makes s the newest: the one older than the head of the ring.
func (s *segmentShard) push(added *segment) {
	added.newer, added.older = &s.head, s.head.older
	added.newer.older, added.older.newer = added, added
}

func (s *segment) unlink() { s.newer.older, s.older.newer = s.older, s.newer }

func (s *segmentShard) drop(old *segment) {
	old.unlink()
	delete(s.entries, old.hash)
	s.bytes -= old.bytes()
}

// Remember makes the tokenizer remember the tokens of text between added tokens, in at most maxBytes, so that a conversation of many
// turns costs no more than its last one. It has to be called before the tokenizer is in use; 0 forgets all.
func (t *Tokenizer) Remember(maxBytes int) {
	t.segments = nil
	if maxBytes > 0 {
		t.segments = newSegmentCache(maxBytes)
	}
}

// CacheStats counts what [Tokenizer.Remember] has been good for.
type CacheStats struct {
	Hits, Misses uint64 // segments that were long enough to be looked up
	// CachedTokens came from the cache; UncachedTokens of segments that were looked up did not.
	CachedTokens, UncachedTokens uint64
}

// CacheStats returns the counts since [Tokenizer.Remember].
func (t *Tokenizer) CacheStats() CacheStats {
	c := t.segments
	if c == nil {
		return CacheStats{}
	}
	return CacheStats{Hits: c.hits.Load(), Misses: c.misses.Load(), CachedTokens: c.known.Load(), UncachedTokens: c.encoded.Load()}
}

// remembered is stretch by way of the cache.
func (t *Tokenizer) remembered(out *result, in text, cuts []int32) {
	c := t.segments
	if c == nil || out.track || len(in.s) < minSegment {
		t.stretch(out, in, cuts)
		return
	}
	hash := maphash.String(c.seed, in.s)
	if ids := c.get(hash, in.s, in.first); ids != nil {
		c.hits.Add(1)
		c.known.Add(uint64(len(ids)))
		out.ids = append(out.ids, ids...)
		return
	}
	start := len(out.ids)
	t.stretch(out, in, cuts)
	c.misses.Add(1)
	c.encoded.Add(uint64(len(out.ids) - start))
	if len(out.ids) > start {
		c.put(hash, in.s, in.first, out.ids[start:])
	}
}
