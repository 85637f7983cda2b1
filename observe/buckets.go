package observe

import (
	"math"
	"os"
	"strconv"
)

// logBuckets returns count bucket bounds from low to high on a logarithmic scale, rounded to two digits, the first one 0 and
// equal neighbours merged: the shape that dashboards for this metric family expect.
func logBuckets(low, high float64, count int) []float64 {
	buckets := []float64{0}
	for i := 1; i < count; i++ {
		value := roundTwoDigits(math.Exp(math.Log(low) + (math.Log(high)-math.Log(low))*float64(i)/float64(count-1)))
		if value != buckets[len(buckets)-1] {
			buckets = append(buckets, value)
		}
	}
	return buckets
}

func roundTwoDigits(value float64) float64 {
	if value == 0 {
		return 0
	}
	scale := math.Pow(10, math.Floor(math.Log10(math.Abs(value)))-1)
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(math.Round(value/scale)*scale, 'g', 2, 64), 64)
	if err != nil {
		return value
	}
	return rounded
}

// configurableBuckets is logBuckets with bounds that DYN_METRICS_<name>_{MIN,MAX,COUNT} may replace.
func configurableBuckets(name string, low, high float64, count int) []float64 {
	low = environmentFloat("DYN_METRICS_"+name+"_MIN", low)
	high = environmentFloat("DYN_METRICS_"+name+"_MAX", high)
	count = int(environmentFloat("DYN_METRICS_"+name+"_COUNT", float64(count)))
	if !(low > 0) || !(high > low) || count < 2 || count > 1000 {
		return logBuckets(1e-3, 1e3, 12)
	}
	return logBuckets(low, high, count)
}

func environmentFloat(name string, fallback float64) float64 {
	value, err := strconv.ParseFloat(os.Getenv(name), 64)
	if err != nil {
		return fallback
	}
	return value
}

// doubling returns count bounds from first, each twice the one before.
func doubling(first float64, count int) []float64 { return growing(first, 2, count) }

func growing(first, factor float64, count int) []float64 {
	bounds := make([]float64, count)
	for i := range bounds {
		bounds[i] = first
		first *= factor
	}
	return bounds
}
