package kvevents

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"signalbox/internal/packed"
)

// Envelope is one message of the event plane.
type Envelope struct {
	// PublisherID is the sender's: at most 53 bits, and not the id of a worker.
	PublisherID uint64
	// Sequence counts the publisher's messages from 0.
	Sequence uint64
	// PublishedAt is the sender's clock in Unix milliseconds.
	PublishedAt uint64
	// Payload is the topic's own MessagePack. It is valid only as long as the message that it was read from.
	Payload []byte
}

// Sizes of the frames of a message over ZeroMQ: topic, publisher id, sequence, and the envelope behind a version and a length.
const (
	zmqFrames     = 4
	idSize        = 8
	framePrefix   = 5
	frameVersion1 = 1
)

// ParseFrames reads a message as it comes over ZeroMQ. All that is said twice in it must agree.
func ParseFrames(parts [][]byte, topic string) (Envelope, error) {
	if len(parts) != zmqFrames {
		return Envelope{}, fmt.Errorf("a message of %d frames; want %d", len(parts), zmqFrames)
	}
	if string(parts[0]) != topic {
		return Envelope{}, fmt.Errorf("a message of topic %.100q; want %q", parts[0], topic)
	}
	if len(parts[1]) != idSize || len(parts[2]) != idSize {
		return Envelope{}, fmt.Errorf("publisher id and sequence have %d and %d bytes; want %d", len(parts[1]), len(parts[2]), idSize)
	}
	body := parts[3]
	if len(body) < framePrefix || body[0] != frameVersion1 {
		return Envelope{}, fmt.Errorf("the frame begins with %x; want version 1 and a length", body[:min(len(body), framePrefix)])
	}
	if size := binary.BigEndian.Uint32(body[1:]); uint64(size) != uint64(len(body)-framePrefix) {
		return Envelope{}, fmt.Errorf("the frame announces %d bytes and has %d", size, len(body)-framePrefix)
	}
	envelope, err := ParseEnvelope(body[framePrefix:], topic)
	if err != nil {
		return Envelope{}, err
	}
	if id := binary.BigEndian.Uint64(parts[1]); id != envelope.PublisherID {
		return Envelope{}, fmt.Errorf("the frame names publisher %d, the envelope %d", id, envelope.PublisherID)
	}
	if sequence := binary.BigEndian.Uint64(parts[2]); sequence != envelope.Sequence {
		return Envelope{}, fmt.Errorf("the frame has sequence %d, the envelope %d", sequence, envelope.Sequence)
	}
	return envelope, nil
}

// ParseEnvelope reads a bare envelope, as NATS carries it.
func ParseEnvelope(data []byte, topic string) (envelope Envelope, err error) {
	const (
		hasPublisher = 1 << iota
		hasSequence
		hasPayload
		hasTopic
		hasAll = hasPublisher | hasSequence | hasPayload | hasTopic
	)
	seen := 0
	rest, err := packed.Each(data, func(key, value []byte) (rest []byte, err error) {
		switch string(key) {
		case "publisher_id":
			seen |= hasPublisher
			envelope.PublisherID, rest, err = readUint(value)
		case "sequence":
			seen |= hasSequence
			envelope.Sequence, rest, err = readUint(value)
		case "published_at":
			envelope.PublishedAt, rest, err = readUint(value)
		case "topic":
			seen |= hasTopic
			var name []byte
			if name, rest, err = msgp.ReadStringZC(value); err == nil && string(name) != topic {
				err = fmt.Errorf("%.100q; want %q", name, topic)
			}
		case "payload":
			seen |= hasPayload
			envelope.Payload, rest, err = msgp.ReadBytesZC(value)
		default:
			rest, err = msgp.Skip(value)
		}
		return rest, err
	})
	switch {
	case err != nil:
		return Envelope{}, fmt.Errorf("envelope: %w", err)
	case seen != hasAll:
		return Envelope{}, errors.New("envelope: publisher_id, sequence, topic and payload must be there")
	case len(rest) > 0:
		return Envelope{}, fmt.Errorf("envelope: %d bytes after its end", len(rest))
	}
	return envelope, nil
}

// readUint reads an integer of any width; a negative one is the same 64 bits, as some engines write hashes.
func readUint(data []byte) (uint64, []byte, error) {
	if len(data) >= 9 && data[0] == 0xcf { // what hashes are, nearly always
		return binary.BigEndian.Uint64(data[1:]), data[9:], nil
	}
	if msgp.NextType(data) == msgp.IntType {
		value, rest, err := msgp.ReadInt64Bytes(data)
		return uint64(value), rest, err
	}
	return msgp.ReadUint64Bytes(data)
}

// readOptional reads an integer or nil.
func readOptional(data []byte) (value uint64, known bool, rest []byte, err error) {
	if msgp.IsNil(data) {
		rest, err = msgp.ReadNilBytes(data)
		return 0, false, rest, err
	}
	value, rest, err = readUint(data)
	return value, true, rest, err
}
