package cost

import (
	"math"
	"math/rand/v2"
)

// Lowest returns the index of the lowest cost and how many share it exactly. Each of them is as likely: cold traffic spreads by
// that alone. costs is not empty.
func Lowest(costs []float64, random *rand.Rand) (index, ties int) {
	ties = 1
	for i := 1; i < len(costs); i++ {
		switch {
		case costs[i] < costs[index]:
			index, ties = i, 1
		case costs[i] == costs[index]:
			ties++
			if random.IntN(ties) == 0 {
				index = i
			}
		}
	}
	return index, ties
}

// AppendProbabilities appends the odds of each cost at a temperature above 0. Costs are normalised by their range, so that only
// their spread matters, not its size. costs is not empty.
func AppendProbabilities(list, costs []float64, temperature float64) []float64 {
	least, most := costs[0], costs[0]
	for _, c := range costs[1:] {
		least, most = min(least, c), max(most, c)
	}
	start := len(list)
	if least == most {
		for range costs {
			list = append(list, 1/float64(len(costs)))
		}
		return list
	}
	divisor := 1.0
	if math.IsInf(most-least, 0) {
		divisor = max(math.Abs(least), math.Abs(most))
		least, most = least/divisor, most/divisor
	}
	slope := -1 / ((most - least) * temperature)
	sum := 0.0
	for _, c := range costs {
		weight := math.Exp(c/divisor*slope - least*slope)
		if math.IsInf(slope, 0) || math.IsNaN(weight) {
			weight = 0 // so cold that only the lowest cost is left
			if c/divisor == least {
				weight = 1
			}
		}
		list = append(list, weight)
		sum += weight
	}
	for i := range list[start:] {
		list[start+i] /= sum
	}
	return list
}

// Sample returns the index that a number in [0, 1) falls on.
func Sample(probabilities []float64, sample float64) int {
	reached := 0.0
	for i, p := range probabilities {
		if reached += p; sample <= reached {
			return i
		}
	}
	return len(probabilities) - 1
}
