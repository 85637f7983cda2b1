package tokenizer

import (
	"fmt"
	"math"
)

// unigram finds the most probable segmentation.
type unigram struct {
	vocab      *vocabulary
	scores     []float64 // by id
	unknown    uint32
	hasUnknown bool
	penalty    float64 // score of an unknown character
	fallback   bool
	bytes      [256]uint32 // id+1 of <0x00> to <0xFF>
	trie       addedMatcher
}

func newUnigram(vocab *vocabulary, scores []float64, unknown *int, fallback bool) (*unigram, error) {
	u := &unigram{vocab: vocab, scores: scores, fallback: fallback}
	u.trie.nodes = make([]addedNode, 1) // which is there without any piece, too
	if unknown != nil {
		if *unknown < 0 || *unknown >= len(scores) {
			return nil, fmt.Errorf("unk_id %d is not an id of the %d pieces", *unknown, len(scores))
		}
		u.unknown, u.hasUnknown = uint32(*unknown), true
	}
	lowest := math.Inf(1)
	for _, score := range scores {
		lowest = math.Min(lowest, score)
	}
	u.penalty = lowest - 10
	for id := range scores {
		u.trie.add(string(vocab.token(uint32(id))), AddedToken{ID: uint32(id)})
	}
	for c := range 256 {
		if id, ok := vocab.id(fmt.Sprintf("<0x%02X>", c)); ok {
			u.bytes[c] = id + 1
		}
	}
	return u, nil
}

// step is the best way to a place in the piece.
type step struct {
	score   float64
	start   int32 // where its last token begins; -1 for a place that is not reached
	id      uint32
	unknown bool
}

func (u *unigram) tokenize(out *result, piece text) {
	s := piece.s
	best := make([]step, len(s)+1)
	for i := range best {
		best[i].start = -1
	}
	for at := 0; at < len(s); {
		_, size := runeAt(s, at)
		here := best[at].score
		single := false
		node := int32(0)
		for i := at; i < len(s); i++ {
			n := &u.trie.nodes[node]
			c := int(s[i]) - int(n.low)
			if c < 0 || c >= len(n.children) || n.children[c] == 0 {
				break
			}
			node = n.children[c]
			found := u.trie.nodes[node].token
			if found == 0 {
				continue
			}
			id, _ := u.vocab.id(s[at : i+1])
			if target, score := &best[i+1], here+u.scores[id]; target.start < 0 || score > target.score {
				*target = step{score: score, start: int32(at), id: id, unknown: u.hasUnknown && id == u.unknown}
			}
			single = single || i+1-at == size
		}
		if !single {
			if target, score := &best[at+size], here+u.penalty; target.start < 0 || score > target.score {
				*target = step{score: score, start: int32(at), unknown: true}
			}
		}
		at += size
	}
	var parts []match // from the end; unknown neighbours are one part
	fused := false
	for end := len(s); end > 0; {
		b := best[end]
		if b.unknown && fused {
			parts[len(parts)-1].start = int(b.start)
		} else {
			parts = append(parts, match{int(b.start), end})
		}
		fused = b.unknown && u.hasUnknown
		end = int(b.start)
	}
	for i := len(parts) - 1; i >= 0; i-- {
		u.emit(out, piece, parts[i])
	}
}

func (u *unigram) emit(out *result, piece text, part match) {
	s := piece.s[part.start:part.end]
	if id, ok := u.vocab.id(s); ok {
		out.add(id, piece, part.start, part.end)
		return
	}
	if u.fallback {
		all := true
		for i := range len(s) {
			all = all && u.bytes[s[i]] > 0
		}
		if all {
			for i := range len(s) {
				out.add(u.bytes[s[i]]-1, piece, part.start+i, part.start+i+1)
			}
			return
		}
	}
	if u.hasUnknown {
		out.add(u.unknown, piece, part.start, part.end)
	}
}
