// Package packed reads what bodies in MessagePack of several rooms have in common.
package packed

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// Each reads a map: read is called with each key and what follows it, and returns what follows the value. It returns what follows
// the map; an error names the key.
func Each(data []byte, read func(key, value []byte) ([]byte, error)) ([]byte, error) {
	count, data, err := msgp.ReadMapHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	for range count {
		var key []byte
		if key, data, err = msgp.ReadMapKeyZC(data); err != nil {
			return nil, err
		}
		if data, err = read(key, data); err != nil {
			return nil, fmt.Errorf("%.100s: %w", key, err)
		}
	}
	return data, nil
}

// Hashes reads an array of block hashes, of which there may be up to limit.
func Hashes(data []byte, limit uint32) (hashes []uint64, rest []byte, err error) {
	count, rest, err := msgp.ReadArrayHeaderBytes(data)
	if err != nil {
		return nil, nil, err
	}
	if count > limit || int(count) > len(rest) {
		return nil, nil, fmt.Errorf("%d blocks in %d bytes; at most %d are allowed", count, len(rest), limit)
	}
	hashes = make([]uint64, count)
	for i := range hashes {
		if hashes[i], rest, err = msgp.ReadUint64Bytes(rest); err != nil {
			return nil, nil, err
		}
	}
	return hashes, rest, nil
}
