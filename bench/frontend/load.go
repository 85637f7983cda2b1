package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/bench/internal/peer"
)

// scenario is one kind of load: closed-loop clients that send the same shape of request again and again.
type scenario struct {
	name    string
	clients int
	// words is the prompt length in English words, output the tokens asked for.
	words, output int
	requests      int
	stream        bool
}

// measurement is what one run of a scenario cost.
type measurement struct {
	requests   int
	tokens     int
	failed     int
	wall       time.Duration
	cpu        time.Duration // of the frontend under test
	ttft       []time.Duration
	residentKB int
}

func (m measurement) ttftQuantile(q float64) time.Duration {
	if len(m.ttft) == 0 {
		return 0
	}
	sorted := slices.Clone(m.ttft)
	slices.Sort(sorted)
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// prompts makes distinct prompts of the scenario's length, so that no cache of whole prompts helps anybody.
func (s scenario) prompt(number int) string {
	vocabulary := strings.Fields(`the of and to in is that it was for on are as with his they be at one have this from or had by hot word but what
		some we can out other were all there when up use your how said an each she which do their time if will way about many then them write would
		like so these her long make thing see him two has look more day could go come did number sound no most people my over know water than call first who may down side been now find`)
	var b strings.Builder
	state := uint64(number)*0x9E3779B97F4A7C15 + 1
	for range s.words {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		b.WriteString(vocabulary[state%uint64(len(vocabulary))])
		b.WriteByte(' ')
	}
	return b.String()
}

// run drives the load and measures it; base numbers the prompts, so that two runs never share one.
func (s scenario) run(ctx context.Context, url, model string, base int, process *peer.Process) (measurement, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: s.clients, MaxConnsPerHost: s.clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 2 * time.Minute}
	var mu sync.Mutex
	var m measurement
	jobs := make(chan int)
	var wait sync.WaitGroup
	before, err := process.CPU()
	if err != nil {
		return m, err
	}
	start := time.Now()
	for range s.clients {
		wait.Go(func() {
			for number := range jobs {
				ttft, tokens, err := s.one(ctx, client, url, model, base+number)
				mu.Lock()
				m.requests++
				m.tokens += tokens
				if err != nil {
					m.failed++
				} else {
					m.ttft = append(m.ttft, ttft)
				}
				mu.Unlock()
			}
		})
	}
	for number := range s.requests {
		jobs <- number
	}
	close(jobs)
	wait.Wait()
	m.wall = time.Since(start)
	after, err := process.CPU()
	if err != nil {
		return m, err
	}
	m.cpu = after - before
	m.residentKB, err = process.Resident()
	return m, err
}

// one sends one request and reads its answer to the end.
func (s scenario) one(ctx context.Context, client *http.Client, url, model string, number int) (ttft time.Duration, tokens int, err error) {
	body, err := json.Marshal(map[string]any{"model": model, "max_tokens": s.output, "stream": s.stream, "ignore_eos": true,
		"messages": []map[string]string{{"role": "user", "content": s.prompt(number)}}})
	if err != nil {
		return 0, 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	start := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return 0, 0, fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	if !s.stream {
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return 0, 0, err
		}
		var answer struct {
			Usage struct {
				CompletionTokens int `json:"completion_tokens"`
			}
		}
		err = json.Unmarshal(text, &answer)
		return time.Since(start), answer.Usage.CompletionTokens, err
	}
	scanner := bufio.NewScanner(response.Body)
	done := false
	for scanner.Scan() {
		line := scanner.Bytes()
		switch {
		case bytes.Equal(line, []byte("data: [DONE]")):
			done = true
		case bytes.Contains(line, []byte(`"error"`)):
			return 0, tokens, fmt.Errorf("the stream failed: %s", line)
		case bytes.Contains(line, []byte(`"content":"`)):
			if ttft == 0 {
				ttft = time.Since(start)
			}
			tokens++
		}
	}
	if err := scanner.Err(); err != nil {
		return 0, tokens, err
	}
	if !done {
		return 0, tokens, errors.New("the stream has no end")
	}
	return ttft, tokens, nil
}
