package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// row is a line of the table: medians over the rounds.
func row(tokens int, work workload, results []result) string {
	prompts, blocks, operations := 0, 0, 0
	for _, steps := range work.full {
		for _, s := range steps {
			prompts, blocks, operations = prompts+1, blocks+len(s.query.Locals), operations+s.blocks
		}
	}
	for i := range results {
		slices.Sort(results[i].lookups)
	}
	at := func(share float64) string {
		return fmt.Sprintf("%.2f", median(results, func(r result) float64 {
			return float64(r.lookups[min(int(share*float64(len(r.lookups))), len(r.lookups)-1)]) / float64(time.Microsecond)
		}))
	}
	million := func(of func(result) rate) string {
		return fmt.Sprintf("%.1f | %.1f", median(results, func(r result) float64 { return of(r).wall })/1e6,
			median(results, func(r result) float64 { return of(r).processor })/1e6)
	}
	return fmt.Sprintf("| %d | %d | %d | %s | %s | %s | %s | %s | %s | %d | %.1f | %.1f |", tokens, blocks/max(prompts, 1), operations,
		million(func(r result) rate { return r.filling }), million(func(r result) rate { return r.full }),
		million(func(r result) rate { return r.mixed }), at(0.5), at(0.99), at(0.999), results[0].held,
		median(results, func(r result) float64 { return r.bytesPerBlock }),
		median(results, func(r result) float64 { return float64(r.emptyBytes) / 1024 }))
}

func median[T any, V cmp.Ordered](list []T, of func(T) V) V {
	values := make([]V, len(list))
	for i := range list {
		values[i] = of(list[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}
