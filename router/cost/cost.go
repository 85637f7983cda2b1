package cost

import "math"

// Overlap is how much of a prompt a rank holds, in blocks from the prompt's start. Host and Disk continue where the tier above
// ends; Disk includes external storage.
type Overlap struct{ Device, Host, Disk uint32 }

// IsZero tells whether nothing is held.
func (o Overlap) IsZero() bool { return o == Overlap{} }

// Effective returns the overlap in device-equivalent blocks: lower tiers count by their weight.
func (w *Weights) Effective(o Overlap) float64 {
	return float64(o.Device) + w.HostWeight*float64(o.Host) + w.DiskWeight*float64(o.Disk)
}

// CachedTokens returns how many prompt tokens an effective overlap stands for, rounded half away from zero.
func CachedTokens(effective float64, blockSize int) int {
	return int(max(0, math.Round(effective*float64(blockSize))))
}

// Blocks returns how many blocks hold the tokens, the last one in part perhaps.
func Blocks(tokens, blockSize int) int { return (tokens + blockSize - 1) / blockSize }

// Load is what a rank is doing, and the blocks that this prompt would add to those in use.
type Load struct {
	ActivePrefillTokens    uint64
	ActiveDecodeBlocks     uint64
	AdditionalActiveBlocks uint64
	ActiveRequests         uint64
}

// Candidate is a rank on which the prompt could be placed.
type Candidate struct {
	Overlap Overlap
	Load    Load
	// HasLoad is false for a rank of which nothing is known yet: it counts as idle.
	HasLoad bool
	// TaintMultiplier scales the cost by how well the rank meets the request's preferences; 0 stands for 1.
	TaintMultiplier float64
}

// Range is a run of blocks of the prompt, [Start, End).
type Range struct{ Start, End uint32 }

// Prompt is what is to be placed, seen by the arithmetic.
type Prompt struct {
	// InputTokens is the prompt's length, BlockSize the tokens per KV block; both at least 1.
	InputTokens, BlockSize int
	// TrackPrefill says whether prompt work counts. Without it only decode does.
	TrackPrefill bool
	// DecodePool marks a pool that is not a prefill pool. Where prompt work does not count it earns cache credit on its blocks.
	DecodePool bool
	// Shared are the runs of the prompt in the fleet's shared cache, ascending.
	Shared []Range
}

// Terms are the parts of a cost, in blocks.
type Terms struct {
	// Prefill is the prompt work after scale and credit, Credit what was taken off before scaling.
	Prefill, Credit float64
	// Decode is the blocks in use and those added, Requests the cost of the active requests.
	Decode, Requests float64
	// Multiplier is the taint multiplier, Total the cost.
	Multiplier, Total float64
	// SharedBlocks are those of the shared cache beyond the device's.
	SharedBlocks uint32
}

// Model computes costs for one prompt.
type Model struct {
	weights Weights
	prompt  Prompt
	blocks  float64
	floor   uint64
	decays  bool
	plain   bool // prompt work counts, and nothing but a candidate's own cache takes off from it
}

// NewModel returns a model. floor is the least active prefill of all candidates, in tokens.
func NewModel(weights Weights, prompt Prompt, floor uint64) Model {
	return Model{
		weights: weights, prompt: prompt, floor: floor,
		blocks: float64(Blocks(prompt.InputTokens, prompt.BlockSize)),
		decays: prompt.TrackPrefill && weights.OverlapCreditDecay > 0,
		plain:  prompt.TrackPrefill && len(prompt.Shared) == 0,
	}
}

// Terms returns the cost of a candidate in its parts.
func (m *Model) Terms(c *Candidate) Terms {
	w := &m.weights
	size := float64(m.prompt.BlockSize)
	rawPrefill := float64(m.prefillTokens(c)) / size

	decay := 1.0
	if m.decays {
		excess := float64(c.Load.ActivePrefillTokens-min(m.floor, c.Load.ActivePrefillTokens)) / size
		decay = 1 / (1 + w.OverlapCreditDecay*excess/m.blocks)
	}
	terms := Terms{Multiplier: 1}
	if !c.Overlap.IsZero() { // most candidates hold nothing
		device := float64(c.Overlap.Device)
		terms.Credit = w.OverlapCredit*decay*device + w.HostWeight*float64(c.Overlap.Host) + w.DiskWeight*float64(c.Overlap.Disk)
	}
	if len(m.prompt.Shared) > 0 {
		terms.SharedBlocks = SharedBeyond(m.prompt.Shared, c.Overlap.Device)
		terms.Credit += w.SharedMultiplier * float64(terms.SharedBlocks)
	}
	if c.HasLoad {
		terms.Decode = float64(c.Load.ActiveDecodeBlocks + c.Load.AdditionalActiveBlocks)
		terms.Requests = w.ActiveRequestWeight * float64(c.Load.ActiveRequests)
	}
	if m.prompt.DecodePool && !m.prompt.TrackPrefill && w.OverlapCredit > 0 {
		terms.Total = max(0, terms.Decode-terms.Credit) + terms.Requests
	} else {
		terms.Prefill = w.PrefillLoadScale * max(0, rawPrefill-terms.Credit)
		terms.Total = terms.Prefill + terms.Decode + terms.Requests
	}
	if c.TaintMultiplier != 0 {
		terms.Multiplier = c.TaintMultiplier
		terms.Total *= c.TaintMultiplier
	}
	return terms
}

// Cost returns the cost of a candidate: the total of its terms.
func (m *Model) Cost(c *Candidate) float64 {
	if !m.plain || !c.Overlap.IsZero() || !c.HasLoad {
		return m.Terms(c).Total
	}
	// Most candidates of a large fleet hold nothing of the prompt.
	w, l := &m.weights, &c.Load
	total := w.PrefillLoadScale*(float64(l.ActivePrefillTokens+uint64(m.prompt.InputTokens))/float64(m.prompt.BlockSize)) +
		float64(l.ActiveDecodeBlocks+l.AdditionalActiveBlocks) + w.ActiveRequestWeight*float64(l.ActiveRequests)
	if c.TaintMultiplier != 0 {
		total *= c.TaintMultiplier
	}
	return total
}

// prefillTokens returns the prompt tokens that the rank would have to compute if nothing were cached.
func (m *Model) prefillTokens(c *Candidate) uint64 {
	input := uint64(m.prompt.InputTokens)
	switch {
	case !m.prompt.TrackPrefill:
		return 0
	case !c.HasLoad:
		return input
	case c.Overlap.IsZero():
		return c.Load.ActivePrefillTokens + input
	}
	// A cache that reaches beyond the prompt counts in full on both sides, so that the credit takes off what is added here.
	cached := uint64(CachedTokens(m.weights.Effective(c.Overlap), m.prompt.BlockSize))
	return c.Load.ActivePrefillTokens + max(input, cached)
}

// SharedBeyond counts the blocks of the runs at or after position from.
func SharedBeyond(runs []Range, from uint32) uint32 {
	count := uint32(0)
	for _, run := range runs {
		if start := max(run.Start, from); start < run.End {
			count += run.End - start
		}
	}
	return count
}

// TaintMultiplier returns the factor by which a sum of preferred taints' weights scales a cost: between 1/e for everything
// wanted and e for everything unwanted, 1 for nothing either way.
func TaintMultiplier(sum float64) float64 { return math.Exp(-math.Tanh(sum)) }
