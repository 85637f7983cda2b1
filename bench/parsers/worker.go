package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"signalbox/discovery"
	"signalbox/discovery/file"
	"signalbox/inference"
	"signalbox/model/card"
	"signalbox/preprocess/tokenizer"
	"signalbox/transport/tcp"
	"signalbox/worker"
)

// player answers every request with the same tokens, one at a time.
type player struct {
	tokens []uint32
	pace   time.Duration
}

// Generate implements worker.Engine.
func (p *player) Generate(context.Context, *inference.Request) (inference.Stream, error) {
	return &performance{player: p, ticker: time.NewTicker(p.pace)}, nil
}

// performance is one answer.
type performance struct {
	*player
	ticker *time.Ticker
	at     int
}

// Next implements inference.Stream.
func (p *performance) Next(ctx context.Context) (*inference.Output, error) {
	if p.at > len(p.tokens) {
		return nil, io.EOF
	}
	select {
	case <-p.ticker.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.at++
	if p.at > len(p.tokens) {
		return &inference.Output{Finish: inference.FinishEOS}, nil
	}
	return &inference.Output{TokenIDs: p.tokens[p.at-1 : p.at]}, nil
}

// Buffered implements inference.Stream.
func (p *performance) Buffered() bool { return false }

// Close implements inference.Stream.
func (p *performance) Close() error { p.ticker.Stop(); return nil }

// workers are the players of all contenders, in this process.
type workers struct {
	list     []*worker.Worker
	servers  []*tcp.Server
	backends []discovery.Backend
}

func startWorkers(ctx context.Context, store, modelPath string, contenders []*contender, pace time.Duration) (w workers, err error) {
	tokens, err := tokenizer.Load(filepath.Join(modelPath, "tokenizer.json"))
	if err != nil {
		return w, err
	}
	for i, c := range contenders {
		endpoint, err := worker.ParseEndpoint("dyn://bench.player" + string(rune('a'+i)) + ".generate")
		if err != nil {
			return w, err
		}
		runtime := card.DefaultRuntimeConfig()
		if c.tool != "" {
			runtime.ToolCallParser, runtime.ReasoningParser = &c.tool, &c.reasoning
		}
		made, err := card.FromDirectory(modelPath, c.name, card.Options{BlockSize: 64, ModelType: card.Chat | card.Completions, WorkerType: card.AggregatedWorker, Runtime: &runtime})
		if err != nil {
			return w, err
		}
		backend, err := file.Open(file.Options{Root: store})
		if err != nil {
			return w, err
		}
		w.backends = append(w.backends, backend)
		logger := slog.New(slog.DiscardHandler)
		server, err := tcp.NewServer(tcp.Options{Host: "127.0.0.1"}, logger)
		if err != nil {
			return w, err
		}
		w.servers = append(w.servers, server)
		started, err := worker.Start(ctx, worker.Options{Backend: backend, Endpoint: endpoint, Card: made, Engine: &player{tokens.Encode(nil, c.script, false), pace},
			Server: server, Requests: worker.OnTCP(server), Logger: logger})
		if err != nil {
			return w, err
		}
		w.list = append(w.list, started)
	}
	return w, nil
}

func (w workers) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var err error
	for _, one := range w.list {
		err = errors.Join(err, one.Stop(ctx))
	}
	for _, server := range w.servers {
		err = errors.Join(err, server.Close())
	}
	for _, backend := range w.backends {
		err = errors.Join(err, backend.Close(ctx))
	}
	_ = err // the bench is over
}
