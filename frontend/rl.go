package frontend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/discovery"
	"signalbox/inference"
)

// RLOptions say how workers are listed for reinforcement learning: trainers ask here which workers there are and what each can do.
type RLOptions struct {
	// Address is where the list is served.
	Address string
	// Namespace is listed; "" is "dynamo".
	Namespace string
	// Endpoint is the name of the endpoints at which workers tell their routes.
	Endpoint string
	// Components limits the list; nil lists all.
	Components []string
	// Timeout is how long one worker has to answer, Probes how many are asked at a time.
	Timeout time.Duration
	Probes  int
}

// rlWorker is one entry of the list.
type rlWorker struct {
	Namespace  string              `json:"namespace"`
	Component  string              `json:"component"`
	Endpoint   string              `json:"endpoint"`
	InstanceID uint64              `json:"instance_id"`
	Transport  discovery.Transport `json:"transport"`
	URL        string              `json:"request_plane_url"`
	SystemURL  string              `json:"system_url,omitempty"`
	Model      string              `json:"model,omitempty"`
	Routes     []string            `json:"routes"`
	Error      string              `json:"error,omitempty"`
}

// rlList serves GET /v1/rl/workers on a listener of its own.
type rlList struct {
	options   RLOptions
	frontend  *Frontend
	server    *http.Server
	listener  net.Listener
	slots     chan struct{}
	served    sync.WaitGroup
	transport Transport
}

// listRL starts the listener.
func (f *Frontend) listRL(options RLOptions) (*rlList, error) {
	if options.Namespace == "" {
		options.Namespace = "dynamo"
	}
	listener, err := net.Listen("tcp", options.Address)
	if err != nil {
		return nil, fmt.Errorf("the list of workers for reinforcement learning: %w; DYN_RL_PORT sets another port", err)
	}
	l := &rlList{options: options, frontend: f, listener: listener, slots: make(chan struct{}, max(1, options.Probes)), transport: f.options.Transport}
	mux := http.NewServeMux()
	mux.Handle("GET /v1/rl/workers", l)
	l.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	l.served.Go(func() { // ends with close
		_ = l.server.Serve(listener)
	})
	return l, nil
}

func (l *rlList) close() error {
	if l == nil {
		return nil
	}
	err := l.server.Close()
	l.served.Wait()
	return err
}

// ServeHTTP answers with all workers, each asked for its routes at the same time.
func (l *rlList) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var workers []*rlWorker
	var asked sync.WaitGroup
	models := l.models()
	for _, instance := range l.frontend.manager.Instances() {
		if instance.Namespace != l.options.Namespace || instance.Endpoint != l.options.Endpoint ||
			l.options.Components != nil && !slices.ContainsFunc(l.options.Components, func(c string) bool { return strings.TrimSpace(c) == instance.Component }) {
			continue
		}
		worker := &rlWorker{Namespace: instance.Namespace, Component: instance.Component, Endpoint: instance.Endpoint, InstanceID: instance.InstanceID,
			Transport: instance.Transport, URL: "dyn://" + instance.Namespace + "." + instance.Component + "." + instance.Endpoint,
			Model: models[rlKey{instance.Namespace, instance.Component, instance.InstanceID}], Routes: []string{}}
		workers = append(workers, worker)
		asked.Go(func() { // ends by its deadline
			ctx, cancel := context.WithTimeoutCause(r.Context(), l.options.Timeout, fmt.Errorf("worker discovery timed out after %ds", int(l.options.Timeout.Seconds())))
			defer cancel()
			if err := l.ask(ctx, instance, worker); err != nil {
				if ctx.Err() != nil {
					err = context.Cause(ctx)
				}
				worker.Error = err.Error()
			}
		})
	}
	asked.Wait()
	if workers == nil {
		workers = []*rlWorker{}
	}
	text, err := json.Marshal(struct {
		Version   int         `json:"protocol_version"`
		Namespace string      `json:"namespace"`
		Workers   []*rlWorker `json:"workers"`
	}{1, l.options.Namespace, workers})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

type rlKey struct {
	namespace, component string
	instance             uint64
}

// models names the model of each worker that serves exactly one.
func (l *rlList) models() map[rlKey]string {
	names := map[rlKey]string{}
	for _, entry := range l.frontend.manager.Served() {
		if entry.Set.Card.LoRA != nil {
			continue
		}
		for _, member := range entry.Set.Members {
			key := rlKey{entry.Set.Key.Endpoint.Namespace, entry.Set.Key.Endpoint.Component, member.Instance.InstanceID}
			if known, ok := names[key]; ok && known != entry.Set.Card.DisplayName {
				names[key] = ""
				continue
			}
			names[key] = entry.Set.Card.DisplayName
		}
	}
	return names
}

// ask asks a worker what it can do.
func (l *rlList) ask(ctx context.Context, instance *discovery.Instance, worker *rlWorker) error {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.slots }()
	target, ok := l.transport.Target(instance)
	if !ok {
		return errors.New("the worker cannot be reached over this request plane")
	}
	stream, err := l.transport.Forward(target).SendRaw(ctx, fmt.Sprintf("rl-%d", instance.InstanceID), []byte(`{"method":"routes"}`))
	if err != nil {
		return err
	}
	defer stream.Close()
	var item *inference.Output
	for item == nil || item.Body == nil {
		if item, err = stream.Next(ctx); err != nil {
			return fmt.Errorf("empty routes response from worker: %w", err)
		}
	}
	var answer struct {
		Status  string   `json:"status"`
		Message string   `json:"message"`
		Routes  []string `json:"routes"`
		URL     string   `json:"system_url"`
	}
	if err := json.Unmarshal(item.Body, &answer); err != nil {
		return fmt.Errorf("the worker's routes cannot be read: %w", err)
	}
	switch {
	case answer.Status == "error" && answer.Message == "":
		return errors.New("worker routes request failed")
	case answer.Status == "error":
		return errors.New(answer.Message)
	case answer.Routes == nil:
		return errors.New("worker routes response missing 'routes' array")
	case slices.Contains(answer.Routes, ""):
		return errors.New("worker routes response contains an empty route entry")
	}
	slices.Sort(answer.Routes)
	worker.Routes, worker.SystemURL = slices.Compact(answer.Routes), strings.TrimSpace(answer.URL)
	return nil
}
