package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// Roster is told which servers can be sent to. For one server the calls come in turn; those for several come at the same time. Neither
// may wait for the other.
type Roster interface {
	// Join tells of a server that can be sent to. An error keeps it out; it is tried again with the next look at the server.
	Join(s *Server) error
	// Leave tells that a server that has joined is no longer to be sent to.
	Leave(s *Server)
}

// FleetOptions configure a fleet. The zero value of each is a working default.
type FleetOptions struct {
	// Every is the pause between two looks at a server that is well, and Patience how long one look may take. A server that refuses
	// connections is out at once, one that does not answer in time after Misses looks.
	Every, Patience time.Duration
	Misses          int
	// Anew is how often a server is asked again what it serves: another one may listen at its address.
	Anew   time.Duration
	Logger *slog.Logger
}

// Fleet watches servers. Each has a goroutine of its own, which ends with Close.
type Fleet struct {
	options FleetOptions
	client  *Client
	roster  Roster
	cancel  context.CancelFunc
	wait    sync.WaitGroup

	mutex  sync.Mutex
	states map[string]State
}

// State is how a server is doing.
type State struct {
	// Server is the one that has joined; nil when it has not.
	Server *Server
	// Problem says why it has not; "" before the first look.
	Problem string
}

// Watch begins to watch the servers. It returns at once: none has to be there.
func Watch(client *Client, servers []Config, roster Roster, options FleetOptions) *Fleet {
	if options.Every <= 0 {
		options.Every = 2 * time.Second
	}
	if options.Patience <= 0 {
		options.Patience = 5 * time.Second
	}
	if options.Misses <= 0 {
		options.Misses = 3
	}
	if options.Anew <= 0 {
		options.Anew = 30 * time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fleet{options: options, client: client, roster: roster, cancel: cancel, states: make(map[string]State, len(servers))}
	for _, config := range servers {
		f.wait.Go(func() { // ends with ctx
			w := &watcher{fleet: f, config: config, logger: options.Logger.With("server", config.Key())}
			w.run(ctx)
		})
	}
	return f
}

// Close lets all servers leave, which ends their streams.
func (f *Fleet) Close() {
	f.cancel()
	f.wait.Wait()
}

// State returns how the server with a key is doing.
func (f *Fleet) State(key string) State {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.states[key]
}

func (f *Fleet) set(key string, state State) {
	f.mutex.Lock()
	f.states[key] = state
	f.mutex.Unlock()
}

// watcher watches one server.
type watcher struct {
	fleet  *Fleet
	config Config
	logger *slog.Logger

	joined  *Server // nil while it is out
	misses  int
	asked   time.Time // when it was last asked what it serves
	problem string    // what was logged last
}

func (w *watcher) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			w.leave("")
			return
		case <-timer.C:
		}
		w.look(ctx)
		timer.Reset(w.fleet.options.Every)
	}
}

// look looks at the server once.
func (w *watcher) look(ctx context.Context) {
	options := &w.fleet.options
	ctx, cancel := context.WithTimeout(ctx, options.Patience)
	defer cancel()
	if w.joined != nil && time.Since(w.asked) < options.Anew {
		w.judge(ctx, w.ping(ctx))
		return
	}
	err := w.ping(ctx)
	var about About
	if err == nil {
		about, err = w.fleet.client.describe(ctx, w.config)
	}
	if err != nil {
		w.judge(ctx, err)
		return
	}
	w.misses, w.asked = 0, time.Now()
	fresh := newServer(w.config, about)
	if w.joined != nil && w.joined.About.same(fresh.About) {
		fresh.leave() // it is not needed
		return
	}
	w.leave("it serves something else now")
	if err := w.fleet.roster.Join(fresh); err != nil {
		fresh.leave()
		w.out(fmt.Errorf("it cannot be used: %w", err))
		return
	}
	w.joined, w.problem = fresh, ""
	w.fleet.set(w.config.Key(), State{Server: fresh})
	w.logger.Info("a server has joined", "kind", string(fresh.About.Kind), "version", fresh.About.Version, "model", fresh.ServedName(), "server_model", fresh.About.Model,
		"asked_with", fresh.mode(), "context_length", fresh.About.ContextLength, "block_size", fresh.About.BlockSize, "kv_events", fresh.Events)
}

// mode names how a server is asked.
func (s *Server) mode() string {
	if s.TakesTokens() {
		return "tokens"
	}
	return "text"
}

// judge takes the outcome of a look that asked nothing new.
func (w *watcher) judge(ctx context.Context, err error) {
	if err == nil {
		w.misses = 0
		return
	}
	if errors.Is(context.Cause(ctx), context.Canceled) { // the fleet is closed
		return
	}
	w.misses++
	if w.joined != nil && !errors.Is(err, syscall.ECONNREFUSED) && w.misses < w.fleet.options.Misses {
		w.logger.Warn("a server did not answer a look at its health", "error", err, "misses", w.misses)
		return
	}
	w.leave(err.Error())
	w.out(err)
}

// out notes why the server is out; what is known already is not said again.
func (w *watcher) out(err error) {
	text := err.Error()
	w.fleet.set(w.config.Key(), State{Problem: text})
	if text != w.problem {
		w.problem = text
		w.logger.Warn("a server cannot be used yet; it is looked at again", "error", err, "every", w.fleet.options.Every)
	}
}

// leave lets the server leave, if it has joined.
func (w *watcher) leave(why string) {
	if w.joined == nil {
		return
	}
	if why != "" {
		w.logger.Warn("a server has left", "reason", why)
	}
	w.fleet.roster.Leave(w.joined)
	w.joined.leave()
	w.joined = nil
	w.fleet.set(w.config.Key(), State{Problem: why})
}

// ping asks the server whether it is well. Those that have no route for that are asked for their models.
func (w *watcher) ping(ctx context.Context) error {
	s := &Server{Config: w.config}
	path := "/health"
	if w.joined != nil && w.joined.About.Kind == OpenAI {
		path = "/v1/models"
	}
	_, status, err := w.fleet.client.get(ctx, s, path, maxDocument)
	if err == nil && status != http.StatusOK && status != http.StatusNotFound {
		err = fmt.Errorf("GET %s: %d", path, status)
	}
	return err
}
