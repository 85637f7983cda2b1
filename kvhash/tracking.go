package kvhash

import (
	"encoding/binary"
	"fmt"
	"strings"

	"lukechampine.com/blake3"
)

// TrackingKeySize is the exact length of a tracking key in bytes.
const TrackingKeySize = 32

// trackingDomain separates this derivation from any other use of the same key; the trailing NUL belongs to it.
const trackingDomain = "dynamo.router.tracking-hash/keyed-xxh3-v1\x00"

// TrackingKey derives the keyed identities of active sequences ("keyed-xxh3-v1"). Routers that share the key and its id agree on
// them; anybody else cannot tell which prompts are equal. They replace the public identities in load tracking and replica
// synchronisation only, never in an event-driven index.
type TrackingKey struct {
	key [TrackingKeySize]byte
	id  string
}

// NewTrackingKey checks a key and its id: the key has exactly 32 raw bytes, the id is not empty and has no surrounding white space.
func NewTrackingKey(key []byte, id string) (TrackingKey, error) {
	if len(key) != TrackingKeySize {
		return TrackingKey{}, fmt.Errorf("kvhash: tracking key has %d bytes: it must have exactly %d raw bytes", len(key), TrackingKeySize)
	}
	if id == "" || strings.TrimSpace(id) != id {
		return TrackingKey{}, fmt.Errorf("kvhash: tracking key id %q: it must not be empty or have surrounding white space", id)
	}
	return TrackingKey{key: [TrackingKeySize]byte(key), id: id}, nil
}

// ID returns the name of the key.
func (k TrackingKey) ID() string { return k.id }

// Hasher returns the hasher of the keyed identities of a scope, for a model within a routing group ("default" where none is
// configured).
func (k TrackingKey) Hasher(model, routingGroup string, scope Scope) (Hasher, error) {
	if err := scope.validate(); err != nil {
		return Hasher{}, err
	}
	if int64(scope.BlockSize) > 1<<32-1 {
		return Hasher{}, fmt.Errorf("kvhash: block size %d: keyed identities allow at most %d", scope.BlockSize, uint32(1<<32-1))
	}
	message := []byte(trackingDomain)
	message = appendField(message, 1, k.id)
	message = appendField(message, 2, model)
	message = appendField(message, 3, routingGroup)
	message = appendField(message, 4, string(binary.LittleEndian.AppendUint32(nil, uint32(scope.BlockSize))))
	message = appendOptional(message, 5, scope.CacheNamespace)
	message = appendOptional(message, 6, scope.LoRA)
	eagle := "\x00"
	if scope.Eagle {
		eagle = "\x01"
	}
	message = appendField(message, 7, eagle)

	digest := blake3.New(32, k.key[:])
	digest.Write(message)
	sum := digest.Sum(nil)
	return newHasher(scope, binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:])), nil
}

// appendField appends a tagged field: tag, 8-byte little-endian length, bytes.
func appendField(message []byte, tag byte, value string) []byte {
	message = append(message, tag)
	message = binary.LittleEndian.AppendUint64(message, uint64(len(value)))
	return append(message, value...)
}

// appendOptional appends a tagged field that may be absent: tag and 0, or tag, 1, length and bytes.
func appendOptional(message []byte, tag byte, value string) []byte {
	if value == "" {
		return append(message, tag, 0)
	}
	message = append(message, tag, 1)
	message = binary.LittleEndian.AppendUint64(message, uint64(len(value)))
	return append(message, value...)
}
