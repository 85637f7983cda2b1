package engine

import (
	"slices"
	"strconv"
	"strings"

	"signalbox/kvhash"
	"signalbox/kvindex"
)

// Options describe the engine whose batches are read.
type Options struct {
	WorkerID uint64
	// BlockSize is the number of tokens in a block, as the model's card says it.
	BlockSize int
	// ImageToken is the placeholder of images when HasImageToken: then blocks are hashed with a token of each image in its place,
	// as prompts are on that model.
	ImageToken    uint32
	HasImageToken bool
}

// Counters tell what became of the events of an engine. They only grow.
type Counters struct {
	// Accepted events went on.
	Accepted uint64
	// OtherType counts events of a type that is not known, Elsewhere those about blocks that this worker does not own or that are
	// on a medium that is not known, OtherGroup those of cache groups that hold no whole prefix, Ambiguous those whose cache
	// namespace cannot be told, Invalid those that name a block twice, and Kept removals of blocks that are stored more than once.
	OtherType, Elsewhere, OtherGroup, Ambiguous, Invalid, Kept uint64
	// Unreadable counts events that could not be read.
	Unreadable uint64
}

// Normalizer makes index events of the batches of one engine. It is for one goroutine.
type Normalizer struct {
	options  Options
	counters Counters
	hashers  map[kvhash.Scope]kvhash.Hasher
	ranks    map[uint32]*rankBooks

	raw    rawEvent
	events []kvindex.Event
	window []uint32
}

// rankBooks is what must be remembered of a rank: as much as its engine holds.
type rankBooks struct {
	groups map[int64]string // the kinds of cache groups
	blocks map[uint64]block
}

type block struct {
	stores    [kvindex.Tiers]uint32 // without a removal
	namespace string
	ambiguous bool // it was seen in two namespaces
}

// hasherLimit bounds the hashers kept, one for each adapter and namespace.
const hasherLimit = 1024

// New returns a normalizer.
func New(options Options) (*Normalizer, error) {
	if _, err := kvhash.New(kvhash.Scope{BlockSize: options.BlockSize}); err != nil {
		return nil, err
	}
	return &Normalizer{options: options, hashers: make(map[kvhash.Scope]kvhash.Hasher), ranks: make(map[uint32]*rankBooks)}, nil
}

// Counters returns what became of the events so far.
func (n *Normalizer) Counters() Counters { return n.counters }

// Forget drops what is remembered of a rank, whose blocks are to be learned anew.
func (n *Normalizer) Forget(dpRank uint32) { delete(n.ranks, dpRank) }

// Batch returns the events that a batch makes, in order; they are valid until the next call. A batch that can't be read at all is
// an error. Single events that can't be read are left out: complete is then false, and the rank is as after lost messages.
func (n *Normalizer) Batch(payload []byte) (events []kvindex.Event, complete bool, err error) {
	n.events = n.events[:0]
	b, err := decodeBatch(payload)
	if err != nil {
		return nil, false, err
	}
	books := n.ranks[b.rank]
	if books == nil {
		books = &rankBooks{groups: make(map[int64]string), blocks: make(map[uint64]block)}
		n.ranks[b.rank] = books
	}
	complete = true
	for _, data := range b.events {
		if n.raw.decode(data) != nil {
			n.counters.Unreadable++
			complete = false
			continue
		}
		n.take(books, kvindex.Rank{WorkerID: n.options.WorkerID, DPRank: b.rank})
	}
	return n.events, complete, nil
}

// take makes an index event of the raw one, or counts why not.
func (n *Normalizer) take(books *rankBooks, rank kvindex.Rank) {
	raw := &n.raw
	if raw.op == ignored {
		n.counters.OtherType++
		return
	}
	event := kvindex.Event{Rank: rank, Op: kvindex.Cleared}
	if raw.op == cleared {
		clear(books.blocks)
		n.emit(event)
		return
	}
	tier, known := tierOf(raw.medium)
	if !known || raw.owned || raw.locality != "" && raw.locality != "LOCAL" {
		n.counters.Elsewhere++
		return
	}
	event.Tier = tier
	if (tier == kvindex.Device || tier == kvindex.HostPinned) && !books.serves(raw) {
		n.counters.OtherGroup++
		return
	}
	if raw.op == removed {
		event.Op, event.Hashes = kvindex.Removed, books.remove(tier, raw.hashes)
		if len(event.Hashes) == 0 {
			n.counters.Kept++
			return
		}
		n.emit(event)
		return
	}
	namespace, ok := books.namespace(raw)
	if !ok {
		n.counters.Ambiguous++
		return
	}
	if repeats(raw) {
		n.counters.Invalid++
		return
	}
	event.Op, event.Parent, event.HasParent = kvindex.Stored, raw.parent, raw.hasParent
	event.Blocks = n.blocks(namespace)
	for _, stored := range event.Blocks {
		books.store(tier, stored.Hash, namespace)
	}
	n.emit(event)
}

func (n *Normalizer) emit(event kvindex.Event) {
	n.counters.Accepted++
	n.events = append(n.events, event)
}

// tierOf returns the tier that a medium belongs to.
func tierOf(medium string) (kvindex.Tier, bool) {
	switch medium {
	case "", "GPU", "DEVICE":
		return kvindex.Device, true
	case "CPU", "CPU_PINNED", "CPU_TIER1":
		return kvindex.HostPinned, true
	case "CPU_TIER2", "DISK", "NVME", "STORAGE":
		return kvindex.Disk, true
	case "EXTERNAL", "NETWORK", "REMOTE", "SHARED":
		return kvindex.External, true
	}
	return 0, false
}

// serves tells whether the event is of a cache group in which a prefix is whole: one of full attention. Stores teach what kind a
// group is of.
func (b *rankBooks) serves(raw *rawEvent) bool {
	kind := raw.kind
	switch {
	case raw.group < 0 && kind == "":
		return true
	case raw.group >= 0 && kind == "":
		var known bool
		if kind, known = b.groups[raw.group]; !known {
			return raw.group == 0
		}
	case raw.group >= 0 && raw.op == stored && len(b.groups) < 1024:
		b.groups[raw.group] = kind
	}
	switch kind {
	case "full_attention", "mla_attention", "sink_full_attention":
		return true
	}
	return false
}

// remove counts removals and returns the blocks that are gone now. Blocks that were never seen count as gone.
func (b *rankBooks) remove(tier kvindex.Tier, hashes []uint64) []uint64 {
	gone := make([]uint64, 0, len(hashes))
	for _, hash := range hashes {
		entry := b.blocks[hash]
		if entry.stores[tier] > 1 {
			entry.stores[tier]--
			b.blocks[hash] = entry
			continue
		}
		gone = append(gone, hash)
		entry.stores[tier] = 0
		if entry.stores == [kvindex.Tiers]uint32{} {
			delete(b.blocks, hash)
		} else {
			b.blocks[hash] = entry
		}
	}
	return gone
}

// store counts a store.
func (b *rankBooks) store(tier kvindex.Tier, hash uint64, namespace string) {
	entry, known := b.blocks[hash]
	if known && entry.namespace != namespace {
		entry.ambiguous = true
	}
	if !known {
		entry.namespace = namespace
	}
	entry.stores[tier]++
	b.blocks[hash] = entry
}

// saltKey begins the extra key in which frontends hand a request's cache namespace to vLLM.
const saltKey = "dynamo-cache-salt:"

// namespace returns the cache namespace of a store: its own, or its parent's.
func (b *rankBooks) namespace(raw *rawEvent) (namespace string, ok bool) {
	if raw.salt != "" {
		return raw.salt, true
	}
	if len(raw.keys) > 0 {
		keys := raw.keys[0]
		if len(keys) > 0 && raw.lora != "" && keys[0] == raw.lora {
			keys = keys[1:]
		}
		if len(keys) > 0 && strings.HasPrefix(keys[0], saltKey) && len(keys[0]) > len(saltKey) {
			return keys[0][len(saltKey):], true
		}
	}
	if !raw.hasParent {
		return "", true
	}
	parent := b.blocks[raw.parent]
	return parent.namespace, !parent.ambiguous
}

// repeats tells whether a store names a block twice, or a block as its own ancestor.
func repeats(raw *rawEvent) bool {
	if raw.hasParent && slices.Contains(raw.hashes, raw.parent) {
		return true
	}
	if len(raw.hashes) < 32 {
		for i, hash := range raw.hashes {
			if slices.Contains(raw.hashes[:i], hash) {
				return true
			}
		}
		return false
	}
	seen := make(map[uint64]bool, len(raw.hashes))
	for _, hash := range raw.hashes {
		if seen[hash] {
			return true
		}
		seen[hash] = true
	}
	return false
}

// blocks hashes the tokens of a store. Blocks of another size, and those whose tokens are not all there, end the list.
func (n *Normalizer) blocks(namespace string) []kvindex.Block {
	raw, size := &n.raw, n.options.BlockSize
	if raw.blockSize != uint64(size) {
		return nil
	}
	hasher := n.hasher(kvhash.Scope{BlockSize: size, LoRA: raw.lora, CacheNamespace: namespace, Eagle: raw.eagle})
	count := min(hasher.Blocks(len(raw.tokens)), len(raw.hashes))
	list := make([]kvindex.Block, count)
	width := size
	if raw.eagle {
		width++
	}
	for i := range list {
		window, objects := raw.tokens[i*size:i*size+width], n.objects(i)
		if n.options.HasImageToken && len(objects) > 0 {
			images := make([]uint64, len(objects))
			for j, object := range objects {
				images[j] = object.Hash
			}
			n.window = append(n.window[:0], window...)
			kvhash.SubstitutePlaceholders(n.window, n.options.ImageToken, images)
			window, objects = n.window, nil
		}
		list[i] = kvindex.Block{Hash: raw.hashes[i], Local: hasher.BlockWithObjects(window, objects)}
	}
	return list
}

// objects returns the multimodal objects of a block: as the engine lists them, or from its extra keys.
func (n *Normalizer) objects(i int) []kvhash.Object {
	raw := &n.raw
	if len(raw.objects) > 0 {
		if i < len(raw.objects) {
			return raw.objects[i]
		}
		return nil
	}
	if i >= len(raw.keys) {
		return nil
	}
	var objects []kvhash.Object
	for _, key := range raw.keys[i] {
		if hash, ok := objectHash(key); ok {
			objects = append(objects, kvhash.Object{Hash: hash})
		}
	}
	return objects
}

// objectHash reads the 64-bit hash of an object in the form that frontends give it to engines: 16 hexadecimal digits and 48 zeros.
// Identifiers that an engine made up itself are of no use: no prompt is hashed with them.
func objectHash(key string) (uint64, bool) {
	const digits, length = 16, 64
	if len(key) != length || strings.Trim(key[digits:], "0") != "" {
		return 0, false
	}
	hash, err := strconv.ParseUint(key[:digits], 16, 64)
	return hash, err == nil
}

// hasher returns the hasher of a scope.
func (n *Normalizer) hasher(scope kvhash.Scope) kvhash.Hasher {
	if hasher, ok := n.hashers[scope]; ok {
		return hasher
	}
	hasher, _ := kvhash.New(scope) // only the block size can be wrong, and New has checked that
	if len(n.hashers) >= hasherLimit {
		clear(n.hashers)
	}
	n.hashers[scope] = hasher
	return hasher
}
