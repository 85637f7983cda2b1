package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"signalbox/discovery"
	"signalbox/frontend"
	"signalbox/kvservice/standalone"
	"signalbox/model"
	"signalbox/observe"
	"signalbox/router"
	"signalbox/settings"
	"signalbox/transport/tcp"
	"signalbox/worker"
)

const routerUsage = `usage: signalbox router --endpoint NAMESPACE.COMPONENT.ENDPOINT [flags]

A KV router for the workers at an endpoint. It takes requests at NAMESPACE.router.generate and passes each on to the worker that holds
most of its prompt and has room; NAMESPACE.router.best_worker_id and NAMESPACE.router.get_overlap_scores answer questions.

flags:
  --endpoint NAMESPACE.COMPONENT.ENDPOINT
        the workers' endpoint (DYN_ROUTER_ENDPOINT)
  --router-block-size N
        the workers' KV block size in tokens (DYN_ROUTER_BLOCK_SIZE; default 128)

All flags and variables of the frontend about routing, discovery and planes: signalbox frontend --help. DYN_NAMESPACE replaces the
namespace, DYN_NAMESPACE_WORKER_SUFFIX is appended to that of the workers. DYN_SYSTEM_PORT serves /health, /live and /metrics.
`

// routerFlags are the settings of the standalone router that the frontend does not have.
type routerFlags struct {
	endpoint  discovery.EndpointID // the workers'
	namespace string               // the router's own
	blockSize int
	status    string // address of the status server; "" for none
}

// splitRouterArguments takes the standalone router's own flags out of the arguments.
func splitRouterArguments(args []string) (own map[string]string, rest []string, err error) {
	own = make(map[string]string)
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		switch name {
		case "--endpoint", "--router-block-size", "--block-size":
			if !joined {
				if i++; i == len(args) {
					return nil, nil, fmt.Errorf("%s: a value is missing", name)
				}
				value = args[i]
			}
			own[strings.Replace(name, "--block-size", "--router-block-size", 1)] = value
		default:
			rest = append(rest, args[i])
		}
	}
	return own, rest, nil
}

// readRouterFlags joins flags and variables.
func readRouterFlags(own map[string]string, variable func(string) string) (f routerFlags, err error) {
	text := own["--endpoint"]
	if text == "" {
		text = variable("DYN_ROUTER_ENDPOINT")
	}
	if text == "" {
		return f, errors.New("endpoint is required (set --endpoint or DYN_ROUTER_ENDPOINT)")
	}
	if f.endpoint, err = worker.ParseEndpoint(text); err != nil {
		return f, fmt.Errorf("--endpoint: %w", err)
	}
	f.namespace = f.endpoint.Namespace
	if namespace := variable("DYN_NAMESPACE"); namespace != "" {
		f.namespace, f.endpoint.Namespace = namespace, namespace
	}
	if suffix := variable("DYN_NAMESPACE_WORKER_SUFFIX"); suffix != "" {
		f.endpoint.Namespace = f.namespace + "-" + suffix
	}
	f.blockSize = 128
	size := own["--router-block-size"]
	if size == "" {
		size = variable("DYN_ROUTER_BLOCK_SIZE")
	}
	if size != "" {
		if f.blockSize, err = strconv.Atoi(size); err != nil || f.blockSize < 1 || f.blockSize > 1<<20 {
			return f, fmt.Errorf("--router-block-size: %q must be a number of tokens from 1 to %d", size, 1<<20)
		}
	}
	if port := variable("DYN_SYSTEM_PORT"); port != "" && !strings.HasPrefix(port, "-") {
		f.status = net.JoinHostPort(variable("DYN_SYSTEM_HOST"), port)
	}
	return f, nil
}

// withoutRouterVariables leaves out what a frontend would take for a misspelled variable.
func withoutRouterVariables(environ []string) (list []string) {
	for _, variable := range environ {
		switch name, _, _ := strings.Cut(variable, "="); name {
		case "DYN_ROUTER_ENDPOINT", "DYN_ROUTER_BLOCK_SIZE", "DYN_ROUTER_MODE":
		default:
			list = append(list, variable)
		}
	}
	return list
}

// runRouter serves a standalone router.
func runRouter(args []string) error {
	own, rest, err := splitRouterArguments(args)
	if err != nil {
		return err
	}
	s, warnings, err := settings.LoadFrontend(append([]string{"--router-mode", "kv"}, rest...), withoutRouterVariables(os.Environ()))
	switch {
	case errors.Is(err, settings.ErrHelp):
		fmt.Print(routerUsage)
		return nil
	case errors.Is(err, settings.ErrVersion):
		fmt.Println("signalbox", version())
		return nil
	case err != nil:
		return err
	}
	flags, err := readRouterFlags(own, os.Getenv)
	if err != nil {
		return err
	}
	if s.Router.Mode != settings.KV {
		return fmt.Errorf("--router-mode=%s: a standalone router has mode kv only", s.Router.Mode)
	}
	if s.Router.ConditionalDisagg {
		return errors.New("--router-conditional-disagg is for frontends: a standalone router sends no request to a second worker")
	}
	logger := newLogger(s.Monitoring.Log, s.Monitoring.LogJSON)
	for _, warning := range warnings {
		logger.Warn(warning.Text)
	}
	return serveRouter(s, flags, logger)
}

func serveRouter(s *settings.Frontend, flags routerFlags, logger *slog.Logger) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := openLinks(ctx, s, logger)
	if err != nil {
		return err
	}
	defer l.close()
	server, err := tcp.NewServer(tcp.Options{Host: tcp.MachineAddress()}, logger)
	if err != nil {
		return err
	}
	defer server.Close()
	registry := prometheus.NewRegistry()
	metrics := observe.NewRouters(registry, l.backend.InstanceID())
	closeStatus, err := serveStatus(flags.status, registry, logger)
	if err != nil {
		return err
	}
	defer closeStatus()
	service, err := standalone.Start(ctx, standalone.Options{Backend: l.backend, Plane: servePlane(s.Planes.Request, l.messages, server), Workers: frontend.TCP{Client: l.transport},
		Endpoint: flags.endpoint, Namespace: flags.namespace, BlockSize: flags.blockSize, WorkerOf: frontend.WorkerOf, Logger: logger,
		Route: func(pool *router.Pool, set *model.Set) (router.Router, func(), error) {
			labels := observe.PoolLabels{Namespace: set.Key.Endpoint.Namespace, Component: set.Key.Endpoint.Component, Endpoint: set.Key.Endpoint.Name,
				Model: set.Key.Model, WorkerType: "decode", Phase: string(set.Key.Role)}
			return l.route.Routers()(frontend.RouterSet{Pool: pool, Set: set, Metrics: metrics.Pool(labels)})
		}})
	if err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while it waited for workers
		}
		return err
	}
	defer service.Close()
	logger.Info("serving", "workers", flags.endpoint.String(), "endpoint", flags.namespace+"/router/generate", "block_size", flags.blockSize)
	<-ctx.Done()
	stop() // a second signal ends the program at once
	if err := service.Withdraw(); err != nil {
		logger.Warn("the router did not leave discovery cleanly", "error", err)
	}
	time.Sleep(leaveTime) // others learn of it a moment later
	drain, cancel := context.WithTimeout(context.Background(), s.HTTP.ShutdownTimeout)
	defer cancel()
	if !server.Drain(drain) {
		logger.Warn("requests still run at the end of the drain time; they are broken off", "drain", s.HTTP.ShutdownTimeout)
	}
	return nil
}

// serveStatus answers health checks and scrapers at the address until close is called; "" answers nobody.
func serveStatus(address string, registry *prometheus.Registry, logger *slog.Logger) (close func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("DYN_SYSTEM_PORT: %w", err)
	}
	mux := http.NewServeMux()
	healthy := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"ready"}`)) // whoever asked may have gone
	}
	mux.HandleFunc("/health", healthy)
	mux.HandleFunc("/live", healthy)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	status := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = status.Serve(listener) }() // ends with Close
	logger.Info("the status server listens", "address", listener.Addr().String())
	return func() { _ = status.Close() }, nil
}
