package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"signalbox/frontend"
	"signalbox/kvservice"
	"signalbox/router/policy"
	"signalbox/router/selection"
	"signalbox/settings"
)

// longestSession is the longest time for which a session may be kept, in seconds.
const longestSession = 31536000

// selectFlags are the flags of the selection service.
type selectFlags struct {
	*flag.FlagSet
	port, threads, syncPort      *int
	indexerPeers, syncPeers      *string
	sessionTTL, pendingTTL       *int
	pendingEntries, pendingBytes *int
	reuse, noReuse               *bool
}

func newSelectFlags() selectFlags {
	f := selectFlags{FlagSet: flag.NewFlagSet("select", flag.ContinueOnError)}
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "usage: signalbox select [flags]\n\nSays over HTTP which worker a request should go to, and counts what it was told of requests. The router's settings are read from\n"+
			"the variables that the frontend reads, DYN_ROUTER_…; DYN_USE_KV_EVENTS is another name of DYN_ROUTER_USE_KV_EVENTS.\n\nflags:")
		f.PrintDefaults()
	}
	f.port = f.Int("port", 8092, "HTTP port")
	f.threads = f.Int("threads", 4, "threads that apply engines' events")
	f.indexerPeers = f.String("indexer-peers", "", "base URLs of other selection services or indexers; the first that answers tells what is held")
	f.syncPort = f.Int("replica-sync-port", 0, "ZMQ port on which replicas hear of reservations; 0 for none")
	f.syncPeers = f.String("replica-sync-peers", "", "ZMQ endpoints of replicas to listen to: tcp://host:port,…")
	f.sessionTTL = f.Int("session-affinity-ttl-secs", 0, "seconds for which a session stays on its worker after its last request; 0 for not at all")
	f.pendingTTL = f.Int("selection-cache-ttl-secs", 120, "seconds for which a selection can be reserved")
	f.pendingEntries = f.Int("selection-cache-max-entries", 4096, "how many selections wait to be reserved at most")
	f.pendingBytes = f.Int("selection-cache-max-bytes", 256<<20, "memory that they may take, in bytes")
	f.reuse = f.Bool("router-assume-kv-reuse", false, "count prefixes that active requests share once (the default)")
	f.noReuse = f.Bool("no-router-assume-kv-reuse", false, "count every request's blocks for itself")
	f.String("router-tracking-hash", "", "algorithm of tracking identities: public-xxh3-v1 or keyed-xxh3-v1")
	f.String("router-tracking-key-file", "", "file of exactly 32 key bytes, for keyed-xxh3-v1")
	f.String("router-tracking-key-id", "", "name of the key's epoch, for keyed-xxh3-v1")
	return f
}

// settingsArguments are the flags that the settings know, as arguments.
func (f *selectFlags) settingsArguments() []string {
	arguments := []string{"--router-mode", "kv"}
	f.Visit(func(given *flag.Flag) {
		switch given.Name {
		case "router-assume-kv-reuse", "no-router-assume-kv-reuse":
			if given.Value.String() == "true" {
				arguments = append(arguments, "--"+given.Name)
			}
		case "router-tracking-hash", "router-tracking-key-file", "router-tracking-key-id":
			arguments = append(arguments, "--"+given.Name, given.Value.String())
		}
	})
	return arguments
}

// check tells which value is out of range.
func (f *selectFlags) check() error {
	for _, bound := range []struct {
		name             string
		value, low, high int
	}{
		{"port", *f.port, 0, 65535}, {"threads", *f.threads, 1, 1024}, {"replica-sync-port", *f.syncPort, 0, 65535},
		{"session-affinity-ttl-secs", *f.sessionTTL, 1, longestSession}, {"selection-cache-ttl-secs", *f.pendingTTL, 1, 1e6},
		{"selection-cache-max-entries", *f.pendingEntries, 1, 1e9}, {"selection-cache-max-bytes", *f.pendingBytes, 1, 1 << 40},
	} {
		given := false
		f.Visit(func(set *flag.Flag) { given = given || set.Name == bound.name })
		if given && (bound.value < bound.low || bound.value > bound.high) {
			return fmt.Errorf("--%s: %d must be from %d to %d", bound.name, bound.value, bound.low, bound.high)
		}
	}
	if *f.syncPeers != "" && *f.syncPort == 0 {
		return errors.New("--replica-sync-peers needs --replica-sync-port: replicas listen to each other")
	}
	if *f.reuse && *f.noReuse {
		return errors.New("--router-assume-kv-reuse and --no-router-assume-kv-reuse are mutually exclusive")
	}
	return nil
}

// routerVariables are the variables that say how a router works. What else a frontend would read is left out.
func routerVariables(environ []string) (list []string) {
	newName := false
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case name == "DYN_ROUTER_MODE":
		case strings.HasPrefix(name, "DYN_ROUTER_"), strings.HasPrefix(name, "SIGNALBOX_ROUTER_"), name == "DYN_OVERLAP_SCORE_WEIGHT":
			newName = newName || name == "DYN_ROUTER_USE_KV_EVENTS"
			list = append(list, variable)
		case name == "DYN_USE_KV_EVENTS":
			defer func() {
				if !newName {
					list = append(list, "DYN_ROUTER_USE_KV_EVENTS="+value)
				}
			}()
		}
	}
	return list
}

// runSelect serves a selection service.
func runSelect(args []string) error {
	flags := newSelectFlags()
	if err := parseFlags(flags.FlagSet, args); err != nil {
		return helpIsNoError(err)
	}
	if err := flags.check(); err != nil {
		return err
	}
	logger := newLogger(os.Getenv("DYN_LOG"), false)
	s, warnings, err := settings.LoadFrontend(flags.settingsArguments(), routerVariables(os.Environ()))
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		logger.Warn(warning.Text)
	}
	route, err := routing(s, logger)
	if err != nil {
		return err
	}
	options := selectOptions(&route)
	options.Shards, options.Logger = *flags.threads, logger
	options.SessionTTL = time.Duration(*flags.sessionTTL) * time.Second
	options.Pending = kvservice.PendingLimits{TTL: time.Duration(*flags.pendingTTL) * time.Second, Entries: *flags.pendingEntries, Bytes: *flags.pendingBytes}
	if *flags.syncPort != 0 {
		options.SyncAddress = net.JoinHostPort("0.0.0.0", strconv.Itoa(*flags.syncPort))
	}
	selector, err := kvservice.NewSelector(options)
	if err != nil {
		return err
	}
	end := sync.OnceFunc(selector.Close)
	defer end()
	for _, endpoint := range splitList(*flags.syncPeers) {
		if err := selector.Listen(endpoint); err != nil {
			return fmt.Errorf("--replica-sync-peers: %w", err)
		}
	}
	restore(selector, *flags.indexerPeers, logger)
	return serveUntilStopped(*flags.port, service{Handler: selector, end: end, logger: logger})
}

// selectOptions translates the router's settings.
func selectOptions(route *frontend.Routing) kvservice.SelectOptions {
	options := kvservice.SelectOptions{Config: route.KV, Policies: route.Policies, TrackingKey: route.TrackingKey,
		OverlapRefreshAfter: route.OverlapRefreshAfter, Expiry: route.RequestExpiry}
	var named *policy.Selection
	if route.Policies != nil {
		named = route.Policies.Selection
	}
	name := named.Named(policy.Aggregated, route.Wishes...)
	options.NewPolicy = func() (selection.Policy, string, error) {
		made, err := named.New(name, route.Catalog)
		return made, name, err
	}
	return options
}

// restorer is a service that can begin with what another one knows.
type restorer interface {
	Restore(ctx context.Context, url string) error
}
