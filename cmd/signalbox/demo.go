package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"signalbox/discovery"
	"signalbox/discovery/mem"
	"signalbox/frontend"
	"signalbox/inference"
	"signalbox/settings"
	"signalbox/worker"
	"signalbox/worker/sim"
)

// runDemo serves a frontend and simulated workers in one process.
func runDemo(args []string) error {
	s, _, err := settings.LoadDemo(args)
	switch {
	case errors.Is(err, settings.ErrHelp):
		settings.DemoHelp(os.Stdout)
		return nil
	case errors.Is(err, settings.ErrVersion):
		fmt.Println("signalbox", version())
		return nil
	case err != nil:
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	started := time.Now()
	demo, err := startDemo(ctx, s)
	if err != nil {
		return err
	}
	defer demo.stop()
	printWelcome(os.Stdout, demo, time.Since(started))
	if s.Quiet {
		<-ctx.Done()
	} else {
		demo.show(ctx, os.Stdout)
	}
	fmt.Println("\nEnding.")
	return nil
}

// demonstration is the running demo.
type demonstration struct {
	frontend *frontend.Frontend
	engines  []*sim.Engine
	ids      []uint64
	backends []discovery.Backend
	cleanup  func()
	model    string
	mode     string
}

func startDemo(ctx context.Context, s *settings.Demo) (*demonstration, error) {
	name := ""
	if s.ModelPath == "" {
		name = "demo"
	}
	model, cleanup, err := openModel(s.ModelPath, name)
	if err != nil {
		return nil, err
	}
	d := &demonstration{cleanup: cleanup, model: model.name, mode: string(s.RouterMode)}
	store := &mem.Store{}
	transport, events := &inProcess{engines: make(map[uint64]*sim.Engine)}, &inProcessEvents{}
	workerSettings, _, err := settings.LoadWorker([]string{"--default-max-tokens", "64", "--speedup-ratio", fmt.Sprint(s.Speedup), "--block-size", "16", "--context-length", "32768"}, nil)
	if err != nil {
		d.stop()
		return nil, err
	}
	for range s.Workers {
		if err := d.addWorker(ctx, store, transport, events, workerSettings, model); err != nil {
			d.stop()
			return nil, err
		}
	}
	front, _, err := settings.LoadFrontend([]string{"--router-mode", string(s.RouterMode), "--http-host", s.Host, "--http-port", fmt.Sprint(s.Port), "--enable-anthropic-api", "--discovery-backend", "mem"}, nil)
	if err != nil {
		d.stop()
		return nil, err
	}
	logger := slog.New(slog.DiscardHandler)
	route, err := routing(front, logger)
	if err != nil {
		d.stop()
		return nil, err
	}
	route.Events = events
	options := frontendOptions(front, logger)
	backend := store.Open(mem.Options{})
	d.backends = append(d.backends, backend)
	options.Backend, options.Transport, options.Routers = backend, transport, route.Routers()
	if d.frontend, err = frontend.Start(context.Background(), options); err != nil {
		d.stop()
		return nil, err
	}
	for !d.frontend.Ready(d.model) && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	return d, nil
}

func (d *demonstration) addWorker(ctx context.Context, store *mem.Store, transport *inProcess, events *inProcessEvents, s *settings.Worker, model servedModel) error {
	config, err := engineConfig(s, model)
	if err != nil {
		return err
	}
	backend := store.Open(mem.Options{})
	d.backends = append(d.backends, backend)
	id := backend.InstanceID()
	engine, err := sim.New(config, engineEvents{events, id})
	if err != nil {
		return err
	}
	d.engines = append(d.engines, engine)
	d.ids = append(d.ids, id)
	transport.engines[id] = engine
	c, endpoint, err := workerCard(s, model)
	if err != nil {
		return err
	}
	return worker.Register(ctx, backend, endpoint, c, "in-process")
}

func (d *demonstration) stop() {
	if d.frontend != nil {
		_ = d.frontend.Stop()
	}
	for _, e := range d.engines {
		e.Close()
	}
	for _, b := range d.backends {
		_ = b.Close(context.Background())
	}
	d.cleanup()
}

// inProcess reaches engines of this process without any socket.
type inProcess struct{ engines map[uint64]*sim.Engine }

// Send implements inference.Sender.
func (p *inProcess) Send(ctx context.Context, target inference.Target, r *inference.Request) (inference.Stream, error) {
	engine := p.engines[target.WorkerID]
	if engine == nil {
		return nil, inference.Errorf(inference.CannotConnect, "no engine %d in this process", target.WorkerID)
	}
	return engine.Generate(ctx, r)
}

// Forward implements frontend.Transport.
func (p *inProcess) Forward(inference.Target) frontend.Forwarder { return noForward{} }

// Target implements frontend.Transport.
func (p *inProcess) Target(instance *discovery.Instance) (inference.Target, bool) {
	return inference.Target{WorkerID: instance.InstanceID}, p.engines[instance.InstanceID] != nil
}

// Gone implements frontend.Transport.
func (p *inProcess) Gone(uint64) {}

type noForward struct{}

// SendRaw implements frontend.Forwarder.
func (noForward) SendRaw(context.Context, string, []byte) (inference.Stream, error) {
	return nil, inference.Errorf(inference.NotImplemented, "simulated engines take tokens only")
}

func printWelcome(w io.Writer, d *demonstration, took time.Duration) {
	url := "http://" + d.frontend.Address()
	fmt.Fprintf(w, "signalbox demo: %d simulated workers behind %s, router mode %s, ready after %d ms.\n\nTry:\n", len(d.engines), url, d.mode, took.Milliseconds())
	fmt.Fprintf(w, "  curl -N %s/v1/chat/completions -H 'Content-Type: application/json' \\\n    -d '{\"model\":%q,\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Where does this train go?\"}]}'\n\n", url, d.model)
	fmt.Fprintf(w, "  curl %s/v1/models\n  curl %s/metrics\n  open %s/docs/\n\nCtrl-C ends it.\n\n", url, url, url)
}

// show prints the workers' load until ctx ends: in place on a terminal, else now and then, when something has changed.
func (d *demonstration) show(ctx context.Context, w *os.File) {
	info, err := w.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	pause := 10 * time.Second
	if terminal {
		pause = 250 * time.Millisecond
	}
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	drawn := ""
	for {
		var table strings.Builder
		d.table(&table, terminal)
		if table.String() != drawn {
			if terminal && drawn != "" {
				fmt.Fprintf(w, "\x1b[%dA", len(d.engines)+1)
			}
			drawn = table.String()
			fmt.Fprint(w, drawn)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (d *demonstration) table(w io.Writer, terminal bool) {
	clear := ""
	if terminal {
		clear = "\x1b[K"
	}
	fmt.Fprintf(w, "%-18s %8s %8s %8s %12s %10s%s\n", "worker", "running", "waiting", "blocks", "out tokens", "cache hit", clear)
	for i, e := range d.engines {
		s := e.Status()
		hit := "–"
		if s.PromptTokens > 0 {
			hit = fmt.Sprintf("%d %%", 100*s.Cached/s.PromptTokens)
		}
		bar := strings.Repeat("▪", min(s.Running, 20))
		fmt.Fprintf(w, "%-18s %8d %8d %8d %12d %10s %s%s\n", discovery.FormatID(d.ids[i]), s.Running, s.Waiting, s.UsedBlocks, s.OutputTokens, hit, bar, clear)
	}
}
