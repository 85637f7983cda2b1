// Package zmq speaks the part of ZeroMQ that Dynamo's event plane uses: PUB and SUB sockets over TCP (ZMTP 3.0, NULL mechanism),
// with bounded queues and reconnects. It knows nothing of what the messages say.
package zmq

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	greetingSize = 64
	// maxMessage bounds all parts of a message from outside, in bytes; event batches stay far below it.
	maxMessage = 64 << 20
	// maxParts bounds the parts of one message.
	maxParts = 64
	// growStep is how much memory a frame gets before its bytes have arrived: a length alone can't ask for more.
	growStep = 1 << 20
	// handshakeTime bounds a peer's greeting.
	handshakeTime = 10 * time.Second
)

// keepAlive finds out within half a minute that a peer's host is gone: a SUB socket never writes and would not notice otherwise.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// greeting is what both sides send first.
func greeting() []byte {
	b := make([]byte, greetingSize)
	b[0], b[8], b[9] = 0xff, 1, 0x7f
	b[10], b[11] = 3, 0
	copy(b[12:], "NULL")
	return b
}

func checkGreeting(b []byte) error {
	switch mechanism := bytes.TrimRight(b[12:32], "\x00"); {
	case b[0] != 0xff || b[9]&1 != 1:
		return errors.New("the peer does not speak ZMTP")
	case b[10] < 3:
		return fmt.Errorf("the peer speaks ZMTP %d; 3 is needed", b[10])
	case string(mechanism) != "NULL":
		return fmt.Errorf("the peer wants the mechanism %q; only NULL is supported", mechanism)
	}
	return nil
}

// appendFrame appends one frame.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	} else {
		dst = append(dst, flags, byte(len(body)))
	}
	return append(dst, body...)
}

// appendMessage appends the parts of a message.
func appendMessage(dst []byte, parts [][]byte) []byte {
	for i, part := range parts {
		flags := byte(0)
		if i+1 < len(parts) {
			flags = flagMore
		}
		dst = appendFrame(dst, flags, part)
	}
	return dst
}

// appendCommand appends a command frame: its name, then its data.
func appendCommand(dst []byte, name string, data []byte) []byte {
	body := append([]byte{byte(len(name))}, name...)
	return appendFrame(dst, flagCommand, append(body, data...))
}

func readyCommand(socketType string) []byte {
	const property = "Socket-Type"
	data := append([]byte{byte(len(property))}, property...)
	data = binary.BigEndian.AppendUint32(data, uint32(len(socketType)))
	return appendCommand(nil, "READY", append(data, socketType...))
}

// parseCommand splits a command's body.
func parseCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || int(body[0]) > len(body)-1 {
		return "", nil, errors.New("a command without a name")
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}

// frameReader reads messages and answers the peer's heartbeats. What it returns is overwritten by the next read.
type frameReader struct {
	source *bufio.Reader
	// limit bounds a message in bytes.
	limit  int
	buffer []byte
	ends   []int // where each part ends in the buffer
	parts  [][]byte
}

// frame reads one frame, its body appended to dst.
func (r *frameReader) frame(dst []byte) (flags byte, body []byte, err error) {
	if flags, err = r.source.ReadByte(); err != nil {
		return 0, dst, err
	}
	size := uint64(0)
	if flags&flagLong != 0 {
		var length [8]byte
		if _, err = io.ReadFull(r.source, length[:]); err != nil {
			return 0, dst, cut(err)
		}
		size = binary.BigEndian.Uint64(length[:])
	} else {
		short, err := r.source.ReadByte()
		if err != nil {
			return 0, dst, cut(err)
		}
		size = uint64(short)
	}
	if size > uint64(r.limit-len(dst)) {
		return 0, dst, fmt.Errorf("a frame of %d bytes in a message of at most %d", size, r.limit)
	}
	for left := int(size); left > 0; {
		step := min(left, growStep)
		dst = slices.Grow(dst, step)
		part := dst[len(dst) : len(dst)+step]
		if _, err = io.ReadFull(r.source, part); err != nil {
			return 0, dst, cut(err)
		}
		dst = dst[:len(dst)+step]
		left -= step
	}
	return flags, dst, nil
}

// cut turns an end in the middle of a frame into an error that says so.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// message reads the parts of one message. Commands in between are handed to command.
func (r *frameReader) message(command func(name string, data []byte) error) ([][]byte, error) {
	r.buffer, r.ends, r.parts = r.buffer[:0], r.ends[:0], r.parts[:0]
	for {
		start := len(r.buffer)
		flags, buffer, err := r.frame(r.buffer)
		if err != nil {
			if start > 0 || len(r.ends) > 0 {
				err = cut(err)
			}
			return nil, err
		}
		r.buffer = buffer
		if flags&flagCommand != 0 {
			name, data, err := parseCommand(r.buffer[start:])
			if err == nil {
				err = command(name, data)
			}
			if err != nil {
				return nil, err
			}
			r.buffer = r.buffer[:start]
			continue
		}
		if len(r.ends) == maxParts {
			return nil, fmt.Errorf("a message of more than %d parts", maxParts)
		}
		r.ends = append(r.ends, len(r.buffer))
		if flags&flagMore == 0 {
			break
		}
	}
	from := 0
	for _, end := range r.ends {
		r.parts = append(r.parts, r.buffer[from:end:end])
		from = end
	}
	if cap(r.buffer) > growStep && len(r.buffer) < growStep {
		r.buffer = nil // one huge message doesn't keep its memory for good
	}
	return r.parts, nil
}

// handshake exchanges greetings and READY commands.
func handshake(w io.Writer, r *frameReader, socketType string) error {
	if _, err := w.Write(greeting()); err != nil {
		return err
	}
	var theirs [greetingSize]byte
	if _, err := io.ReadFull(r.source, theirs[:]); err != nil {
		return cut(err)
	}
	if err := checkGreeting(theirs[:]); err != nil {
		return err
	}
	if _, err := w.Write(readyCommand(socketType)); err != nil {
		return err
	}
	flags, body, err := r.frame(r.buffer[:0])
	if err != nil {
		return cut(err)
	}
	r.buffer = body
	if flags&flagCommand == 0 {
		return errors.New("the peer sent a message before it got ready")
	}
	switch name, data, err := parseCommand(body); {
	case err != nil:
		return err
	case name == "ERROR":
		return fmt.Errorf("the peer refuses: %q", data[min(1, len(data)):])
	case name != "READY":
		return fmt.Errorf("the peer sent the command %q instead of READY", name)
	}
	return nil
}

// pong returns the answer to a PING's data (two bytes of time to live, then a context to echo).
func pong(data []byte) []byte {
	return appendCommand(nil, "PONG", data[min(2, len(data)):])
}
