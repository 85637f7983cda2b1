package tokenizer

import (
	"fmt"
	"hash/maphash"
	"math/bits"
)

// Bounds of what a file may hold: pairs of ids and ranks are packed into words of 64 bits.
const (
	idBits    = 20
	maxID     = 1<<idBits - 1
	rankBits  = 21
	maxMerges = 1<<rankBits - 1
)

// vocabulary maps tokens to ids and back. It is one block of text and two tables without pointers.
type vocabulary struct {
	text  []byte
	spans []span   // by id
	slots []uint64 // hash<<32 | id+1, open addressing
	count int
	seed  maphash.Seed
	// shadowed are the ids whose text has been given to another id since. There are hardly any.
	shadowed map[uint32]struct{}
}

type span struct{ start, end uint32 }

// noToken marks ids without a token.
var noToken = span{1, 0}

func newVocabulary(tokens, bytes int) *vocabulary {
	v := &vocabulary{seed: maphash.MakeSeed(), text: make([]byte, 0, bytes), spans: make([]span, 0, tokens)}
	v.slots = make([]uint64, tableSize(tokens))
	return v
}

// tableSize is a power of two at which a table of n entries stays at most two thirds full.
func tableSize(n int) int { return 1 << bits.Len(uint(max(n, 8)*3/2)) }

// add gives a token its id. A token that is there already gets the new id.
func (v *vocabulary) add(token []byte, id uint32) error {
	if id >= maxID {
		return fmt.Errorf("token %q has the id %d; ids below %d are possible", token, id, maxID)
	}
	for int(id) >= len(v.spans) {
		v.spans = append(v.spans, noToken)
	}
	if 3*(v.count+1) > 2*len(v.slots) {
		v.grow()
	}
	start := uint32(len(v.text))
	v.text = append(v.text, token...)
	v.spans[id] = span{start, uint32(len(v.text))}
	h := maphash.Bytes(v.seed, token)
	slot, found := v.find(h, string(token))
	if found {
		v.shadow(uint32(v.slots[slot])-1, id)
	} else {
		v.count++
	}
	v.slots[slot] = h&^0xFFFFFFFF | uint64(id+1)
	return nil
}

// shadow notes that the text of one id is another one's from now on.
func (v *vocabulary) shadow(before, now uint32) {
	delete(v.shadowed, now)
	if before == now {
		return
	}
	if v.shadowed == nil {
		v.shadowed = make(map[uint32]struct{})
	}
	v.shadowed[before] = struct{}{}
}

// owns tells whether the id's text leads back to it: whether no other id has the same text and counts.
func (v *vocabulary) owns(id uint32) bool {
	_, shadowed := v.shadowed[id]
	return !shadowed && v.has(id)
}

func (v *vocabulary) grow() {
	old := v.slots
	v.slots = make([]uint64, 2*len(old))
	for _, entry := range old {
		if entry == 0 {
			continue
		}
		h := maphash.Bytes(v.seed, v.token(uint32(entry)-1))
		for i := v.start(h); ; i = (i + 1) & (len(v.slots) - 1) {
			if v.slots[i] == 0 {
				v.slots[i] = entry
				break
			}
		}
	}
}

func (v *vocabulary) start(h uint64) int { return int(uint32(h)) & (len(v.slots) - 1) }

func (v *vocabulary) find(h uint64, token string) (slot int, found bool) {
	for i := v.start(h); ; i = (i + 1) & (len(v.slots) - 1) {
		entry := v.slots[i]
		if entry == 0 {
			return i, false
		}
		if (entry^h)>>32 == 0 && string(v.token(uint32(entry)-1)) == token {
			return i, true
		}
	}
}

// id returns the id of a token.
func (v *vocabulary) id(token string) (uint32, bool) {
	slot, found := v.find(maphash.String(v.seed, token), token)
	if !found {
		return 0, false
	}
	return uint32(v.slots[slot]) - 1, true
}

// idOf is id for bytes.
func (v *vocabulary) idOf(token []byte) (uint32, bool) {
	slot, found := v.find(maphash.Bytes(v.seed, token), string(token))
	if !found {
		return 0, false
	}
	return uint32(v.slots[slot]) - 1, true
}

// token returns the text of an id; nil for an id without a token.
func (v *vocabulary) token(id uint32) []byte {
	if int(id) >= len(v.spans) || v.spans[id] == noToken {
		return nil
	}
	s := v.spans[id]
	return v.text[s.start:s.end:s.end]
}

// has tells whether an id has a token.
func (v *vocabulary) has(id uint32) bool { return int(id) < len(v.spans) && v.spans[id] != noToken }
