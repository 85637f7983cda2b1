package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

// StatusOptions describe the HTTP server beside workers that operators and operators' programs ask.
type StatusOptions struct {
	// Address is host:port to listen on.
	Address string
	// Adapters has the routes that load and unload LoRA adapters.
	Adapters bool
	Logger   *slog.Logger
}

// Status is a running status server: GET /health and /live, and for adapters GET and POST /v1/loras and DELETE /v1/loras/NAME, which
// do the same at all workers of the process. Close ends it.
type Status struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{}
	workers  []*Worker
	started  time.Time
}

// StartStatus starts a status server of the workers.
func StartStatus(options StatusOptions, workers []*Worker) (*Status, error) {
	listener, err := net.Listen("tcp", options.Address)
	if err != nil {
		return nil, fmt.Errorf("status server: %w", err)
	}
	s := &Status{listener: listener, workers: workers, started: time.Now(), done: make(chan struct{})}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /health", s.health)
	routes.HandleFunc("GET /live", s.health)
	if options.Adapters {
		routes.HandleFunc("GET /v1/loras", s.list)
		routes.HandleFunc("POST /v1/loras", s.load)
		routes.HandleFunc("DELETE /v1/loras/{name...}", s.unload)
	}
	s.server = &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(options.Logger.Handler(), slog.LevelDebug)}
	go func() { // ends with Close
		defer close(s.done)
		_ = s.server.Serve(listener)
	}()
	return s, nil
}

// Address returns host:port.
func (s *Status) Address() string { return s.listener.Addr().String() }

// Close ends the server and what it is doing.
func (s *Status) Close() error {
	err := s.server.Close()
	<-s.done
	return err
}

func (s *Status) health(w http.ResponseWriter, _ *http.Request) {
	type uptime struct {
		Seconds     int64 `json:"secs"`
		Nanoseconds int64 `json:"nanos"`
	}
	up := time.Since(s.started)
	endpoints := make(map[string]string)
	for _, worker := range s.workers {
		endpoints[worker.options.Endpoint.Name] = "ready"
	}
	answer(w, http.StatusOK, struct {
		Status    string            `json:"status"`
		Uptime    uptime            `json:"uptime"`
		Endpoints map[string]string `json:"endpoints"`
	}{"ready", uptime{int64(up / time.Second), int64(up % time.Second)}, endpoints})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// all makes a call at each worker and answers with the first mistake, else with the last answer.
func (s *Status) all(w http.ResponseWriter, ctx context.Context, endpoint string, wish adapterWish) {
	body, err := json.Marshal(wish)
	if err != nil {
		answer(w, http.StatusInternalServerError, refusedAdapter(wish.Name, err))
		return
	}
	var result adapterAnswer
	for _, worker := range s.workers {
		if result = worker.adapterCall(ctx, endpoint, body); result.Status == "error" {
			answer(w, http.StatusInternalServerError, result)
			return
		}
	}
	answer(w, http.StatusOK, result)
}

func (s *Status) list(w http.ResponseWriter, r *http.Request) {
	s.all(w, r.Context(), listEndpoint, adapterWish{})
}

// maxWish bounds the body of a request about adapters, in bytes.
const maxWish = 1 << 20

func (s *Status) load(w http.ResponseWriter, r *http.Request) {
	var wish adapterWish
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxWish)).Decode(&wish); err != nil {
		http.Error(w, "the request is not understood: "+err.Error(), http.StatusUnprocessableEntity)
		return
	}
	if wish.Name == "" || wish.Source == nil || wish.Source.URI == "" {
		http.Error(w, `the request needs "lora_name" and "source" with a "uri"`, http.StatusUnprocessableEntity)
		return
	}
	s.all(w, r.Context(), loadEndpoint, wish)
}

func (s *Status) unload(w http.ResponseWriter, r *http.Request) {
	s.all(w, r.Context(), unloadEndpoint, adapterWish{Name: strings.TrimPrefix(r.PathValue("name"), "/")})
}
