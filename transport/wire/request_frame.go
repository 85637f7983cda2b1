package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
)

// RequestFrame is what travels on a request connection, from the frontend to the worker.
type RequestFrame struct {
	// Path names the endpoint within the worker's process: what follows the first '/' of its address.
	Path string
	// Headers is a JSON object of strings, for logs and traces.
	Headers []byte
	// Payload is one two-part message: control JSON and body.
	Payload []byte
}

// AppendRequestHead appends path and headers of a request frame; the payload's length and the payload are to follow.
func AppendRequestHead(dst []byte, path string, headers []byte) ([]byte, error) {
	if len(path) > math.MaxUint16 {
		return dst, fmt.Errorf("endpoint path has %d bytes, at most %d are possible", len(path), math.MaxUint16)
	}
	if len(headers) > math.MaxUint16 {
		return dst, fmt.Errorf("request headers have %d bytes, at most %d are possible", len(headers), math.MaxUint16)
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(path)))
	dst = append(dst, path...)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(headers)))
	return append(dst, headers...), nil
}

// AppendRequestFrame appends a whole request frame of at most limit bytes.
func AppendRequestFrame(dst []byte, frame RequestFrame, limit int) ([]byte, error) {
	start := len(dst)
	dst, err := AppendRequestHead(dst, frame.Path, frame.Headers)
	if err != nil {
		return dst, err
	}
	if size := len(dst) - start + 4 + len(frame.Payload); size > limit {
		return dst, fmt.Errorf("request frame has %d bytes, the limit is %d", size, limit)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(frame.Payload)))
	return append(dst, frame.Payload...), nil
}

// ReadRequestFrame reads one request frame. io.EOF means that the peer closed between two frames. limit bounds the frame in
// bytes.
func ReadRequestFrame(source io.Reader, limit int) (RequestFrame, error) {
	var length [4]byte
	if _, err := io.ReadFull(source, length[:2]); err != nil {
		return RequestFrame{}, err
	}
	path, err := readPart(source, int(binary.BigEndian.Uint16(length[:2])))
	if err != nil {
		return RequestFrame{}, err
	}
	if _, err := io.ReadFull(source, length[:2]); err != nil {
		return RequestFrame{}, within(err)
	}
	headers, err := readPart(source, int(binary.BigEndian.Uint16(length[:2])))
	if err != nil {
		return RequestFrame{}, err
	}
	if _, err := io.ReadFull(source, length[:]); err != nil {
		return RequestFrame{}, within(err)
	}
	size := uint64(binary.BigEndian.Uint32(length[:]))
	head := 8 + len(path) + len(headers)
	if size+uint64(head) > uint64(limit) {
		return RequestFrame{}, &FormatError{Part: "request frame", Offset: head - 4, Problem: fmt.Sprintf(
			"announces %d bytes of payload, the limit is %d for the whole frame", size, limit)}
	}
	payload, err := readPart(source, int(size))
	if err != nil {
		return RequestFrame{}, err
	}
	return RequestFrame{Path: string(path), Headers: headers, Payload: payload}, nil
}

// firstPiece is how much is allocated on the word of a length alone.
const firstPiece = 64 << 10

// readPart reads size bytes; memory grows with what arrives, not with what is announced.
func readPart(source io.Reader, size int) ([]byte, error) {
	part := make([]byte, min(size, firstPiece))
	for at := 0; ; {
		n, err := io.ReadFull(source, part[at:])
		at += n
		if err != nil {
			return nil, within(err)
		}
		if at == size {
			return part, nil
		}
		grown := make([]byte, min(size, 4*len(part)))
		copy(grown, part)
		part = grown
	}
}

// within turns the end of the connection inside a frame into io.ErrUnexpectedEOF.
func within(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// AppendAck appends an acknowledgement; an empty text accepts the request, any other rejects it.
func AppendAck(dst []byte, text string) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(text)))
	return append(dst, text...)
}

// maxAck bounds the text of a rejection, in bytes.
const maxAck = 64 << 10

// PrefixOfAck is the size of what stands before the text of an acknowledgement, in bytes.
const PrefixOfAck = 4

// ReadAck reads one acknowledgement and returns its text, "" for acceptance.
func ReadAck(source io.Reader) (string, error) {
	var length [PrefixOfAck]byte
	if _, err := io.ReadFull(source, length[:]); err != nil {
		return "", err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size == 0 {
		return "", nil
	}
	if size > maxAck {
		return "", &FormatError{Part: "acknowledgement", Problem: fmt.Sprintf("announces %d bytes, the limit is %d", size, maxAck)}
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(source, text); err != nil {
		return "", within(err)
	}
	return strings.ToValidUTF8(string(text), "\uFFFD"), nil
}

// The texts that start a rejection which says why.
const (
	OverloadedAck  = "Server overloaded:"
	UnavailableAck = "Server unavailable:"
)
