// Command simulation replays a recorded hour of a chat service against simulated workers and tells how well each router uses their
// caches: what part of all prompt tokens was found in a cache, and how much more than the mean the busiest worker computed. The
// contenders are this program in KV mode and in turn, the Dynamo frontend in KV mode in front of the same workers, and a router that
// sees into every engine at the moment it chooses.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"signalbox/bench/internal/trace"
)

type options struct {
	python, binary, trace string
	workers, blocks       int
	speedup, seconds      float64
}

// outcome is what became of one request.
type outcome struct {
	worker         uint64
	prompt, cached int
	output         int
	took           time.Duration
	failed         bool
}

func main() {
	var o options
	flag.StringVar(&o.python, "python", os.Getenv("SIGNALBOX_BENCH_PYTHON"), "Python with ai-dynamo 1.6.1; without it the real frontend is left out")
	flag.StringVar(&o.binary, "signalbox", "bin/signalbox", "the program under test")
	flag.StringVar(&o.trace, "trace", trace.DefaultPath(), "gzipped JSON lines with timestamp, input_length, output_length and hash_ids")
	flag.IntVar(&o.workers, "workers", 8, "simulated workers")
	flag.IntVar(&o.blocks, "blocks", 1024, "KV capacity of each worker, in blocks of 512 tokens")
	flag.Float64Var(&o.speedup, "speedup", 20, "how much faster than real time everything runs")
	flag.Float64Var(&o.seconds, "seconds", 900, "how much of the trace is replayed, in seconds of the trace")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	requests, err := trace.Read(o.trace)
	if err != nil {
		return err
	}
	until := time.Duration(o.seconds * float64(time.Second))
	if end := slices.IndexFunc(requests, func(r trace.Request) bool { return r.At() > until }); end >= 0 {
		requests = requests[:end]
	}
	fmt.Printf("%d requests, %.0f s of the trace at %.0fx, %d workers of %d blocks\n\n", len(requests), o.seconds, o.speedup, o.workers, o.blocks)
	fmt.Println("| router | prompt tokens from a cache | busiest worker / mean | latency p50, s | p99, s | failed |")
	fmt.Println("|---|---|---|---|---|---|")
	fmt.Printf("| a cache without limit, shared by all (bound) | %.1f %% | – | – | – | – |\n", 100*bound(requests))
	allKnowing, err := runAllKnowing(ctx, o, requests)
	if err != nil {
		return err
	}
	report("all-knowing", o, allKnowing)
	for _, c := range contenders(o) {
		outcomes, err := runContender(ctx, o, c, requests)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		report(c.name, o, outcomes)
	}
	return nil
}

// report prints a row. Times are those of the trace, not of the replay.
func report(name string, o options, outcomes []outcome) {
	work := make(map[uint64]int)
	var prompt, cached, failed, total int
	var took []float64
	for _, r := range outcomes {
		if r.failed {
			failed++
			continue
		}
		prompt += r.prompt
		cached += r.cached
		computed := r.prompt - r.cached + r.output
		work[r.worker] += computed
		total += computed
		took = append(took, r.took.Seconds()*o.speedup)
	}
	busiest := 0
	for _, computed := range work {
		busiest = max(busiest, computed)
	}
	slices.Sort(took)
	if len(took) == 0 {
		took = []float64{0}
	}
	fmt.Printf("| %s | %.1f %% | %.2f | %.1f | %.1f | %d |\n", name, 100*float64(cached)/float64(max(prompt, 1)),
		float64(busiest)*float64(o.workers)/float64(max(total, 1)), took[len(took)/2], took[len(took)*99/100], failed)
}
