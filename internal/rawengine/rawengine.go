// Package rawengine publishes events as inference engines do, for tests and replays.
package rawengine

import (
	"encoding/binary"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"signalbox/transport/zmq"
)

// Engine publishes batches of raw events as an inference engine does, and tells nothing again.
type Engine struct {
	*zmq.Publisher
	sequence uint64
}

// New returns an engine that publishes at a free port of this machine.
func New() (*Engine, error) {
	publisher, err := zmq.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &Engine{Publisher: publisher}, nil
}

// Endpoint is where the engine publishes.
func (e *Engine) Endpoint() string { return fmt.Sprintf("tcp://127.0.0.1:%d", e.Port()) }

// Send publishes a batch of events under the next sequence number, and returns that.
func (e *Engine) Send(events ...[]byte) uint64 {
	e.Publish([]byte("kv-events"), binary.BigEndian.AppendUint64(nil, e.sequence), Batch(events...))
	e.sequence++
	return e.sequence - 1
}

// Skip uses up a sequence number without publishing, as if a batch were lost.
func (e *Engine) Skip() { e.sequence++ }

// Batch is a batch of events as engines encode it.
func Batch(events ...[]byte) []byte {
	batch := msgp.AppendArrayHeader(nil, 2)
	batch = msgp.AppendFloat64(batch, 1)
	batch = msgp.AppendArrayHeader(batch, uint32(len(events)))
	for _, event := range events {
		batch = append(batch, event...)
	}
	return batch
}

// BlockTokens is how many tokens a block of the recorded sessions has.
const BlockTokens = 4

// Stored says that blocks were stored in a medium: their tokens count up from first. A nil parent is the root.
func Stored(medium string, parent *uint64, first uint32, hashes ...uint64) []byte {
	b := msgp.AppendArrayHeader(nil, 7)
	b = msgp.AppendString(b, "BlockStored")
	b = msgp.AppendArrayHeader(b, uint32(len(hashes)))
	for _, hash := range hashes {
		b = msgp.AppendUint64(b, hash)
	}
	if parent != nil {
		b = msgp.AppendUint64(b, *parent)
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendArrayHeader(b, uint32(BlockTokens*len(hashes)))
	for i := range uint32(BlockTokens * len(hashes)) {
		b = msgp.AppendUint32(b, first+i)
	}
	b = msgp.AppendInt(b, BlockTokens)
	b = msgp.AppendNil(b)
	return msgp.AppendString(b, medium)
}

// Removed says that a block left the device.
func Removed(hash uint64) []byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendString(b, "BlockRemoved")
	b = msgp.AppendArrayHeader(b, 1)
	b = msgp.AppendUint64(b, hash)
	return msgp.AppendString(b, "GPU")
}
