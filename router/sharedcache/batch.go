package sharedcache

import (
	"encoding/binary"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"signalbox/internal/packed"
)

// tenant is the one whose objects are followed; it is also meant where none is named.
const tenant = "default"

// change is an object that came or went. key is valid as long as the message that it was read from.
type change struct {
	key     []byte
	removed bool
}

// parseBatch reads a message of the master: an empty topic, a sequence number of 8 big-endian bytes, and MessagePack of
// [time, events, rank]. Events of other tenants, without a key or of unknown kinds are left out.
func parseBatch(list []change, parts [][]byte) (sequence uint64, changes []change, err error) {
	if len(parts) != 3 {
		return 0, nil, fmt.Errorf("a message of %d frames, want 3", len(parts))
	}
	if len(parts[1]) != 8 {
		return 0, nil, fmt.Errorf("a sequence number of %d bytes, want 8", len(parts[1]))
	}
	sequence = binary.BigEndian.Uint64(parts[1])
	size, rest, err := msgp.ReadArrayHeaderBytes(parts[2])
	if err == nil && size != 3 {
		err = fmt.Errorf("%d members, want 3", size)
	}
	if err == nil {
		rest, err = msgp.Skip(rest) // the time
	}
	var events uint32
	if err == nil {
		events, rest, err = msgp.ReadArrayHeaderBytes(rest)
	}
	for ; err == nil && events > 0; events-- {
		list, rest, err = appendChange(list, rest)
	}
	if err == nil {
		rest, err = msgp.Skip(rest) // the rank
	}
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes too many", len(rest))
	}
	if err != nil {
		return 0, nil, fmt.Errorf("a batch of events: %w", err)
	}
	return sequence, list, nil
}

// appendChange reads one event: a map by name, or its members in order.
func appendChange(list []change, data []byte) ([]change, []byte, error) {
	var kind, key, owner []byte
	member := func(name string, value []byte) (rest []byte, err error) {
		var into *[]byte
		switch name {
		case "event_type":
			into = &kind
		case "object_key":
			into = &key
		case "tenant_id":
			into = &owner
		}
		if into == nil || msgp.NextType(value) == msgp.NilType {
			return msgp.Skip(value)
		}
		*into, rest, err = msgp.ReadStringZC(value)
		return rest, err
	}
	var rest []byte
	var err error
	if msgp.NextType(data) == msgp.ArrayType {
		var size uint32
		size, rest, err = msgp.ReadArrayHeaderBytes(data)
		names := []string{"event_type", "object_key", "tenant_id", "group_id"}
		for i := uint32(0); err == nil && i < size; i++ {
			name := ""
			if int(i) < len(names) {
				name = names[i]
			}
			rest, err = member(name, rest)
		}
	} else {
		rest, err = packed.Each(data, func(name, value []byte) ([]byte, error) { return member(string(name), value) })
	}
	if err != nil {
		return list, nil, err
	}
	if kind == nil {
		return list, nil, fmt.Errorf("an event without event_type")
	}
	if key == nil || len(owner) > 0 && string(owner) != tenant {
		return list, rest, nil
	}
	switch string(kind) {
	case "stored":
		list = append(list, change{key: key})
	case "removed":
		list = append(list, change{key: key, removed: true})
	}
	return list, rest, nil
}
