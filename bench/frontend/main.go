// Command frontend measures signalbox beside the Dynamo frontend: the same mock workers, the same load, in turn, several times,
// in one run. It prints a table of medians and their ratios. The peer needs a Python with ai-dynamo, fastokens and uvloop.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"signalbox/bench/internal/peer"
)

var scenarios = []scenario{
	{name: "1 client, 100 words in, 16 tokens out, streamed", clients: 1, words: 100, output: 16, requests: 100, stream: true},
	{name: "32 clients, 100 words in, 16 tokens out", clients: 32, words: 100, output: 16, requests: 3000},
	{name: "64 clients, 3000 words in, 4 tokens out", clients: 64, words: 3000, output: 4, requests: 1000},
	{name: "64 clients, 50 words in, 256 tokens out, streamed", clients: 64, words: 50, output: 256, requests: 640, stream: true},
}

func main() {
	python := flag.String("python", os.Getenv("SIGNALBOX_BENCH_PYTHON"), "Python with ai-dynamo 1.6.1 and fastokens")
	binary := flag.String("signalbox", "bin/signalbox", "the program under test")
	model := flag.String("model-path", "", "model directory with tokenizer.json, tokenizer_config.json and config.json")
	rounds := flag.Int("rounds", 3, "how often each frontend runs each scenario")
	workers := flag.Int("workers", 2, "mock workers")
	mode := flag.String("router-mode", "round-robin", "router mode of both frontends")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, *python, *binary, *model, *mode, *workers, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// contender is one frontend under test.
type contender struct {
	name    string
	process *peer.Process
	url     string
	results [][]measurement // by scenario, then round
}

const modelName = "bench"

func run(ctx context.Context, python, binary, modelPath, mode string, workers, rounds int) error {
	if python == "" || modelPath == "" {
		return fmt.Errorf("both -python and -model-path are needed")
	}
	directory, err := os.MkdirTemp("", "signalbox-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	environment := []string{"DYN_FILE_KV=" + directory, "HF_HUB_OFFLINE=1", "DYN_TOKENIZER=fastokens", "DYN_LOG=error"}
	planes := []string{"--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq"}
	mock, err := peer.Start(ctx, "mock workers", environment, python, append([]string{"-m", "dynamo.mocker", "--model-path", modelPath, "--model-name", modelName,
		"--num-workers", strconv.Itoa(workers), "--speedup-ratio", "100"}, planes...)...)
	if err != nil {
		return err
	}
	defer mock.Stop()
	contenders, err := startContenders(ctx, environment, planes, python, binary, mode)
	for _, c := range contenders {
		defer c.process.Stop()
	}
	if err != nil {
		return err
	}
	for _, c := range contenders {
		if err := waitServed(ctx, c.url, modelName); err != nil {
			return fmt.Errorf("%w\n%s", err, c.process.Log())
		}
		c.results = make([][]measurement, len(scenarios))
	}
	alone, err := newDirect(ctx, directory, contenders[0].url, scenarios[0])
	if err != nil {
		return err
	}
	defer alone.client.Close()
	if err := measure(ctx, contenders, alone, rounds); err != nil {
		return err
	}
	report(contenders, alone)
	return nil
}

func startContenders(ctx context.Context, environment, planes []string, python, binary, mode string) ([]*contender, error) {
	var contenders []*contender
	for _, name := range []string{"dynamo 1.6.1", "signalbox"} {
		port, err := peer.FreePort()
		if err != nil {
			return contenders, err
		}
		arguments := append([]string{"--http-host", "127.0.0.1", "--http-port", strconv.Itoa(port), "--router-mode", mode}, planes...)
		program := binary
		if name != "signalbox" {
			program, arguments = python, append([]string{"-m", "dynamo.frontend"}, arguments...)
		} else {
			arguments = append([]string{"frontend"}, arguments...)
		}
		p, err := peer.Start(ctx, name, environment, program, arguments...)
		if err != nil {
			return contenders, err
		}
		contenders = append(contenders, &contender{name: name, process: p, url: "http://127.0.0.1:" + strconv.Itoa(port)})
	}
	return contenders, nil
}

// measure runs each scenario in turn on each contender, the order alternating from round to round.
func measure(ctx context.Context, contenders []*contender, alone *direct, rounds int) error {
	base := 1
	for round := range rounds {
		if err := alone.run(ctx, scenarios[0]); err != nil {
			return err
		}
		for i, s := range scenarios {
			order := slices.Clone(contenders)
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, c := range order {
				m, err := s.run(ctx, c.url, modelName, base, c.process)
				base += s.requests
				if err != nil {
					return fmt.Errorf("%s, %s: %w", c.name, s.name, err)
				}
				if m.failed > 0 {
					fmt.Fprintf(os.Stderr, "%s, %s: %d of %d requests failed\n", c.name, s.name, m.failed, m.requests)
				}
				c.results[i] = append(c.results[i], m)
			}
		}
	}
	return nil
}

// median returns the median of what of yields for each measurement.
func median[T cmp.Ordered](list []measurement, of func(measurement) T) T {
	values := make([]T, 0, len(list))
	for _, m := range list {
		values = append(values, of(m))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

type column struct {
	name string
	of   func(measurement) float64
}

func report(contenders []*contender, alone *direct) {
	columns := []column{
		{"TTFT p50, ms", func(m measurement) float64 { return milliseconds(m.ttftQuantile(0.5)) }},
		{"CPU ms/request", func(m measurement) float64 {
			return float64(m.cpu) / float64(time.Millisecond) / float64(max(m.requests, 1))
		}},
		{"CPU µs/token", func(m measurement) float64 {
			return float64(m.cpu) / float64(time.Microsecond) / float64(max(m.tokens, 1))
		}},
		{"requests/s", func(m measurement) float64 { return float64(m.requests) / m.wall.Seconds() }},
		{"resident MB", func(m measurement) float64 { return float64(m.residentKB) / 1024 }},
		{"failed", func(m measurement) float64 { return float64(m.failed) }},
	}
	for i, s := range scenarios {
		fmt.Printf("\n%s\n\n|  |", s.name)
		for _, c := range columns {
			fmt.Printf(" %s |", c.name)
		}
		fmt.Print("\n|---|")
		for range columns {
			fmt.Print("---|")
		}
		fmt.Println()
		values := make([][]float64, len(contenders))
		for j, c := range contenders {
			fmt.Printf("| %s |", c.name)
			for _, column := range columns {
				value := median(c.results[i], column.of)
				values[j] = append(values[j], value)
				fmt.Printf(" %.3g |", value)
			}
			fmt.Println()
		}
		fmt.Print("| ratio |")
		for k := range columns {
			if values[0][k] == 0 {
				fmt.Print(" – |")
				continue
			}
			fmt.Printf(" %.2f |", values[1][k]/values[0][k])
		}
		fmt.Println()
		if i == 0 {
			alone.report(contenders, i)
		}
	}
}

// waitServed waits until the model can be used.
func waitServed(ctx context.Context, url, model string) error {
	deadline := time.Now().Add(time.Minute)
	probe := scenario{words: 3, output: 1}
	var last error
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if _, _, err := probe.one(ctx, http.DefaultClient, url, model, 0); err == nil {
			return nil
		} else {
			last = err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s does not serve %s: %w", url, model, last)
}
