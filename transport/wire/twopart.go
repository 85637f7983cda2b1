package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	// PrefixSize is the size in bytes of a two-part message's prefix: header length, data length and checksum, 8 each.
	PrefixSize = 24
	// DefaultMaxMessage is the largest message that either side takes, in bytes (DYN_TCP_MAX_MESSAGE_SIZE).
	DefaultMaxMessage = 32 << 20
	// MaxControl is the largest control JSON, in bytes.
	MaxControl = 128 << 10
)

// Message is a two-part message: a header that speaks about the transport, always JSON, and data in the negotiated codec.
// Either may be empty.
type Message struct {
	Header, Data []byte
}

// AppendPrefix appends the prefix of a two-part message whose parts have these sizes in bytes. The checksum is 0: "none".
func AppendPrefix(dst []byte, header, data int) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(header))
	dst = binary.BigEndian.AppendUint64(dst, uint64(data))
	return binary.BigEndian.AppendUint64(dst, 0)
}

// AppendMessage appends a whole two-part message.
func AppendMessage(dst, header, data []byte) []byte {
	dst = AppendPrefix(dst, len(header), len(data))
	dst = append(dst, header...)
	return append(dst, data...)
}

// setDataLength patches the prefix at start, once the data that follows it is written.
func setDataLength(dst []byte, start int) {
	binary.BigEndian.PutUint64(dst[start+8:], uint64(len(dst)-start-PrefixSize))
}

// ParsePrefix returns the sizes of the parts that follow, in bytes. limit bounds the whole message.
func ParsePrefix(prefix []byte, limit int) (header, data int, err error) {
	if len(prefix) < PrefixSize {
		return 0, 0, &FormatError{Part: "message prefix", Problem: fmt.Sprintf("has %d bytes, must have %d", len(prefix), PrefixSize)}
	}
	headerSize, dataSize := binary.BigEndian.Uint64(prefix), binary.BigEndian.Uint64(prefix[8:])
	room := uint64(max(limit-PrefixSize, 0))
	if headerSize > room || dataSize > room-headerSize {
		return 0, 0, &FormatError{Part: "message prefix", Problem: fmt.Sprintf(
			"announces %d bytes of header and %d of data, the limit is %d for the whole message", headerSize, dataSize, limit)}
	}
	return int(headerSize), int(dataSize), nil
}

// ParseMessage splits a message that is all there, as in a request's payload.
func ParseMessage(payload []byte, limit int) (Message, error) {
	header, data, err := ParsePrefix(payload, limit)
	if err != nil {
		return Message{}, err
	}
	if rest := len(payload) - PrefixSize; rest != header+data {
		return Message{}, &FormatError{Part: "message", Offset: PrefixSize, Problem: fmt.Sprintf(
			"announces %d bytes after the prefix and has %d", header+data, rest)}
	}
	body := payload[PrefixSize:]
	return Message{Header: body[:header:header], Data: body[header:]}, nil
}

// MessageReader reads two-part messages from a connection. It hands out parts of its own buffer, so that a message that fits
// is never copied, and can tell whether the next one has arrived already.
type MessageReader struct {
	source io.Reader
	limit  int
	buffer []byte
	// unread bytes are buffer[start:end]; those of the message handed out last lie before start.
	start, end int
}

const (
	readBuffer = 8 << 10
	keepBuffer = 64 << 10 // a larger buffer isn't kept for the next connection
)

// NewMessageReader makes a reader; limit bounds each message in bytes.
func NewMessageReader(source io.Reader, limit int) *MessageReader {
	return &MessageReader{source: source, limit: limit, buffer: make([]byte, readBuffer)}
}

// Reset makes the reader ready for another connection. The buffer is kept unless it grew large.
func (r *MessageReader) Reset(source io.Reader, limit int) {
	r.source, r.limit, r.start, r.end = source, limit, 0, 0
	if len(r.buffer) > keepBuffer {
		r.buffer = make([]byte, readBuffer)
	}
}

// SetLimit bounds the messages that are still to come, in bytes.
func (r *MessageReader) SetLimit(limit int) { r.limit = limit }

// Buffered tells whether Next returns without reading.
func (r *MessageReader) Buffered() bool {
	if r.end-r.start < PrefixSize {
		return false
	}
	header, data, err := ParsePrefix(r.buffer[r.start:r.end], r.limit)
	return err != nil || r.end-r.start-PrefixSize >= header+data
}

// Next returns the next message; its parts are valid until the following call. io.EOF means that the peer closed between two
// messages, io.ErrUnexpectedEOF that it closed within one. After an error of a deadline Next can be called again: nothing
// that has arrived is lost.
func (r *MessageReader) Next() (Message, error) {
	if err := r.fill(PrefixSize); err != nil {
		return Message{}, err
	}
	header, data, err := ParsePrefix(r.buffer[r.start:r.end], r.limit)
	if err != nil {
		return Message{}, err
	}
	size := PrefixSize + header + data
	if err := r.fill(size); err != nil {
		return Message{}, err
	}
	body := r.buffer[r.start+PrefixSize : r.start+size]
	r.start += size
	return Message{Header: body[:header:header], Data: body[header:]}, nil
}

// fill reads until size bytes are unread in the buffer.
func (r *MessageReader) fill(size int) error {
	for r.end-r.start < size {
		r.makeRoom(size)
		n, err := r.source.Read(r.buffer[r.end:])
		r.end += n
		if err != nil && r.end-r.start < size {
			if err == io.EOF && r.end > r.start {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// makeRoom moves the unread bytes to the front when a message of size bytes can't follow them where they are, and doubles a
// full buffer: it grows as a large message arrives, an announced length alone costs no memory.
func (r *MessageReader) makeRoom(size int) {
	if r.start > 0 && (r.start == r.end || r.start+size > len(r.buffer)) {
		copy(r.buffer, r.buffer[r.start:r.end])
		r.start, r.end = 0, r.end-r.start
	}
	if r.end == len(r.buffer) {
		grown := make([]byte, max(min(size, 2*len(r.buffer)), readBuffer))
		copy(grown, r.buffer)
		r.buffer = grown
	}
}
