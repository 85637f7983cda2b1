package kvevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"

	"signalbox/kvindex"
)

// Event is one event of a publisher.
type Event struct {
	// ID counts the publisher's events, those of all tiers together.
	ID uint64
	// Change is what it does to the index. Its Op is 0 for an event that is of no use here but counts: of another residency
	// domain, or of a kind or tier that is not known.
	Change kvindex.Event
	// Legacy marks a Cleared event without a residency domain: it makes all that came before it pointless.
	Legacy bool
}

// Batch is the content of one message of the topic kv-events. It keeps its memory from message to message: in the steady state
// decoding allocates nothing. The zero value is ready.
type Batch struct {
	Events []Event

	blocks []kvindex.Block
	hashes []uint64
	spans  []span
}

// span is where the blocks or hashes of an event are, until all of them are read and their memory no longer moves.
type span struct{ from, to int }

// Decode reads a payload: an array of router events. What it returns is valid until the next call, and needs nothing of the
// payload. A payload that can't be read leaves no events.
func (b *Batch) Decode(payload []byte) error {
	rest, err := b.decode(payload)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("KV events: %d bytes after the end", len(rest))
	}
	if err != nil {
		b.Events = b.Events[:0]
	}
	return err
}

// decode reads an array of router events at the start of data and returns what follows.
func (b *Batch) decode(data []byte) ([]byte, error) {
	b.Events, b.blocks, b.hashes, b.spans = b.Events[:0], b.blocks[:0], b.hashes[:0], b.spans[:0]
	count, rest, err := msgp.ReadArrayHeaderBytes(data)
	if err != nil {
		return nil, fmt.Errorf("KV events: %w", err)
	}
	for i := range count {
		if rest, err = b.event(rest); err != nil {
			return nil, fmt.Errorf("KV event %d of %d: %w", i+1, count, err)
		}
	}
	for i := range b.Events {
		change, where := &b.Events[i].Change, b.spans[i]
		switch change.Op {
		case kvindex.Stored:
			change.Blocks = b.blocks[where.from:where.to:where.to]
		case kvindex.Removed:
			change.Hashes = b.hashes[where.from:where.to:where.to]
		}
	}
	return rest, nil
}

// event reads one router event. Members come in any order.
func (b *Batch) event(data []byte) ([]byte, error) {
	count, data, err := msgp.ReadMapHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	var (
		event                     Event
		where                     span
		hasWorker, hasID          bool
		foreign, unknown, hasHome bool
	)
	for range count {
		var key []byte
		if key, data, err = msgp.ReadMapKeyZC(data); err != nil {
			return nil, err
		}
		switch string(key) {
		case "worker_id":
			hasWorker = true
			event.Change.Rank.WorkerID, data, err = readUint(data)
		case "storage_tier":
			unknown, data, err = readTier(data, &event.Change.Tier)
		case "residency_domain":
			hasHome = true
			foreign, data, err = readDomain(data)
		case "event":
			hasID, data, err = b.body(data, &event, &where)
		default:
			data, err = msgp.Skip(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%.100s: %w", key, err)
		}
	}
	if !hasWorker || !hasID {
		return nil, errors.New("worker_id and event_id must be there")
	}
	event.Legacy = event.Change.Op == kvindex.Cleared && !hasHome
	if foreign || unknown {
		event.Change.Op = 0
	}
	b.Events = append(b.Events, event)
	b.spans = append(b.spans, where)
	return data, nil
}

// readTier reads a tier's name; unknown when there is no such tier.
func readTier(data []byte, tier *kvindex.Tier) (unknown bool, rest []byte, err error) {
	name, rest, err := msgp.ReadStringZC(data)
	if err != nil {
		return false, nil, err
	}
	switch string(name) { // without the allocation of kvindex.ParseTier's argument
	case "device", "":
		*tier = kvindex.Device
	case "host_pinned":
		*tier = kvindex.HostPinned
	case "disk":
		*tier = kvindex.Disk
	case "external":
		*tier = kvindex.External
	default:
		return true, rest, nil
	}
	return false, rest, nil
}

// readDomain reads whose the blocks are; foreign for anything but the worker's own.
func readDomain(data []byte) (foreign bool, rest []byte, err error) {
	if msgp.NextType(data) != msgp.StrType {
		rest, err = msgp.Skip(data)
		return true, rest, err
	}
	name, rest, err := msgp.ReadStringZC(data)
	return string(name) != "worker", rest, err
}

// body reads the inner event: id, data and rank.
func (b *Batch) body(data []byte, event *Event, where *span) (hasID bool, rest []byte, err error) {
	count, data, err := msgp.ReadMapHeaderBytes(data)
	if err != nil {
		return false, nil, err
	}
	for range count {
		var key []byte
		if key, data, err = msgp.ReadMapKeyZC(data); err != nil {
			return false, nil, err
		}
		switch string(key) {
		case "event_id":
			hasID = true
			event.ID, data, err = readUint(data)
		case "dp_rank":
			event.Change.Rank.DPRank, data, err = readRank(data)
		case "data":
			data, err = b.change(data, &event.Change, where)
		default:
			data, err = msgp.Skip(data)
		}
		if err != nil {
			return false, nil, fmt.Errorf("%.100s: %w", key, err)
		}
	}
	return hasID, data, nil
}

// readRank reads a rank; nil is rank 0.
func readRank(data []byte) (uint32, []byte, error) {
	value, _, rest, err := readOptional(data)
	if err == nil && value > math.MaxUint32 {
		err = fmt.Errorf("%d; want a rank of at most %d", value, uint32(math.MaxUint32))
	}
	return uint32(value), rest, err
}

// change reads {"stored": …}, {"removed": …} or "cleared". Another kind leaves the Op at 0.
func (b *Batch) change(data []byte, change *kvindex.Event, where *span) ([]byte, error) {
	if msgp.NextType(data) == msgp.StrType {
		name, rest, err := msgp.ReadStringZC(data)
		if string(name) == "cleared" {
			change.Op = kvindex.Cleared
		}
		return rest, err
	}
	count, data, err := msgp.ReadMapHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	for range count {
		var key []byte
		if key, data, err = msgp.ReadMapKeyZC(data); err != nil {
			return nil, err
		}
		switch string(key) {
		case "stored":
			change.Op = kvindex.Stored
			data, err = b.stored(data, change, where)
		case "removed":
			change.Op = kvindex.Removed
			data, err = b.removed(data, where)
		case "cleared":
			change.Op = kvindex.Cleared
			data, err = msgp.Skip(data)
		default:
			data, err = msgp.Skip(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%.100s: %w", key, err)
		}
	}
	return data, nil
}

func (b *Batch) stored(data []byte, change *kvindex.Event, where *span) ([]byte, error) {
	where.from, where.to = len(b.blocks), len(b.blocks)
	count, data, err := msgp.ReadMapHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	for range count {
		var key []byte
		if key, data, err = msgp.ReadMapKeyZC(data); err != nil {
			return nil, err
		}
		switch string(key) {
		case "parent_hash":
			change.Parent, change.HasParent, data, err = readOptional(data)
		case "blocks":
			data, err = b.chain(data)
			where.to = len(b.blocks)
		default:
			data, err = msgp.Skip(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%.100s: %w", key, err)
		}
	}
	return data, nil
}

// chain reads the blocks of a stored event.
func (b *Batch) chain(data []byte) ([]byte, error) {
	count, data, err := msgp.ReadArrayHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	for range count {
		if block, rest, ok := usualBlock(data); ok {
			b.blocks = append(b.blocks, block)
			data = rest
			continue
		}
		var members uint32
		if members, data, err = msgp.ReadMapHeaderBytes(data); err != nil {
			return nil, err
		}
		var block kvindex.Block
		found := 0
		for range members {
			var key []byte
			if key, data, err = msgp.ReadMapKeyZC(data); err != nil {
				return nil, err
			}
			switch string(key) {
			case "block_hash":
				found |= 1
				block.Hash, data, err = readUint(data)
			case "tokens_hash":
				found |= 2
				block.Local, data, err = readUint(data)
			default:
				data, err = msgp.Skip(data)
			}
			if err != nil {
				return nil, fmt.Errorf("%.100s: %w", key, err)
			}
		}
		if found != 3 {
			return nil, errors.New("a block needs block_hash and tokens_hash")
		}
		b.blocks = append(b.blocks, block)
	}
	return data, nil
}

// The bytes of a block without multimodal content, as both releases write it, but for the two hashes.
const (
	beforeHash  = "\x83\xaablock_hash\xcf"
	beforeLocal = "\xabtokens_hash\xcf"
	afterLocal  = "\xadmm_extra_info\xc0"

	hashAt     = len(beforeHash)
	localAt    = hashAt + 8 + len(beforeLocal)
	blockBytes = localAt + 8 + len(afterLocal)
)

// usualBlock reads a block that is written in exactly this way, which nearly all are; it saves three quarters of the decoding.
func usualBlock(data []byte) (block kvindex.Block, rest []byte, ok bool) {
	if len(data) < blockBytes || string(data[:hashAt]) != beforeHash || string(data[hashAt+8:localAt]) != beforeLocal ||
		string(data[localAt+8:blockBytes]) != afterLocal {
		return block, nil, false
	}
	block.Hash, block.Local = binary.BigEndian.Uint64(data[hashAt:]), binary.BigEndian.Uint64(data[localAt:])
	return block, data[blockBytes:], true
}

func (b *Batch) removed(data []byte, where *span) ([]byte, error) {
	where.from, where.to = len(b.hashes), len(b.hashes)
	count, data, err := msgp.ReadMapHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	for range count {
		var key []byte
		if key, data, err = msgp.ReadMapKeyZC(data); err != nil {
			return nil, err
		}
		if string(key) != "block_hashes" {
			if data, err = msgp.Skip(data); err != nil {
				return nil, err
			}
			continue
		}
		var hashes uint32
		if hashes, data, err = msgp.ReadArrayHeaderBytes(data); err != nil {
			return nil, err
		}
		for range hashes {
			var hash uint64
			if hash, data, err = readUint(data); err != nil {
				return nil, err
			}
			b.hashes = append(b.hashes, hash)
		}
		where.to = len(b.hashes)
	}
	return data, nil
}
