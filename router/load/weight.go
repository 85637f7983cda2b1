package load

import "math"

// weight is the sum of the weights of a rank's blocks. Whole blocks are counted apart from decayed ones, so that a rank without
// decay is exact and an idle one is at zero.
type weight struct {
	whole      int64
	fractional float64
	fractions  int64 // terms in fractional
}

// blocks returns the blocks in use, rounded half away from zero.
func (w *weight) blocks() uint64 {
	if w.fractions == 0 {
		return uint64(w.whole) // the usual case, without arithmetic
	}
	return uint64(max(0, math.Round(float64(w.whole)+w.fractional)))
}

func (w *weight) addBlock(share float64) {
	if share == 1 {
		w.whole++
		return
	}
	w.addFraction(share)
}

func (w *weight) removeBlock(share float64) {
	if share == 1 {
		w.whole--
		return
	}
	w.removeFraction(share)
}

func (w *weight) addOutputs(r *request) {
	if r.decayed {
		w.addFraction(r.outputWeight)
		return
	}
	w.whole += int64(r.outputs)
}

func (w *weight) removeOutputs(r *request) {
	if r.decayed {
		w.removeFraction(r.outputWeight)
		return
	}
	w.whole -= int64(r.outputs)
}

func (w *weight) addExclusive(r *request) {
	if r.exclusiveEach == 1 {
		w.whole += int64(r.exclusive)
		return
	}
	w.addFraction(r.exclusiveEach * float64(r.exclusive))
}

func (w *weight) removeExclusive(r *request) {
	if r.exclusiveEach == 1 {
		w.whole -= int64(r.exclusive)
	} else if r.exclusive > 0 {
		w.removeFraction(r.exclusiveEach * float64(r.exclusive))
	}
}

func (w *weight) addFraction(share float64) {
	w.fractional += share
	w.fractions++
}

func (w *weight) removeFraction(share float64) {
	w.fractional -= share
	if w.fractions--; w.fractions == 0 {
		w.fractional = 0 // what rounding left over
	}
}
