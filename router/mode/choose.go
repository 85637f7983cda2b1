package mode

import (
	"math/bits"
	"math/rand/v2"

	"signalbox/router"
)

// leastLoaded returns the candidate with the fewest requests in flight; exact ties go to each with equal chance. candidates is
// not empty.
func leastLoaded(random *rand.Rand, candidates []int32, loads router.Loads) (best int32, ties int) {
	best, ties = candidates[0], 1
	least := loads.At(best)
	for _, candidate := range candidates[1:] {
		switch load := loads.At(candidate); {
		case load < least:
			best, least, ties = candidate, load, 1
		case load == least:
			ties++
			if random.IntN(ties) == 0 {
				best = candidate
			}
		}
	}
	return best, ties
}

// powerOfTwo draws two different candidates and returns the less loaded one, the first drawn when equal.
func powerOfTwo(random *rand.Rand, candidates []int32, loads router.Loads) int32 {
	n := len(candidates)
	if n == 1 {
		return candidates[0]
	}
	i := random.IntN(n)
	j := (i + 1 + random.IntN(n-1)) % n
	if loads.At(candidates[i]) <= loads.At(candidates[j]) {
		return candidates[i]
	}
	return candidates[j]
}

// DefaultDeviceRatio is the assumed throughput of one accelerator in CPU workers.
const DefaultDeviceRatio = 8

// group sums up the candidates of one device type.
type group struct {
	count, load uint64
	best        int32
	bestLoad    int
	ties        int
}

func (g *group) add(random *rand.Rand, candidate int32, load int) {
	switch {
	case g.count == 0 || load < g.bestLoad:
		g.best, g.bestLoad, g.ties = candidate, load, 1
	case load == g.bestLoad:
		g.ties++
		if random.IntN(g.ties) == 0 {
			g.best = candidate
		}
	}
	g.count++
	g.load += uint64(load)
}

// deviceAware returns the least loaded worker without accelerator while those together carry less than their share, else the
// least loaded one with. With nothing in flight the share is nothing, so that accelerators go first.
func deviceAware(random *rand.Rand, ratio uint64, workers []router.Worker, candidates []int32, loads router.Loads) int32 {
	var processors, accelerators group
	for _, candidate := range candidates {
		to := &accelerators
		if workers[candidate].DeviceType == "cpu" {
			to = &processors
		}
		to.add(random, candidate, loads.At(candidate))
	}
	switch {
	case processors.count == 0:
		return accelerators.best
	case accelerators.count == 0:
		return processors.best
	}
	if processors.load < saturatingMul(accelerators.load, processors.count)/saturatingMul(ratio, accelerators.count) {
		return processors.best
	}
	return accelerators.best
}

func saturatingMul(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high != 0 {
		return 1<<64 - 1
	}
	return low
}
