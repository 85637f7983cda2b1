package toolcall

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
)

// idStyle is the shape of a format's call ids.
type idStyle uint8

const (
	idCallUUID idStyle = iota // call-<uuid>
	idHex24                   // call_<24 hex digits>
	idUUID                    // <uuid>
	idCounted                 // call-1, call-2
)

type idSource struct {
	style  idStyle
	random func() string
	count  int
}

func (s *idSource) next() string {
	s.count++
	if s.style == idCounted {
		return "call-" + strconv.Itoa(s.count)
	}
	random := s.random
	if random == nil {
		random = newUUID
	}
	id := random()
	switch s.style {
	case idUUID:
		return id
	case idHex24:
		hexOnly := make([]byte, 0, 32)
		for i := 0; i < len(id) && len(hexOnly) < 24; i++ {
			if id[i] != '-' {
				hexOnly = append(hexOnly, id[i])
			}
		}
		return "call_" + string(hexOnly)
	}
	return "call-" + id
}

// newUUID returns a random UUID, version 4.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[:8], b[:4])
	text[8] = '-'
	hex.Encode(text[9:13], b[4:6])
	text[13] = '-'
	hex.Encode(text[14:18], b[6:8])
	text[18] = '-'
	hex.Encode(text[19:23], b[8:10])
	text[23] = '-'
	hex.Encode(text[24:], b[10:])
	return string(text[:])
}
