// Command parsers measures what the parsers of model output cost: the CPU time of one signalbox frontend per streamed token, with the
// parsers of a model on and without any, for the same tokens. Workers that play a script stand in for engines.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/bench/internal/peer"
)

// contender is a model with its parsers.
type contender struct {
	name            string
	reasoning, tool string
	script          string
	perToken        []float64 // µs of CPU, by round
}

const (
	thought = "I should look at the table of departures first, and then say which platform the train leaves from. "
	answer  = "The train to the coast leaves at ten past four from platform 7; it has 3 coaches < than usual, so {be} early. "
	call    = `{"name": "departures", "arguments": {"station": "Main Street", "after": "16:00", "limit": 5}}`
)

// contenders answer with the same words; what their models put around thoughts and calls differs. The first has no parsers.
func contenders(thoughts, answers int) []*contender {
	think, say := strings.Repeat(thought, thoughts), strings.Repeat(answer, answers)
	qwen := "<think>\n" + think + "</think>\n" + say + "<tool_call>\n" + call + "\n</tool_call>"
	return []*contender{
		{name: "none", script: qwen},
		{name: "qwen3 and hermes", reasoning: "qwen3", tool: "hermes", script: qwen},
		{name: "deepseek_r1 and deepseek_v3_1", reasoning: "deepseek_r1", tool: "deepseek_v3_1", script: think + "</think>" + say +
			"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>departures<｜tool▁sep｜>" + `{"station": "Main Street", "after": "16:00"}` + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
		{name: "kimi_k2 and kimi_k2", reasoning: "kimi_k2", tool: "kimi_k2", script: "<think>" + think + "</think>" + say +
			"<|tool_calls_section_begin|><|tool_call_begin|>functions.departures:0<|tool_call_argument_begin|>" + `{"station": "Main Street", "after": "16:00"}` +
			"<|tool_call_end|><|tool_calls_section_end|>"},
		{name: "qwen3 and qwen3_coder", reasoning: "qwen3", tool: "qwen3_coder", script: "<think>\n" + think + "</think>\n" + say +
			"<tool_call>\n<function=departures>\n<parameter=station>\nMain Street\n</parameter>\n</function>\n</tool_call>"},
	}
}

func main() {
	binary := flag.String("signalbox", "bin/signalbox", "the program under test")
	model := flag.String("model-path", "", "model directory with tokenizer.json, tokenizer_config.json and config.json")
	rounds := flag.Int("rounds", 5, "how often each contender runs")
	load := load{}
	flag.IntVar(&load.clients, "clients", 32, "streams at one time")
	flag.IntVar(&load.requests, "requests", 256, "streams in a round")
	flag.DurationVar(&load.pace, "pace", 4*time.Millisecond, "time between two tokens of a stream")
	thoughts, answers := flag.Int("thoughts", 4, "sentences of thought"), flag.Int("answers", 6, "sentences of answer")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, *binary, *model, contenders(*thoughts, *answers), load, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, modelPath string, list []*contender, load load, rounds int) error {
	if modelPath == "" {
		return fmt.Errorf("-model-path is needed: a directory with tokenizer.json")
	}
	store, err := os.MkdirTemp("", "signalbox-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(store)
	workers, err := startWorkers(ctx, store, modelPath, list, load.pace)
	defer workers.stop()
	if err != nil {
		return err
	}
	port, err := peer.FreePort()
	if err != nil {
		return err
	}
	frontend, err := peer.Start(ctx, "signalbox", []string{"DYN_FILE_KV=" + store, "DYN_LOG=error"}, binary, "frontend", "--http-host", "127.0.0.1",
		"--http-port", strconv.Itoa(port), "--discovery-backend", "file")
	if err != nil {
		return err
	}
	defer frontend.Stop()
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	for _, c := range list {
		if err := load.warm(ctx, url, c.name, c.tool != ""); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for round := range rounds {
		order := slices.Clone(list)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			before, err := frontend.CPU()
			if err != nil {
				return err
			}
			tokens, err := load.run(ctx, url, c.name)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			after, err := frontend.CPU()
			if err != nil {
				return err
			}
			c.perToken = append(c.perToken, float64((after-before).Microseconds())/float64(tokens))
		}
	}
	report(list)
	return nil
}

func report(list []*contender) {
	fmt.Print("| parsers | CPU µs/token, median | least | most | ratio |\n|---|---|---|---|---|\n")
	var without float64
	for i, c := range list {
		slices.Sort(c.perToken)
		median := c.perToken[len(c.perToken)/2]
		if i == 0 {
			without = median
		}
		fmt.Printf("| %s | %.1f | %.1f | %.1f | %.2f |\n", c.name, median, c.perToken[0], c.perToken[len(c.perToken)-1], median/without)
	}
}
