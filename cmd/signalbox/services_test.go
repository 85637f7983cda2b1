package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/discovery"
	"signalbox/settings"
)

func TestSelectFlags(t *testing.T) {
	for _, c := range []struct{ args, problem string }{
		{"", ""},
		{"--session-affinity-ttl-secs 0", "--session-affinity-ttl-secs"},
		{"--session-affinity-ttl-secs 31536001", "--session-affinity-ttl-secs"},
		{"--port 70000", "--port"},
		{"--threads 0", "--threads"},
		{"--selection-cache-max-entries 0", "--selection-cache-max-entries"},
		{"--replica-sync-peers tcp://a:1", "--replica-sync-port"},
		{"--replica-sync-peers tcp://a:1 --replica-sync-port 9", ""},
		{"--router-assume-kv-reuse --no-router-assume-kv-reuse", "mutually exclusive"},
	} {
		flags := newSelectFlags()
		if err := parseFlags(flags.FlagSet, strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		if err := flags.check(); (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
}

// The selection service reads what a frontend reads about routing, and nothing else.
func TestSelectReadsTheRoutersVariables(t *testing.T) {
	flags := newSelectFlags()
	if err := parseFlags(flags.FlagSet, []string{"--no-router-assume-kv-reuse"}); err != nil {
		t.Fatal(err)
	}
	variables := routerVariables([]string{"DYN_USE_KV_EVENTS=false", "DYN_ROUTER_QUEUE_THRESHOLD=0.5", "DYN_ROUTER_MODE=random", "DYN_HTTP_PORT=nonsense",
		"DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS=3"})
	s, _, err := settings.LoadFrontend(flags.settingsArguments(), variables)
	if err != nil {
		t.Fatal(err)
	}
	route, err := routing(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	options := selectOptions(&route)
	if options.Config.UseKVEvents || options.Config.AssumeKVReuse || options.Config.QueueThreshold == nil || *options.Config.QueueThreshold != 0.5 || options.OverlapRefreshAfter != 3*time.Second {
		t.Errorf("the options are %+v", options)
	}
	if made, name, err := options.NewPolicy(); made != nil || name != "default" || err != nil {
		t.Errorf("the policy is %v %q, %v", made, name, err)
	}
	both := routerVariables([]string{"DYN_USE_KV_EVENTS=false", "DYN_ROUTER_USE_KV_EVENTS=true"})
	if !slices.Equal(both, []string{"DYN_ROUTER_USE_KV_EVENTS=true"}) {
		t.Errorf("the variables are %q", both)
	}
}

func TestRouterFlags(t *testing.T) {
	endpoint := func(namespace string) discovery.EndpointID {
		return discovery.EndpointID{Namespace: namespace, Component: "backend", Name: "generate"}
	}
	for _, c := range []struct {
		args      string
		variables map[string]string
		want      routerFlags
		problem   string
	}{
		{args: "--endpoint ns.backend.generate", want: routerFlags{endpoint: endpoint("ns"), namespace: "ns", blockSize: 128}},
		{args: "--endpoint=ns.backend.generate --block-size=16 --router-temperature 1", want: routerFlags{endpoint: endpoint("ns"), namespace: "ns", blockSize: 16}},
		{variables: map[string]string{"DYN_ROUTER_ENDPOINT": "ns.backend.generate", "DYN_NAMESPACE": "other", "DYN_NAMESPACE_WORKER_SUFFIX": "v2", "DYN_ROUTER_BLOCK_SIZE": "32", "DYN_SYSTEM_PORT": "9090"},
			want: routerFlags{endpoint: endpoint("other-v2"), namespace: "other", blockSize: 32, status: ":9090"}},
		{args: "--endpoint ns.backend.generate", variables: map[string]string{"DYN_SYSTEM_PORT": "-1"}, want: routerFlags{endpoint: endpoint("ns"), namespace: "ns", blockSize: 128}},
		{problem: "endpoint is required"},
		{args: "--endpoint ns.backend", problem: "namespace.component.endpoint"},
		{args: "--endpoint", problem: "a value is missing"},
		{args: "--endpoint ns.backend.generate --router-block-size 0", problem: "--router-block-size"},
		{args: "--endpoint ns.backend.generate --router-block-size x", problem: "--router-block-size"},
	} {
		own, rest, err := splitRouterArguments(strings.Fields(c.args))
		var got routerFlags
		if err == nil {
			got, err = readRouterFlags(own, func(name string) string { return c.variables[name] })
		}
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: %v, want %q", c.args, err, c.problem)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.args, got, err, c.want)
		}
		if strings.Contains(c.args, "temperature") != (len(rest) == 2) {
			t.Errorf("%s leaves %q", c.args, rest)
		}
	}
	if left := withoutRouterVariables([]string{"DYN_ROUTER_ENDPOINT=a", "DYN_ROUTER_TTL_SECS=1"}); !slices.Equal(left, []string{"DYN_ROUTER_TTL_SECS=1"}) {
		t.Errorf("the variables are %q", left)
	}
}

// A number that is no port is refused by the name of its flag, before anything listens.
func TestPortsOfServices(t *testing.T) {
	for _, c := range []struct {
		run  func([]string) error
		args string
		flag string
	}{
		{runIndexer, "--port -5", "--port: -5"},
		{runIndexer, "--port 70000", "--port: 70000"},
		{runSlotTracker, "--port 65536", "--port: 65536"},
		{runSlotTracker, "--replica-sync-port 99999", "--replica-sync-port: 99999"},
	} {
		if err := c.run(strings.Fields(c.args)); err == nil || !strings.Contains(err.Error(), c.flag+" must be from 0 to 65535") {
			t.Errorf("%s: %v", c.args, err)
		}
	}
}

// Every command without flags of its own tells what it does when asked.
func TestHelpOfTools(t *testing.T) {
	for name, run := range map[string]func([]string) error{"tokenize": runTokenize, "verify": runVerify} {
		for _, help := range []string{"-h", "--help"} {
			if err := run([]string{help}); err != nil {
				t.Errorf("%s %s: %v", name, help, err)
			}
		}
	}
}

// A service that is told to stop answers whoever waits at once; who cannot be answered is broken off, and neither is an error.
func TestServicesStopWhileRequestsWait(t *testing.T) {
	begun, ended := make(chan struct{}, 1), make(chan struct{})
	waits := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-ended
		_, _ = io.WriteString(w, "the service ends")
	})
	deaf := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
	})
	for _, c := range []struct {
		name     string
		service  service
		patience time.Duration
		answer   string
	}{
		{"answered", service{Handler: waits, end: func() { close(ended) }}, time.Hour, "the service ends"},
		{"broken off", service{Handler: deaf}, time.Millisecond, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			c.service.logger = slog.New(slog.DiscardHandler)
			ctx, stop := context.WithCancel(t.Context())
			served, answered := make(chan error, 1), make(chan string, 1)
			go func() { served <- c.service.serve(ctx, listener, c.patience) }()
			go func() {
				response, err := http.Get("http://" + listener.Addr().String())
				if err != nil {
					answered <- ""
					return
				}
				defer response.Body.Close()
				text, _ := io.ReadAll(response.Body)
				answered <- string(text)
			}()
			<-begun
			stop()
			if err := <-served; err != nil {
				t.Errorf("the service ends with %v", err)
			}
			if got := <-answered; got != c.answer {
				t.Errorf("the answer is %q, want %q", got, c.answer)
			}
		})
	}
}

// Mistakes in what tools are given are named together with the flag or the place they are in.
func TestMistakesOfTools(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		run  func([]string) error
		args []string
		want string
	}{
		{runExplain, []string{"--url", "127.0.0.1:8000"}, `--url: "127.0.0.1:8000" must be the address of a frontend`},
		{runExplain, []string{"--url", "frontend"}, "--url:"},
		{runExplain, []string{"--url", "ftp://frontend"}, "--url:"},
		{runWorker, []string{"--discovery-backend", "mem", "--endpoint", "nowhere"}, `--endpoint: endpoint "nowhere"`},
		{runRender, []string{empty}, empty + ": the model has no chat template"},
		{runTokenize, []string{empty}, empty + " has neither tokenizer.json nor"},
	} {
		if err := c.run(c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}
