package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"signalbox/api/admin"
	"signalbox/api/openai"
	"signalbox/discovery"
	"signalbox/frontend"
	"signalbox/model/card"
	"signalbox/settings"
	"signalbox/transport/tcp"
)

func runFrontend(args []string) error {
	s, warnings, err := settings.LoadFrontend(args, os.Environ())
	switch {
	case errors.Is(err, settings.ErrHelp):
		settings.FrontendHelp(os.Stdout)
		return nil
	case errors.Is(err, settings.ErrVersion):
		fmt.Println("signalbox", version())
		return nil
	case err != nil:
		return err
	}
	logger := newLogger(s.Monitoring.Log, s.Monitoring.LogJSON)
	logger, stopLogs, err := exporting(context.Background(), logger)
	if err != nil {
		return err
	}
	defer stopLogs()
	for _, w := range warnings {
		logger.Warn(w.Text)
	}
	if os.Getenv("DYN_LOGGING_CONFIG_PATH") != "" {
		logger.Warn("DYN_LOGGING_CONFIG_PATH is not read: DYN_LOG sets the level")
	}
	if err := dumpConfiguration(s); err != nil {
		return err
	}
	raiseFileLimit(s.HTTP.FileDescriptors, logger)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := openLinks(ctx, s, logger)
	if err != nil {
		return err
	}
	defer l.close()
	options := frontendOptions(s, logger)
	options.Loads = l.events
	options.Backend, options.Transport = l.backend, frontend.TCP{Client: l.transport}
	leaveUpstream, err := joinUpstream(s, l, &options, logger)
	if err != nil {
		return err
	}
	defer leaveUpstream()
	options.Routers = l.route.Routers()
	if options.Extensions, err = frontend.Extensions(s.HTTP.RouteExtensions); err != nil {
		return err
	}
	options.PreprocessWorkers, options.DebugPerf = s.Experimental.PreprocessWorkers, s.Experimental.DebugPerf
	if s.Experimental.Interactive {
		options.HTTP = onlyHere(options.HTTP)
	} else if err := addGRPC(&options, s); err != nil {
		return err
	}
	tracer, stopTracing, err := tracing(ctx)
	if err != nil {
		return err
	}
	defer stopTracing()
	options.Tracer = tracer
	defer adaptProcessors(ctx, &options.HTTP)()
	collectSooner()
	f, err := frontend.Start(context.Background(), options)
	if err != nil {
		return err
	}
	logger.Info("serving", "address", f.Address(), "grpc", f.CompanionAddress(), "router_mode", string(s.Router.Mode), "discovery", s.Discovery.Backend)
	if s.Faults.DecodeBlocksThreshold.Set || s.Faults.PrefillTokensThreshold.Set || s.Faults.PrefillTokensFraction.Set {
		logger.Info("busy-worker rejection is on")
	} else {
		logger.Info("busy-worker rejection disabled: no rejection threshold is configured")
	}
	if s.Experimental.Interactive {
		err = talk(ctx, f)
	} else {
		<-ctx.Done()
	}
	stop() // a second signal ends the program at once
	logger.Info("shutting down", "drain", s.HTTP.ShutdownTimeout)
	return errors.Join(err, f.Stop())
}

func dumpConfiguration(s *settings.Frontend) error {
	if s.Monitoring.DumpConfigTo == "" {
		return nil
	}
	file, err := os.Create(s.Monitoring.DumpConfigTo)
	if err != nil {
		return fmt.Errorf("--dump-config-to: %w", err)
	}
	return errors.Join(s.Dump(file, version()), file.Close())
}

// raiseFileLimit lets the process open as many files as streams need.
func raiseFileLimit(target int, logger *slog.Logger) {
	if target <= 0 {
		return
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur >= uint64(target) {
		return
	}
	limit.Cur = min(uint64(target), limit.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		logger.Warn("the limit of open files cannot be raised", "error", err)
	}
}

func openTransport(s *settings.Frontend, messages bus) (*tcp.Client, error) {
	p := &s.Planes
	options := tcp.Options{Port: p.ResponsePort, PoolSize: p.PoolSize, ConnectTimeout: p.ConnectTimeout, AckTimeout: p.RequestTimeout,
		IdleTimeout: s.HTTP.StreamTimeout, MaxMessage: p.MaxMessageSize, ConnectLimit: p.ConnectLimit}
	if p.ResponseHost != "" {
		host, err := tcp.InterfaceAddress(p.ResponseHost)
		if err != nil {
			return nil, fmt.Errorf("DYN_TCP_RESPONSE_STREAM_HOST: %w", err)
		}
		options.Host = host
	}
	if messages != nil {
		options.Courier = messages
	}
	var err error
	if options.ServerTLS, err = serverTLS(p.TCPTLSCertPath, p.TCPTLSKeyPath, p.TCPTLSClientCA); err != nil {
		return nil, err
	}
	if options.ClientTLS, err = clientTLS(p); err != nil {
		return nil, err
	}
	return tcp.NewClient(options)
}

func serverTLS(certificate, key, clientCA string) (*tls.Config, error) {
	if certificate == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("--tcp-tls-cert-path: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if clientCA != "" {
		if config.ClientCAs, err = readPool(clientCA); err != nil {
			return nil, err
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

func clientTLS(p *settings.Planes) (*tls.Config, error) {
	if p.TCPTLSCAPath == "" && !p.TCPTLSInsecure {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: p.TCPTLSServerName, InsecureSkipVerify: p.TCPTLSInsecure}
	var err error
	if p.TCPTLSCAPath != "" {
		if config.RootCAs, err = readPool(p.TCPTLSCAPath); err != nil {
			return nil, err
		}
	}
	if p.TCPTLSClientCert != "" {
		pair, err := tls.LoadX509KeyPair(p.TCPTLSClientCert, p.TCPTLSClientKey)
		if err != nil {
			return nil, fmt.Errorf("--tcp-tls-client-cert-path: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func readPool(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	return pool, nil
}

// frontendOptions translates settings; backend, transport and routers are left to the caller.
func frontendOptions(s *settings.Frontend, logger *slog.Logger) frontend.Options {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	limit, _ := s.Faults.MigrationMaxSeqLen.Get()
	blockSize, _ := s.Discovery.BlockSize.Get()
	inhibited := s.Router.Inhibited
	if inhibited == 0 {
		inhibited = -1
	}
	h, p := &s.HTTP, &s.Protocol
	options := frontend.Options{
		Filter:    discovery.NamespaceFilter{Exact: s.Discovery.Namespace, Prefix: s.Discovery.NamespacePrefix},
		ModelName: s.Discovery.ModelName, BlockSize: uint32(blockSize),
		Loader: &frontend.FileLoader{Resolver: &card.Resolver{ModelPath: s.Discovery.ModelPath}, ExcludeToolsWhenNone: p.ExcludeToolsWhenNone,
			SecondParsers: p.ParserVersion == "2", Warn: func(message string) { logger.Warn(message) }},
		DecodeFallback: s.Router.DecodeFallback, MigrationLimit: s.Faults.MigrationLimit, MigrationMaxLength: limit,
		Hold:              frontend.HoldOptions{Patience: s.Faults.HoldPatience, Limit: s.Faults.HoldLimit, Models: s.Faults.KeptModels},
		Thresholds:        busyThresholds(&s.Faults),
		MinInitialWorkers: s.Router.MinInitialWorkers, Inhibited: inhibited, Explain: s.Monitoring.Explain,
		HTTP: frontend.HTTPOptions{Host: listenHost(h.Host), Port: h.Port, CertPath: h.TLSCertPath, KeyPath: h.TLSKeyPath, ClientCAPath: h.TLSClientCAPath,
			DrainTimeout: h.ShutdownTimeout, DisableAdmin: p.DisableAdmin, EnableAnthropic: p.Anthropic, StripAnthropicPreamble: p.StripAnthropicPreamble},
		API: openai.Options{BodyLimitMB: int64(h.BodyLimitMB), IgnoreUnknownFields: h.IgnoreUnknown, DisableExtensions: p.DisableExtensions,
			ForceIncludeUsage: h.ForceUsage, MetadataPrefix: h.MetadataHeader, ReasoningField: p.ReasoningField, KeepAlive: h.KeepAlive, ErrorPeek: h.ErrorPeek,
			WriteTimeout: h.ClientStallLimit, OverloadStatus: h.OverloadStatus, ContextWindow: h.ContextWindow, MaxOutputTokens: h.MaxOutputTokens,
			ToolDispatchEvents: p.StreamingToolDispatch, ReasoningDispatchEvents: p.StreamingReasoning, AnnotationsAsComments: h.CommentNotes,
			Warn: func(message string) { logger.Warn(message) }},
		Metrics: registry, Prefix: strings.TrimSpace(s.Monitoring.MetricsPrefix), Logger: logger, Version: version(),
		Endpoint: frontend.Endpoints{Chat: s.Paths.Chat, Completions: s.Paths.Completions, Embeddings: s.Paths.Embeddings, Responses: s.Paths.Responses,
			Models: s.Paths.Models, Anthropic: s.Paths.Anthropic, Health: s.Paths.Health, Live: s.Paths.Live, Metrics: s.Paths.Metrics,
			Classify: s.Paths.Classify, Pooling: s.Paths.Pooling},
	}
	if p.GenerateVLLM {
		options.Endpoint.GenerateVLLM = s.Paths.GenerateVLLM
	}
	if p.GenerateSGLang {
		options.Endpoint.GenerateSGLang = s.Paths.GenerateSGLang
	}
	if p.ListRLWorkers {
		options.RL = &frontend.RLOptions{Address: net.JoinHostPort(listenHost(h.Host), strconv.Itoa(p.RLPort)), Namespace: s.Discovery.Namespace,
			Endpoint: p.RLEndpoint, Timeout: time.Duration(p.RLTimeout) * time.Second, Probes: p.RLProbes}
		if p.RLComponents != "" {
			options.RL.Components = strings.Split(p.RLComponents, ",")
		}
	}
	return options
}

// busyThresholds are the thresholds of models that have none of their own.
func busyThresholds(f *settings.Faults) admin.Thresholds {
	var t admin.Thresholds
	if value, set := f.DecodeBlocksThreshold.Get(); set {
		t.ActiveDecodeBlocks = &value
	}
	if value, set := f.PrefillTokensThreshold.Get(); set {
		tokens := uint64(value)
		t.ActivePrefillTokens = &tokens
	}
	if value, set := f.PrefillTokensFraction.Get(); set {
		t.ActivePrefillTokensFraction = &value
	}
	return t
}

// listenHost turns the address for "everywhere" into what the listener calls it, so that IPv6 clients get in too.
func listenHost(host string) string {
	if host == "0.0.0.0" {
		return ""
	}
	return host
}
