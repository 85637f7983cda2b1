package kvhash

// Stream hashes a sequence whose tokens arrive piecemeal, without keeping them: it holds at most one block's window. It serves
// output that grows token by token. Make one with [Hasher.Stream]; it is not safe for concurrent use.
type Stream struct {
	hasher  Hasher
	pending []uint32
	last    uint64
	blocks  int
}

// Stream returns an empty stream. Its only allocation is the window that it holds.
func (h Hasher) Stream() *Stream {
	return &Stream{hasher: h, pending: make([]uint32, 0, max(h.blockSize, 0)+h.lookahead)}
}

// Blocks returns how many complete blocks the stream has seen.
func (s *Stream) Blocks() int { return s.blocks }

// Sequence returns the sequence hash of the newest complete block, or 0 before the first.
func (s *Stream) Sequence() uint64 { return s.last }

// Append takes further tokens and appends the local and sequence hashes of the blocks that they complete.
func (s *Stream) Append(locals, sequence []uint64, tokens ...uint32) (newLocals, newSequence []uint64) {
	window := cap(s.pending)
	if s.hasher.blockSize < 1 {
		return locals, sequence
	}
	for len(tokens) > 0 {
		take := min(window-len(s.pending), len(tokens))
		s.pending = append(s.pending, tokens[:take]...)
		tokens = tokens[take:]
		if len(s.pending) < window {
			break
		}
		local := s.hasher.Block(s.pending)
		if s.blocks == 0 {
			s.last = local
		} else {
			s.last = s.hasher.Next(s.last, local)
		}
		s.blocks++
		locals = append(locals, local)
		sequence = append(sequence, s.last)
		// In Eagle mode the window's last token is the next window's first.
		s.pending = append(s.pending[:0], s.pending[s.hasher.blockSize:]...)
	}
	return locals, sequence
}
