package kvhash

import (
	"encoding/binary"

	"lukechampine.com/blake3"
)

// LoRAID returns the positive 31-bit number by which engines know the adapter with the given name. It plays no part in hashing.
func LoRAID(name string) int32 {
	digest := blake3.Sum256([]byte(name))
	id := int32(binary.BigEndian.Uint64(digest[:8]) & 0x7fffffff)
	if id == 0 {
		return 1
	}
	return id
}
