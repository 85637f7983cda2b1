package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"

	"signalbox/kvhash"
)

// op is what a raw event does.
type op uint8

const (
	ignored op = iota // a type that is of no use here
	stored
	removed
	cleared
)

var operations = map[string]op{"BlockStored": stored, "BlockRemoved": removed, "AllBlocksCleared": cleared}

// Members of events that come as tuples, after the type's name. Later releases add members at the end.
var (
	storedMembers = []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
		"group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership"}
	removedMembers = []string{"block_hashes", "medium", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership"}
)

// rawEvent is an event as the engine wrote it. Its slices are reused.
type rawEvent struct {
	op        op
	hashes    []uint64
	parent    uint64
	hasParent bool
	tokens    []uint32
	eagle     bool // tokens came as pairs of neighbours
	blockSize uint64
	medium    string
	lora      string
	salt      string
	keys      [][]string        // of each block
	objects   [][]kvhash.Object // of each block
	group     int64             // -1: none
	kind      string            // of the group
	locality  string
	owned     bool
}

func (e *rawEvent) reset() {
	*e = rawEvent{hashes: e.hashes[:0], tokens: e.tokens[:0], keys: e.keys[:0], objects: e.objects[:0], group: -1}
}

// batch is the head of a batch.
type batch struct {
	rank   uint32
	events [][]byte // each one whole
}

// decodeBatch takes a batch apart: [time, events, rank], of which old engines leave the rank out, or a map of the same.
func decodeBatch(payload []byte) (b batch, err error) {
	switch msgp.NextType(payload) {
	case msgp.ArrayType:
		count, rest, err := msgp.ReadArrayHeaderBytes(payload)
		if err != nil || count < 2 {
			return b, fmt.Errorf("engine batch: a list of %d; want time, events and rank", count)
		}
		if rest, err = msgp.Skip(rest); err == nil {
			rest, err = b.readEvents(rest)
		}
		if err == nil && count > 2 {
			b.rank, _, err = readRank(rest)
		}
		return b, wrap(err)
	case msgp.MapType:
		_, err := eachMember(payload, func(name string, data []byte) (rest []byte, err error) {
			switch name {
			case "events":
				return b.readEvents(data)
			case "data_parallel_rank":
				b.rank, rest, err = readRank(data)
				return rest, err
			}
			return msgp.Skip(data)
		})
		return b, wrap(err)
	}
	return b, errors.New("engine batch: neither a list nor a map")
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("engine batch: %w", err)
}

func (b *batch) readEvents(data []byte) ([]byte, error) {
	count, data, err := msgp.ReadArrayHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	for range count {
		rest, err := msgp.Skip(data)
		if err != nil {
			return nil, err
		}
		b.events = append(b.events, data[:len(data)-len(rest)])
		data = rest
	}
	return data, nil
}

func readRank(data []byte) (uint32, []byte, error) {
	if msgp.IsNil(data) {
		rest, err := msgp.ReadNilBytes(data)
		return 0, rest, err
	}
	value, rest, err := readInt(data)
	if err == nil && (value < 0 || value > math.MaxUint32) {
		err = fmt.Errorf("rank %d; want 0 to %d", value, uint32(math.MaxUint32))
	}
	return uint32(value), rest, err
}

// eachMember reads a map of names.
func eachMember(data []byte, read func(name string, data []byte) ([]byte, error)) ([]byte, error) {
	count, data, err := msgp.ReadMapHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	for range count {
		var key []byte
		if key, data, err = msgp.ReadMapKeyZC(data); err != nil {
			return nil, err
		}
		name := string(key)
		if data, err = read(name, data); err != nil {
			return nil, fmt.Errorf("%.50s: %w", name, err)
		}
	}
	return data, nil
}

// decode reads one event: a tuple that begins with the type's name, or a map with a member "type".
func (e *rawEvent) decode(data []byte) error {
	e.reset()
	if msgp.NextType(data) == msgp.MapType {
		_, err := eachMember(data, func(name string, data []byte) ([]byte, error) {
			if name == "type" {
				text, rest, err := msgp.ReadStringBytes(data)
				e.op = operations[text]
				return rest, err
			}
			return e.member(name, data)
		})
		return err
	}
	count, data, err := msgp.ReadArrayHeaderBytes(data)
	if err != nil {
		return err
	}
	if count == 0 {
		return errors.New("an event of no members")
	}
	text, data, err := msgp.ReadStringBytes(data)
	if err != nil {
		return err
	}
	var members []string
	switch e.op = operations[text]; e.op {
	case stored:
		members = storedMembers
	case removed:
		members = removedMembers
	}
	for i := range min(int(count)-1, len(members)) {
		if data, err = e.member(members[i], data); err != nil {
			return fmt.Errorf("%s: %w", members[i], err)
		}
	}
	return nil
}

// member reads one member; nil is as good as none.
func (e *rawEvent) member(name string, data []byte) (rest []byte, err error) {
	if msgp.IsNil(data) {
		return msgp.ReadNilBytes(data)
	}
	switch name {
	case "block_hashes":
		count, data, err := msgp.ReadArrayHeaderBytes(data)
		for range count {
			if err != nil {
				break
			}
			var hash uint64
			hash, data, err = readHash(data)
			e.hashes = append(e.hashes, hash)
		}
		return data, err
	case "parent_block_hash":
		e.hasParent = true
		e.parent, rest, err = readHash(data)
	case "token_ids":
		return e.readTokens(data)
	case "block_size":
		e.blockSize, rest, err = msgp.ReadUint64Bytes(data)
	case "medium":
		e.medium, rest, err = msgp.ReadStringBytes(data)
	case "lora_name":
		if msgp.NextType(data) == msgp.MapType { // SGLang has the salt in its place
			return e.readSalt(data)
		}
		e.lora, rest, err = msgp.ReadStringBytes(data)
	case "cache_salt":
		e.salt, rest, err = msgp.ReadStringBytes(data)
	case "metadata":
		if msgp.NextType(data) == msgp.MapType {
			return e.readSalt(data)
		}
		return msgp.Skip(data)
	case "extra_keys":
		return e.readKeys(data)
	case "block_mm_infos":
		return e.readObjects(data)
	case "group_idx":
		e.group, rest, err = readInt(data)
	case "kv_cache_spec_kind":
		e.kind, rest, err = msgp.ReadStringBytes(data)
	case "locality":
		e.locality, rest, err = msgp.ReadStringBytes(data)
	case "ownership":
		e.owned = true
		return msgp.Skip(data)
	default:
		return msgp.Skip(data)
	}
	return rest, err
}

// readInt reads an integer of any width.
func readInt(data []byte) (int64, []byte, error) {
	if msgp.NextType(data) == msgp.UintType {
		value, rest, err := msgp.ReadUint64Bytes(data)
		if err == nil && value > math.MaxInt64 {
			err = fmt.Errorf("%d is too large", value)
		}
		return int64(value), rest, err
	}
	return msgp.ReadInt64Bytes(data)
}

// readHash reads an engine's name of a block: an integer, signed or not, or a digest of which the last 8 bytes count.
func readHash(data []byte) (uint64, []byte, error) {
	switch msgp.NextType(data) {
	case msgp.BinType:
		digest, rest, err := msgp.ReadBytesZC(data)
		if err == nil && len(digest) < 8 {
			err = fmt.Errorf("a block hash of %d bytes; want 8 or more", len(digest))
		}
		if err != nil {
			return 0, nil, err
		}
		return binary.BigEndian.Uint64(digest[len(digest)-8:]), rest, nil
	case msgp.IntType:
		value, rest, err := msgp.ReadInt64Bytes(data)
		return uint64(value), rest, err
	}
	return msgp.ReadUint64Bytes(data)
}

// readTokens reads token ids, or pairs of neighbouring ones, as engines that speculate with EAGLE write them.
func (e *rawEvent) readTokens(data []byte) ([]byte, error) {
	count, data, err := msgp.ReadArrayHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	last := uint32(0)
	for i := range count {
		if msgp.NextType(data) != msgp.ArrayType {
			var token uint32
			if token, data, err = msgp.ReadUint32Bytes(data); err == nil && e.eagle {
				err = fmt.Errorf("token %d is no pair, as those before it are", i)
			}
			if err != nil {
				return nil, err
			}
			e.tokens = append(e.tokens, token)
			continue
		}
		var width, token uint32
		if width, data, err = msgp.ReadArrayHeaderBytes(data); err != nil || width != 2 || (i > 0) != e.eagle {
			return nil, errors.Join(err, fmt.Errorf("token %d is a list of %d; want a pair, and pairs only", i, width))
		}
		e.eagle = true
		if token, data, err = msgp.ReadUint32Bytes(data); err == nil {
			last, data, err = msgp.ReadUint32Bytes(data)
		}
		if err != nil {
			return nil, err
		}
		e.tokens = append(e.tokens, token)
	}
	if e.eagle {
		e.tokens = append(e.tokens, last)
	}
	return data, nil
}

func (e *rawEvent) readSalt(data []byte) ([]byte, error) {
	return eachMember(data, func(name string, data []byte) (rest []byte, err error) {
		if name == "cache_salt" && msgp.NextType(data) == msgp.StrType {
			e.salt, rest, err = msgp.ReadStringBytes(data)
			return rest, err
		}
		return msgp.Skip(data)
	})
}

// readKeys reads what besides the tokens is in the blocks' hashes: of each block the texts, with or without an offset.
func (e *rawEvent) readKeys(data []byte) ([]byte, error) {
	count, data, err := msgp.ReadArrayHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	for range count {
		var keys []string
		if msgp.NextType(data) != msgp.ArrayType {
			if data, err = msgp.Skip(data); err != nil {
				return nil, err
			}
			e.keys = append(e.keys, nil)
			continue
		}
		var items uint32
		if items, data, err = msgp.ReadArrayHeaderBytes(data); err != nil {
			return nil, err
		}
		for range items {
			item := data
			if data, err = msgp.Skip(data); err != nil {
				return nil, err
			}
			if msgp.NextType(item) == msgp.ArrayType {
				if width, inner, err := msgp.ReadArrayHeaderBytes(item); err == nil && width > 0 {
					item = inner
				}
			}
			if msgp.NextType(item) == msgp.StrType {
				text, _, err := msgp.ReadStringBytes(item)
				if err != nil {
					return nil, err
				}
				keys = append(keys, text)
			}
		}
		e.keys = append(e.keys, keys)
	}
	return data, nil
}

// readObjects reads the multimodal objects of each block.
func (e *rawEvent) readObjects(data []byte) ([]byte, error) {
	count, data, err := msgp.ReadArrayHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	for range count {
		var objects []kvhash.Object
		if msgp.IsNil(data) {
			data, err = msgp.ReadNilBytes(data)
		} else {
			data, err = eachMember(data, func(name string, data []byte) ([]byte, error) {
				if name != "mm_objects" {
					return msgp.Skip(data)
				}
				count, data, err := msgp.ReadArrayHeaderBytes(data)
				for range count {
					if err != nil {
						break
					}
					var object kvhash.Object
					data, err = eachMember(data, func(name string, data []byte) (rest []byte, err error) {
						if name != "mm_hash" {
							return msgp.Skip(data)
						}
						object.Hash, rest, err = readHash(data)
						return rest, err
					})
					objects = append(objects, object)
				}
				return data, err
			})
		}
		if err != nil {
			return nil, err
		}
		e.objects = append(e.objects, objects)
	}
	return data, nil
}
