package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"signalbox/bench/internal/peer"
	"signalbox/bench/internal/trace"
)

const modelName = "trace"

// contender is a frontend with workers of its own, all fresh.
type contender struct {
	name    string
	program string
	args    []string
}

func contenders(o options) []contender {
	list := []contender{
		{"signalbox, kv", o.binary, []string{"frontend", "--router-mode", "kv"}},
		{"signalbox, round-robin", o.binary, []string{"frontend", "--router-mode", "round-robin"}},
	}
	if o.python != "" {
		list = append(list, contender{"dynamo 1.6.1, kv", o.python, []string{"-m", "dynamo.frontend", "--router-mode", "kv"}})
	}
	return list
}

func runContender(ctx context.Context, o options, c contender, requests []trace.Request) ([]outcome, error) {
	directory, err := os.MkdirTemp("", "signalbox-simulation-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	environment := []string{"DYN_FILE_KV=" + directory, "HF_HUB_OFFLINE=1", "DYN_LOG=error"}
	planes := []string{"--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq"}
	workers, err := peer.Start(ctx, "workers", environment, o.binary, append([]string{"worker", "--model-name", modelName, "--num-workers", strconv.Itoa(o.workers),
		"--block-size", strconv.Itoa(trace.BlockTokens), "--num-gpu-blocks-override", strconv.Itoa(o.blocks), "--context-length", "1000000",
		"--speedup-ratio", strconv.FormatFloat(o.speedup, 'g', -1, 64)}, planes...)...)
	if err != nil {
		return nil, err
	}
	defer workers.Stop()
	port, err := peer.FreePort()
	if err != nil {
		return nil, err
	}
	frontend, err := peer.Start(ctx, c.name, environment, c.program,
		append(append(c.args, "--http-host", "127.0.0.1", "--http-port", strconv.Itoa(port)), planes...)...)
	if err != nil {
		return nil, err
	}
	defer frontend.Stop()
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	if err := allWorkersServe(ctx, url, o.workers); err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}, Timeout: 5 * time.Minute}
	defer client.CloseIdleConnections()
	return replay(ctx, o, requests, func(ctx context.Context, r trace.Request) (outcome, error) { return send(ctx, client, url, r) }), nil
}

// allWorkersServe waits until short requests have reached every worker, so that none is missed in the first seconds.
func allWorkersServe(ctx context.Context, url string, workers int) error {
	seen := make(map[uint64]bool)
	var last error
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; {
		var wait sync.WaitGroup
		var mu sync.Mutex
		for i := range 2 * workers { // at once: a router that looks at load spreads them
			wait.Go(func() {
				state := uint64(time.Now().UnixNano()) + uint64(i)
				r := trace.Request{InputLength: trace.BlockTokens / 2, OutputLength: 4, Blocks: []uint64{state | 1<<62}}
				result, err := send(ctx, http.DefaultClient, url, r)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					last = err
					return
				}
				seen[result.worker] = true
			})
		}
		wait.Wait()
		if len(seen) == workers {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%d of %d workers serve; last failure: %w", len(seen), workers, last)
}

// replay sends the requests at their times and waits for all answers.
func replay(ctx context.Context, o options, requests []trace.Request, send func(context.Context, trace.Request) (outcome, error)) []outcome {
	outcomes := make([]outcome, len(requests))
	var wait sync.WaitGroup
	start := time.Now()
	for i, r := range requests {
		select {
		case <-time.After(time.Duration(float64(r.At())/o.speedup) - time.Since(start)):
		case <-ctx.Done():
		}
		wait.Go(func() {
			begin := time.Now()
			result, err := send(ctx, r)
			result.took = time.Since(begin)
			result.failed = err != nil
			outcomes[i] = result
		})
	}
	wait.Wait()
	return outcomes
}

func send(ctx context.Context, client *http.Client, url string, r trace.Request) (outcome, error) {
	body, err := json.Marshal(map[string]any{"model": modelName, "prompt": tokensOf(r), "max_tokens": max(r.OutputLength, 1), "ignore_eos": true,
		"nvext": map[string]any{"extra_fields": []string{"worker_id"}}})
	if err != nil {
		return outcome{}, err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return outcome{}, err
	}
	post.Header.Set("Content-Type", "application/json")
	response, err := client.Do(post)
	if err != nil {
		return outcome{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return outcome{}, err
	}
	if response.StatusCode != http.StatusOK {
		return outcome{}, fmt.Errorf("status %d: %.300s", response.StatusCode, text)
	}
	var answer struct {
		Usage struct {
			PromptTokens     int `json:"prompt_tokens"`
			CompletionTokens int `json:"completion_tokens"`
			Details          struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
		Extension struct {
			WorkerID struct {
				Decode uint64 `json:"decode_worker_id"`
			} `json:"worker_id"`
		} `json:"nvext"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return outcome{}, err
	}
	return outcome{worker: answer.Extension.WorkerID.Decode, prompt: answer.Usage.PromptTokens, cached: answer.Usage.Details.CachedTokens,
		output: answer.Usage.CompletionTokens}, nil
}
