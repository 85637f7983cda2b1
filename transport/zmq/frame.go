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
)

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	greetingSize = 64
	// maxFrame bounds a frame from outside; event batches stay far below it.
	maxFrame = 64 << 20
	// maxParts bounds the parts of one message.
	maxParts = 64
)

// greeting is what both sides send first.
func greeting() []byte {
	b := make([]byte, greetingSize)
	b[0], b[8], b[9] = 0xff, 1, 0x7f
	b[10], b[11] = 3, 0
	copy(b[12:], "NULL")
	return b
}

func checkGreeting(b []byte) error {
	switch {
	case b[0] != 0xff || b[9]&1 != 1:
		return errors.New("the peer does not speak ZMTP")
	case b[10] < 3:
		return fmt.Errorf("the peer speaks ZMTP %d; 3 is needed", b[10])
	case !bytes.Equal(bytes.TrimRight(b[12:32], "\x00"), []byte("NULL")):
		return fmt.Errorf("the peer wants the mechanism %q; only NULL is supported", bytes.TrimRight(b[12:32], "\x00"))
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

func readyCommand(socketType string) []byte {
	body := append([]byte{5}, "READY"...)
	body = append(body, 11)
	body = append(body, "Socket-Type"...)
	body = binary.BigEndian.AppendUint32(body, uint32(len(socketType)))
	body = append(body, socketType...)
	return appendFrame(nil, flagCommand, body)
}

// readFrame reads one frame.
func readFrame(r *bufio.Reader) (flags byte, body []byte, err error) {
	if flags, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	size := uint64(0)
	if flags&flagLong != 0 {
		var length [8]byte
		if _, err = io.ReadFull(r, length[:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(length[:])
	} else {
		short, err := r.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		size = uint64(short)
	}
	if size > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes; at most %d are accepted", size, maxFrame)
	}
	body = make([]byte, size)
	_, err = io.ReadFull(r, body)
	return flags, body, err
}

// handshake exchanges greetings and READY commands.
func handshake(w io.Writer, r *bufio.Reader, socketType string) error {
	if _, err := w.Write(greeting()); err != nil {
		return err
	}
	theirs := make([]byte, greetingSize)
	if _, err := io.ReadFull(r, theirs); err != nil {
		return err
	}
	if err := checkGreeting(theirs); err != nil {
		return err
	}
	if _, err := w.Write(readyCommand(socketType)); err != nil {
		return err
	}
	flags, body, err := readFrame(r)
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || len(body) < 6 || string(body[1:6]) != "READY" {
		return errors.New("the peer did not get ready")
	}
	return nil
}
