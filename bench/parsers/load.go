package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// load is closed-loop clients that read streams.
type load struct {
	clients, requests int
	pace              time.Duration
}

// warm waits until the model answers, and makes sure that its parsers find what is there to find, or that nobody looks.
func (l load) warm(ctx context.Context, url, model string, parsed bool) error {
	var last error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		var got heard
		if got, last = one(ctx, http.DefaultClient, url, model); last == nil {
			if got.thought != parsed || got.called != parsed {
				return fmt.Errorf("thoughts are told apart: %v, calls: %v; want %v", got.thought, got.called, parsed)
			}
			return nil
		}
	}
	return fmt.Errorf("not served: %w", last)
}

// run reads all streams and returns how many tokens were in them.
func (l load) run(ctx context.Context, url, model string) (tokens int, err error) {
	transport := &http.Transport{MaxIdleConnsPerHost: l.clients, MaxConnsPerHost: l.clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 2 * time.Minute}
	jobs := make(chan struct{})
	var mu sync.Mutex // guards tokens and err
	var wait sync.WaitGroup
	for range l.clients {
		wait.Go(func() { // ends with jobs
			for range jobs {
				got, failure := one(ctx, client, url, model)
				mu.Lock()
				tokens += got.tokens
				if failure != nil {
					err = failure
				}
				mu.Unlock()
			}
		})
	}
	for range l.requests {
		jobs <- struct{}{}
	}
	close(jobs)
	wait.Wait()
	return tokens, err
}

// heard is what one stream brought.
type heard struct {
	tokens          int // by its usage
	thought, called bool
}

// one reads one stream.
func one(ctx context.Context, client *http.Client, url, model string) (got heard, err error) {
	body, err := json.Marshal(map[string]any{"model": model, "max_tokens": 8192, "stream": true, "stream_options": map[string]any{"include_usage": true},
		"messages": []map[string]string{{"role": "user", "content": "Which platform?"}},
		"tools": []map[string]any{{"type": "function", "function": map[string]any{"name": "departures",
			"parameters": map[string]any{"type": "object", "properties": map[string]any{"station": map[string]string{"type": "string"}, "after": map[string]string{"type": "string"},
				"limit": map[string]string{"type": "integer"}}}}}}})
	if err != nil {
		return got, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		return got, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return got, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return got, fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	scanner := bufio.NewScanner(response.Body)
	last, done := "", false
	for scanner.Scan() {
		switch line := scanner.Text(); {
		case line == "data: [DONE]":
			done = true
		case strings.Contains(line, `"usage":{`):
			last = line
		case !got.thought && strings.Contains(line, `"reasoning_content":"`):
			got.thought = true
		case !got.called && strings.Contains(line, `"tool_calls":[`):
			got.called = true
		}
	}
	if err := scanner.Err(); err != nil {
		return got, err
	}
	var chunk struct {
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		}
	}
	if !done || json.Unmarshal([]byte(strings.TrimPrefix(last, "data: ")), &chunk) != nil || chunk.Usage.CompletionTokens == 0 {
		return got, fmt.Errorf("a stream ended early, or tells no usage (%q)", last)
	}
	got.tokens = chunk.Usage.CompletionTokens
	return got, nil
}
