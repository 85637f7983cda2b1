package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"

	"signalbox/discovery"
	"signalbox/discovery/file"
	"signalbox/frontend"
	"signalbox/inference"
	"signalbox/transport/tcp"
)

// direct asks the workers without a frontend, over the same request plane: what the engine itself takes until its first token. The
// prompt has as many tokens as the scenario's, and is ready when the clock starts.
type direct struct {
	client  *tcp.Client
	targets []inference.Target
	tokens  int
	ttft    []time.Duration
}

// newDirect finds the workers in the file store; url is a frontend's, which tells how many tokens the scenario's prompts have.
func newDirect(ctx context.Context, store, url string, s scenario) (*direct, error) {
	tokens, err := s.promptTokens(ctx, url)
	if err != nil {
		return nil, err
	}
	backend, err := file.Open(file.Options{Root: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer backend.Close(ctx)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	events, err := backend.Watch(watching, discovery.Instances, "")
	if err != nil {
		return nil, err
	}
	client, err := tcp.NewClient(tcp.Options{Host: "127.0.0.1"})
	if err != nil {
		return nil, err
	}
	d := &direct{client: client, tokens: tokens}
	for event := range events {
		if event.Kind == discovery.Synced {
			break
		}
		if instance, ok := event.Record.(*discovery.Instance); ok && instance.Endpoint == "generate" {
			if target, ok := (frontend.TCP{Client: client}).Target(instance); ok {
				d.targets = append(d.targets, target)
			}
		}
	}
	if len(d.targets) == 0 {
		return nil, errors.Join(errors.New("no worker in the store"), client.Close())
	}
	return d, nil
}

// run asks one after the other, like a single client.
func (d *direct) run(ctx context.Context, s scenario) error {
	for i := range s.requests {
		limit, ignore := uint32(s.output), true
		request := &inference.Request{ID: uuid.NewString(), Model: modelName, TokenIDs: make([]uint32, d.tokens),
			Stop: inference.StopConditions{MaxTokens: &limit, IgnoreEOS: &ignore}}
		for j := range request.TokenIDs {
			request.TokenIDs[j] = 1000 + rand.Uint32N(50_000)
		}
		start := time.Now()
		stream, err := d.client.Send(ctx, d.targets[i%len(d.targets)], request)
		if err != nil {
			return err
		}
		first := time.Duration(0)
		for {
			output, err := stream.Next(ctx)
			if err != nil {
				break // the end
			}
			if first == 0 && len(output.TokenIDs) > 0 {
				first = time.Since(start)
			}
		}
		_ = stream.Close()
		if first == 0 {
			return errors.New("a worker that was asked directly gave no token")
		}
		d.ttft = append(d.ttft, first)
	}
	return nil
}

func (d *direct) report(contenders []*contender, at int) {
	alone := measurement{ttft: d.ttft}.ttftQuantile(0.5)
	fmt.Printf("\nThe workers asked directly with %d tokens, without a frontend: first token after %.3g ms. Added to it:", d.tokens, milliseconds(alone))
	for i, c := range contenders {
		if i > 0 {
			fmt.Print(",")
		}
		whole := median(c.results[at], func(m measurement) time.Duration { return m.ttftQuantile(0.5) })
		fmt.Printf(" %s %.3g ms", c.name, milliseconds(whole-alone))
	}
	fmt.Println(".")
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// promptTokens asks a frontend how many tokens a prompt of the scenario has.
func (s scenario) promptTokens(ctx context.Context, url string) (int, error) {
	body, err := json.Marshal(map[string]any{"model": modelName, "max_tokens": 1,
		"messages": []map[string]string{{"role": "user", "content": s.prompt(0)}}})
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct {
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Usage.PromptTokens == 0 {
		return 0, fmt.Errorf("status %d without a count of prompt tokens", response.StatusCode)
	}
	return answer.Usage.PromptTokens, nil
}
