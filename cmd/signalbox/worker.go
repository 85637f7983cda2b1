package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"signalbox/discovery"
	"signalbox/model/card"
	"signalbox/settings"
	"signalbox/transport/tcp"
	"signalbox/worker"
	"signalbox/worker/builtin"
	"signalbox/worker/sim"
)

func runWorker(args []string) error {
	s, warnings, err := settings.LoadWorker(args, os.Environ())
	switch {
	case errors.Is(err, settings.ErrHelp):
		settings.WorkerHelp(os.Stdout)
		return nil
	case errors.Is(err, settings.ErrVersion):
		fmt.Println("signalbox", version())
		return nil
	case err != nil:
		return err
	}
	logger := newLogger(s.Log, false)
	for _, w := range warnings {
		logger.Warn(w.Text)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fleet, err := startFleet(ctx, s, logger)
	if err != nil {
		return err
	}
	<-ctx.Done()
	stop() // a second signal ends the program at once
	fleet.leave(s.DrainTimeout)
	fleet.stop()
	return nil
}

// fleet is the workers of one process.
type fleet struct {
	engines  []*sim.Engine
	workers  []*worker.Worker
	events   []*worker.EventPublisher
	backends []discovery.Backend
	servers  []*tcp.Server
	status   *worker.Status // nil for none
	bus      bus            // nil when no plane uses one
	cleanup  func()
	logger   *slog.Logger
}

func startFleet(ctx context.Context, s *settings.Worker, logger *slog.Logger) (*fleet, error) {
	model, cleanup, err := openModel(s.ModelPath, s.ModelName)
	if err != nil {
		return nil, err
	}
	f := &fleet{cleanup: cleanup, logger: logger}
	if f.bus, err = openBus(ctx, s.RequestPlane, s.EventPlane, nil, logger); err != nil {
		f.stop()
		return nil, err
	}
	for range s.Workers {
		backend, err := openDiscovery(ctx, s.DiscoveryBackend, logger)
		if err == nil {
			f.backends = append(f.backends, backend)
			err = f.add(ctx, s, model, backend)
		}
		if err != nil {
			f.stop()
			return nil, err
		}
	}
	if s.SystemPort < 0 {
		return f, nil
	}
	f.status, err = worker.StartStatus(worker.StatusOptions{Address: net.JoinHostPort(s.SystemHost, strconv.Itoa(s.SystemPort)),
		Adapters: s.LoadsAdapters, Logger: logger}, f.workers)
	if err != nil {
		f.stop()
		return nil, fmt.Errorf("DYN_SYSTEM_PORT: %w", err)
	}
	logger.Info("the status server listens", "address", f.status.Address())
	return f, nil
}

// builtinSource stands for the built-in model in cards. It is no path: each process writes the model's files into a directory of its
// own, and workers whose cards name different sources do not serve together.
const builtinSource = "/built-in/signalbox"

// servedModel is a model directory with the name it is served under.
type servedModel struct {
	directory, name string
	source          string // what the card says instead of the directory; "" for nothing else
	words           []uint32
}

// openModel finds the model's files; without a path it writes the built-in ones into a directory of their own.
func openModel(path, name string) (servedModel, func(), error) {
	cleanup, source := func() {}, ""
	if path == "" {
		directory, err := os.MkdirTemp("", "signalbox-model-")
		if err != nil {
			return servedModel{}, nil, err
		}
		cleanup = func() { _ = os.RemoveAll(directory) }
		if err := builtin.Write(directory); err != nil {
			cleanup()
			return servedModel{}, nil, err
		}
		path, source = directory, builtinSource
		if name == "" {
			name = "simulated"
		}
	}
	if name == "" {
		name = path
	}
	text, err := os.ReadFile(filepath.Join(path, "tokenizer.json"))
	if err != nil {
		cleanup()
		return servedModel{}, nil, fmt.Errorf("--model-path: %w", err)
	}
	words, err := builtin.Words(text)
	if err != nil {
		cleanup()
		return servedModel{}, nil, err
	}
	return servedModel{directory: path, name: name, source: source, words: words}, cleanup, nil
}

func (f *fleet) add(ctx context.Context, s *settings.Worker, model servedModel, backend discovery.Backend) error {
	config, err := engineConfig(s, model)
	if err != nil {
		return err
	}
	server, err := tcp.NewServer(tcp.Options{Host: s.Host}, f.logger)
	if err != nil {
		return err
	}
	f.servers = append(f.servers, server)
	modelCard, endpoint, err := workerCard(s, model)
	if err != nil {
		return err
	}
	requests := servePlane(s.RequestPlane, f.bus, server)
	var events sim.Events
	if s.EventPlane != "none" {
		options := worker.EventOptions{Backend: backend, Endpoint: endpoint, Server: server, Requests: requests, Ranks: s.Ranks}
		if s.EventPlane == "nats" {
			options.Events = worker.EventsOn(f.bus)
		}
		publisher, err := worker.StartEvents(ctx, options)
		if err != nil {
			return err
		}
		f.events, events = append(f.events, publisher), publisher
	}
	engine, err := sim.New(config, events)
	if err != nil {
		return err
	}
	f.engines = append(f.engines, engine)
	w, err := worker.Start(ctx, worker.Options{Backend: backend, Endpoint: endpoint, Card: modelCard, Adapters: s.Adapters, LoadsAdapters: s.LoadsAdapters, AdapterSlots: s.AdapterSlots,
		Engine: engine, Server: server, Requests: requests, Logger: f.logger})
	if err != nil {
		return err
	}
	f.workers = append(f.workers, w)
	return nil
}

func engineConfig(s *settings.Worker, model servedModel) (sim.Config, error) {
	config := sim.DefaultConfig()
	config.BlockSize, config.Blocks = s.BlockSize, s.Blocks
	config.MaxSequences, config.MaxBatchedTokens = s.MaxSequences, s.MaxBatchedTokens
	config.MaxModelLength, _ = s.MaxModelLength.Get()
	config.PrefixCaching, config.ChunkedPrefill = s.PrefixCaching, s.ChunkedPrefill
	config.SpeedupRatio, config.DecodeSpeedupRatio = s.Speedup, s.DecodeSpeedup
	config.Ranks, config.DefaultMaxTokens = s.Ranks, s.DefaultMaxTokens
	config.Words, config.Numbered = model.words, s.Numbered
	config.Prefill = s.Role == "prefill"
	if s.ReplayTrace == "" && s.ScriptFile == "" {
		return config, nil
	}
	config.Scripts = sim.NewScripts()
	if s.ReplayTrace != "" {
		if err := config.Scripts.LoadReplays(s.ReplayTrace); err != nil {
			return config, err
		}
	}
	if s.ScriptFile != "" {
		if err := config.Scripts.LoadScripts(s.ScriptFile); err != nil {
			return config, err
		}
	}
	return config, nil
}

func workerCard(s *settings.Worker, model servedModel) (*card.Card, discovery.EndpointID, error) {
	endpointText := s.Endpoint
	if endpointText == "" {
		endpointText = "dyn://dynamo.backend.generate"
		if s.Role == "prefill" {
			endpointText = "dyn://dynamo.prefill.generate"
		}
	}
	endpoint, err := worker.ParseEndpoint(endpointText)
	if err != nil {
		return nil, endpoint, fmt.Errorf("--endpoint: %w", err)
	}
	runtime := card.DefaultRuntimeConfig()
	blocks, sequences, batched, context := uint64(s.Blocks), uint64(s.MaxSequences), uint64(s.MaxBatchedTokens), uint32(s.ContextLength)
	publishes := s.EventPlane != "none"
	runtime.TotalBlocks, runtime.MaxSequences, runtime.MaxBatchedTokens, runtime.ContextLength = &blocks, &sequences, &batched, &context
	runtime.Ranks, runtime.LocalIndexer, runtime.PublishesEvents = uint32(s.Ranks), publishes, &publishes
	if s.ToolParser != "" {
		runtime.ToolCallParser = &s.ToolParser
	}
	if s.ReasoningParser != "" {
		runtime.ReasoningParser = &s.ReasoningParser
	}
	role, kinds, needs := card.AggregatedWorker, card.Chat|card.Completions, []card.WorkerPool(nil)
	switch s.Role {
	case "prefill":
		role, kinds, needs = card.PrefillWorker, 0, []card.WorkerPool{{card.DecodeWorker}}
	case "decode":
		role, needs = card.DecodeWorker, []card.WorkerPool{{card.PrefillWorker}}
	}
	c, err := card.FromDirectory(model.directory, model.name, card.Options{BlockSize: uint32(s.BlockSize), ModelType: kinds,
		WorkerType: role, Needs: needs, Runtime: &runtime})
	if err == nil && model.source != "" {
		c.SourcePath = model.source
	}
	return c, endpoint, err
}

// leaveTime is how long a worker that has left discovery takes requests: frontends learn of it a moment later.
const leaveTime = time.Second

// leave takes the workers out of discovery and lets the requests that run finish.
func (f *fleet) leave(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	for _, w := range f.workers {
		if err := w.Withdraw(ctx); err != nil {
			f.logger.Warn("a worker did not leave discovery cleanly", "error", err)
		}
	}
	<-ctx.Done()
	drain, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	for _, s := range f.servers {
		if !s.Drain(drain) {
			f.logger.Warn("requests still run at the end of the drain time; they are broken off", "drain", patience)
			return
		}
	}
}

// stop ends everything.
func (f *fleet) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if f.status != nil {
		_ = f.status.Close()
	}
	for _, w := range f.workers {
		if err := w.Stop(ctx); err != nil {
			f.logger.Warn("a worker did not leave discovery cleanly", "error", err)
		}
	}
	for _, e := range f.engines {
		e.Close()
	}
	for _, p := range f.events {
		if err := p.Close(ctx); err != nil {
			f.logger.Warn("a publisher of KV events did not leave discovery cleanly", "error", err)
		}
	}
	for _, s := range f.servers {
		_ = s.Close()
	}
	for _, b := range f.backends {
		closeBackend(b, f.logger)
	}
	closeBus(f.bus, f.logger)
	if f.cleanup != nil {
		f.cleanup()
	}
}
