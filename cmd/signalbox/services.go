package main

import (
	"context"
	"errors"
	"flag"
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

	"signalbox/kvindex"
	"signalbox/kvservice"
)

// service is a handler with what has to happen around it.
type service struct {
	http.Handler
	run    func(ctx context.Context) // works beside the handler until ctx ends; nil for nothing
	end    func()                    // answers whoever waits, once no more requests are taken; nil for nothing
	logger *slog.Logger
}

// servicePatience is how long a service that was told to stop lets requests that are under way finish.
const servicePatience = 5 * time.Second

// serveUntilStopped answers HTTP requests at the port until the program is told to stop.
func serveUntilStopped(port int, s service) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return fmt.Errorf("--port: %w", err)
	}
	return s.serve(ctx, listener, servicePatience)
}

// serve answers HTTP requests until ctx ends, and then until none is under way or patience is over.
func (s service) serve(ctx context.Context, listener net.Listener, patience time.Duration) error {
	server := &http.Server{Handler: s.Handler, ReadHeaderTimeout: 10 * time.Second}
	if s.end != nil {
		server.RegisterOnShutdown(s.end)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with Shutdown
	if s.run != nil {
		go s.run(ctx) // ends with ctx
	}
	s.logger.Info("serving", "address", listener.Addr().String())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := server.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		s.logger.Warn("requests that were under way are broken off", "waited", patience)
		return server.Close()
	}
	return err
}

// runSlotTracker serves a slot tracker.
func runSlotTracker(args []string) error {
	flags := flag.NewFlagSet("slot-tracker", flag.ContinueOnError)
	port := flags.Int("port", 8091, "HTTP port")
	sync := flags.Int("replica-sync-port", 0, "ZMQ port on which replicas hear of bookings; 0 for none")
	if err := parseFlags(flags, args); err != nil {
		return helpIsNoError(err)
	}
	if err := checkPorts(flags, "port", "replica-sync-port"); err != nil {
		return err
	}
	logger := newLogger(os.Getenv("DYN_LOG"), false)
	options := kvservice.SlotOptions{Logger: logger}
	if *sync != 0 {
		options.SyncAddress = net.JoinHostPort("0.0.0.0", strconv.Itoa(*sync))
	}
	if text := os.Getenv("DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds > 0 && seconds < 1e9) {
			return fmt.Errorf("DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS: %q must be a positive number of seconds", text)
		}
		options.Expiry = time.Duration(seconds * float64(time.Second))
	}
	slots, err := kvservice.NewSlots(options)
	if err != nil {
		return err
	}
	defer slots.Close()
	return serveUntilStopped(*port, service{Handler: slots, run: slots.Run, logger: logger})
}

// runIndexer serves an indexer of engines' own events.
func runIndexer(args []string) error {
	flags := flag.NewFlagSet("indexer", flag.ContinueOnError)
	port := flags.Int("port", 8090, "HTTP port")
	threads := flags.Int("threads", 4, "threads that apply events")
	blockSize := flags.Int("block-size", 0, "tokens per block of the workers named by --workers")
	workers := flags.String("workers", "", `engines to listen to from the start: "id[:rank]=tcp://host:port,…"`)
	model := flags.String("model-name", "default", "their model")
	group := flags.String("routing-group", "default", "their routing group")
	others := flags.String("peers", "", "base URLs of other indexers; the first that answers tells what is held")
	if err := parseFlags(flags, args); err != nil {
		return helpIsNoError(err)
	}
	if err := checkPorts(flags, "port"); err != nil {
		return err
	}
	if *threads < 1 || *threads > 1024 {
		return fmt.Errorf("--threads: %d must be from 1 to 1024", *threads)
	}
	logger := newLogger(os.Getenv("DYN_LOG"), false)
	indexer := kvservice.NewIndexer(kvservice.IndexerOptions{Shards: *threads, Logger: logger})
	defer indexer.Close()
	restore(indexer, *others, logger)
	for _, entry := range splitList(*workers) {
		rank, endpoint, err := parseWorker(entry)
		if err == nil {
			err = indexer.Register(kvservice.Source{Rank: rank, Model: *model, Group: *group, BlockSize: *blockSize, Endpoint: endpoint})
		}
		if err != nil {
			return fmt.Errorf("--workers: %q: %w", entry, err)
		}
	}
	return serveUntilStopped(*port, service{Handler: indexer, logger: logger})
}

// restoreTimeout bounds how long a peer may take to tell what it holds.
const restoreTimeout = 10 * time.Second

// restore asks the peers in order until one has told what it holds.
func restore(indexer restorer, peers string, logger *slog.Logger) {
	for _, url := range splitList(peers) {
		ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
		err := indexer.Restore(ctx, url)
		cancel()
		if err == nil {
			return
		}
		logger.Warn("a peer did not tell what it holds", "peer", url, "error", err)
	}
}

func splitList(text string) (list []string) {
	for _, entry := range strings.Split(text, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			list = append(list, entry)
		}
	}
	return list
}

// parseWorker reads "id[:rank]=endpoint".
func parseWorker(entry string) (rank kvindex.Rank, endpoint string, err error) {
	name, endpoint, found := strings.Cut(entry, "=")
	if !found {
		return rank, "", errors.New("it must have the form id[:rank]=tcp://host:port")
	}
	id, number, ranked := strings.Cut(name, ":")
	if rank.WorkerID, err = strconv.ParseUint(id, 10, 64); err != nil {
		return rank, "", fmt.Errorf("the id must be a number: %w", err)
	}
	if ranked {
		value, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return rank, "", fmt.Errorf("the rank must be a number: %w", err)
		}
		rank.DPRank = uint32(value)
	}
	return rank, endpoint, nil
}

func parseFlags(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s: %q is no flag", flags.Name(), flags.Arg(0))
	}
	return nil
}

// checkPorts refuses numbers that are no ports, in the flags of these names.
func checkPorts(flags *flag.FlagSet, names ...string) error {
	for _, name := range names {
		text := flags.Lookup(name).Value.String()
		if port, err := strconv.Atoi(text); err != nil || port < 0 || port > 65535 {
			return fmt.Errorf("--%s: %s must be from 0 to 65535", name, text)
		}
	}
	return nil
}

// helpIsNoError lets a request for help end well.
func helpIsNoError(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	return err
}
