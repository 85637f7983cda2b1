// Command index measures the prefix index: it replays the events that the engines of a fleet would send while they serve a recorded
// hour of chat, as fast as it can, and looks up every request on the way. It prints a table in Markdown.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"signalbox/bench/internal/trace"
	"signalbox/kvindex"
)

type options struct {
	workers, capacity, split, operations, threads, shards, rounds int
}

func main() {
	var o options
	path := flag.String("trace", trace.DefaultPath(), "the recorded hour: gzipped JSON lines with hash_ids, 512 tokens a block")
	blockSizes := flag.String("tokens", "512,64,16", "tokens per block, each a run of its own")
	flag.IntVar(&o.workers, "workers", 16, "workers of one rank each")
	flag.IntVar(&o.capacity, "capacity", 16384, "blocks that a worker's cache holds")
	flag.IntVar(&o.operations, "operations", 4_000_000, "block operations to measure after all caches have filled")
	flag.IntVar(&o.threads, "threads", runtime.NumCPU(), "goroutines that apply events; the workers are divided among them")
	flag.IntVar(&o.shards, "shards", 0, "shards of the index; 0 means as many as threads")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each run is repeated; the table has medians")
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()
	if err := run(o, *path, *blockSizes, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "index:", err)
		os.Exit(1)
	}
}

func run(o options, path, blockSizes, profile string) error {
	if o.workers < 1 || o.capacity < 1 || o.operations < 1 || o.threads < 1 || o.rounds < 1 || o.shards < 0 {
		return fmt.Errorf("workers, capacity, operations, threads and rounds are at least 1: %+v", o)
	}
	if o.shards == 0 {
		o.shards = o.threads
	}
	requests, err := trace.Read(path)
	if err != nil {
		return err
	}
	sizes, err := parseSizes(blockSizes)
	if err != nil {
		return err
	}
	if profile != "" {
		file, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Printf("%d requests, %d workers of %d blocks, %d threads, %d shards, %s, %d CPUs, load average %s\n\n", len(requests), o.workers, o.capacity, o.threads,
		o.shards, runtime.Version(), runtime.NumCPU(), loadAverage())
	fmt.Println("| tokens a block | blocks a prompt | operations | filling, M/s | per CPU | full, M/s | per CPU | full with look-ups, M/s | per CPU | look-up p50, µs | p99, µs | p99.9, µs | blocks held | bytes a block | empty again, KiB |")
	fmt.Println(strings.Repeat("|---", 15) + "|")
	for _, tokens := range sizes {
		o.split = 512 / tokens
		work := simulate(requests, o)
		var results []result
		for range o.rounds {
			r, err := measure(work, o)
			if err != nil {
				return err
			}
			results = append(results, r)
		}
		fmt.Println(row(tokens, work, results))
	}
	return nil
}

// loadAverage tells how busy the machine is: what else runs takes processor time and, above all, cache.
func loadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	one, _, _ := strings.Cut(string(content), " ")
	return one
}

func parseSizes(text string) (sizes []int, err error) {
	for field := range strings.SplitSeq(text, ",") {
		var size int
		if _, err := fmt.Sscanf(field, "%d", &size); err != nil || size < 1 || 512%size != 0 {
			return nil, fmt.Errorf("%q tokens a block: give divisors of 512", field)
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

// rate is operations per second, and per second of processor time that this process got: the two differ by the number of
// threads, and by what else the machine does.
type rate struct{ wall, processor float64 }

// result is one round.
type result struct {
	filling, full, mixed rate
	lookups              []time.Duration
	held                 int
	bytesPerBlock        float64
	emptyBytes           int64
}

// measure plays the work into an index: until all caches are full, then half of the rest without look-ups and half with.
func measure(work workload, o options) (result, error) {
	var r result
	runtime.GC()
	var before, after runtime.MemStats
	debug.FreeOSMemory()
	runtime.ReadMemStats(&before)
	index, err := kvindex.New(kvindex.Options{Shards: o.shards})
	if err != nil {
		return r, err
	}
	var quiet, asked [][]step
	for _, steps := range work.full {
		quiet, asked = append(quiet, steps[:len(steps)/2]), append(asked, steps[len(steps)/2:])
	}
	// The workers become known before the clock starts, one by one, so that they are spread over the shards as over the threads.
	for worker := range o.workers {
		if err := index.Apply(kvindex.Event{Rank: rankOf(worker), Op: kvindex.Stored}); err != nil {
			return r, err
		}
	}
	if r.filling, _, err = play(index, work.filling, false); err != nil {
		return r, err
	}
	if r.full, _, err = play(index, quiet, false); err != nil {
		return r, err
	}
	if r.mixed, r.lookups, err = play(index, asked, true); err != nil {
		return r, err
	}
	stats := index.Stats()
	r.held = stats.Total()
	runtime.GC()
	runtime.ReadMemStats(&after)
	r.bytesPerBlock = float64(after.HeapAlloc-before.HeapAlloc-uint64(8*cap(r.lookups))) / float64(r.held)
	for worker := range o.workers {
		index.RemoveWorker(rankOf(worker).WorkerID)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	r.emptyBytes = int64(after.HeapAlloc) - int64(before.HeapAlloc) - int64(8*cap(r.lookups))
	runtime.KeepAlive(index)
	return r, nil
}

func rankOf(worker int) kvindex.Rank { return kvindex.Rank{WorkerID: mix(uint64(worker))} }

// play applies all events, those of one worker in order, and returns operations per second up to the end of the last one. With
// look-ups, each request is looked up before its events are applied, on the same thread, while the others apply theirs.
func play(index *kvindex.Index, work [][]step, lookups bool) (rate, []time.Duration, error) {
	operations := 0
	for _, steps := range work {
		for _, s := range steps {
			operations += s.blocks
		}
	}
	took := make([][]time.Duration, len(work))
	errs := make([]error, len(work))
	for thread := range took {
		took[thread] = make([]time.Duration, 0, len(work[thread]))
	}
	var group sync.WaitGroup
	start, used := time.Now(), processorTime()
	for thread, steps := range work {
		group.Go(func() {
			var matches kvindex.Matches
			var sequence []uint64
			for at := range steps {
				s := &steps[at]
				if lookups {
					// Whoever asks has just computed these hashes, so that they are in the processor's cache.
					sequence = append(sequence[:0], s.query.Sequence...)
					query := kvindex.Query{Locals: s.query.Locals, Sequence: sequence}
					asked := time.Now()
					index.Find(&matches, query)
					took[thread] = append(took[thread], time.Since(asked))
				}
				for i := range s.events {
					if err := index.Apply(s.events[i]); err != nil && errs[thread] == nil {
						errs[thread] = err
					}
				}
			}
		})
	}
	group.Wait()
	speed := rate{wall: float64(operations) / time.Since(start).Seconds(), processor: float64(operations) / (processorTime() - used).Seconds()}
	for _, err := range errs {
		if err != nil {
			return rate{}, nil, err
		}
	}
	return speed, slices.Concat(took...), nil
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
