package frontdoor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/api/problem"
)

// limits stop clients that hold connections without using them. No flag changes them; tests do.
type limits struct {
	// readHeader is how long the headers of a request may take to arrive, idle how long a connection may wait for its next request.
	readHeader, idle time.Duration
	headerBytes      int
	// reload is how often the TLS files are looked at, at most.
	reload time.Duration
}

func defaultLimits() limits {
	return limits{readHeader: 10 * time.Second, idle: 120 * time.Second, headerBytes: 1 << 20, reload: 5 * time.Second}
}

// Config says where and how to listen.
type Config struct {
	Host string // a name or an address; "" for all
	Port int    // 0 lets the system choose
	// CertPath and KeyPath switch TLS on; ClientCAPath demands client certificates. The files are read again when they change.
	CertPath, KeyPath, ClientCAPath string
	// DrainTimeout is how long running answers may take to finish once Shutdown is called.
	DrainTimeout time.Duration
	Logger       *slog.Logger
	// OnLargeBody, if set, is told of each inference request whose body is longer than LargeBody, before it is read.
	OnLargeBody func()

	limits limits
}

// LargeBody is the length in bytes from which on reading and tokenising a request takes milliseconds.
const LargeBody = 128 << 10

// Server is the listener. Use Start, then Shutdown exactly once.
type Server struct {
	config   Config
	server   *http.Server
	listener net.Listener
	draining atomic.Bool
	stopping atomic.Bool
	running  atomic.Int64 // inference requests; see Track
	done     chan struct{}
	cancel   context.CancelCauseFunc // ends the context of every request
	serveErr error
}

// NewServer returns a server that is not yet listening; the handler may ask it whether it drains.
func NewServer(config Config) *Server {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	config.limits = defaultLimits()
	return &Server{config: config, done: make(chan struct{})}
}

// Start listens and serves until Shutdown.
func (s *Server) Start(handler http.Handler) error {
	address := net.JoinHostPort(s.config.Host, strconv.Itoa(s.config.Port))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s (--http-host, --http-port): %w", address, err)
	}
	base, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s.server = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.config.limits.readHeader,
		IdleTimeout:       s.config.limits.idle,
		MaxHeaderBytes:    s.config.limits.headerBytes,
		Protocols:         protocols,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
	}
	if s.config.CertPath != "" {
		if s.server.TLSConfig, err = TLSConfig(s.config); err != nil {
			cancel(err)
			return errors.Join(err, listener.Close())
		}
	}
	s.listener = listener
	go func() { // ends when Shutdown closes the listener
		defer close(s.done)
		var err error
		if s.server.TLSConfig != nil {
			err = s.server.ServeTLS(listener, "", "")
		} else {
			err = s.server.Serve(listener)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			s.serveErr = err
		}
	}()
	return nil
}

// Address returns where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Draining tells whether Shutdown has begun: new inference requests are refused, running ones go on.
func (s *Server) Draining() bool { return s.draining.Load() }

// Stopping tells whether the drain time is over and what still runs is being ended.
func (s *Server) Stopping() bool { return s.stopping.Load() }

// Shutdown lets running answers finish for at most the drain time, then ends them with an error, and returns when all are gone.
func (s *Server) Shutdown() error {
	s.draining.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), s.config.DrainTimeout)
	defer cancel()
	// While requests run the listener stays open, so that probes and late clients get an answer that says what happens.
	s.waitIdle(ctx)
	s.stopping.Store(true)
	s.cancel(problem.Draining())      // handlers tell their clients
	const lastWords = 2 * time.Second // for the error events of streams that did not finish
	end, endCancel := context.WithTimeout(context.Background(), lastWords)
	defer endCancel()
	err := s.server.Shutdown(end)
	if err != nil {
		err = s.server.Close()
	}
	<-s.done
	return errors.Join(err, s.serveErr)
}

func (s *Server) waitIdle(ctx context.Context) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for s.running.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Track counts an inference request while it runs, so that draining can wait for it.
func (s *Server) Track(handler http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.Begin()()
		if s.config.OnLargeBody != nil && r.ContentLength > LargeBody {
			s.config.OnLargeBody()
		}
		handler(w, r)
	})
}

// Begin counts a request that came another way until done is called.
func (s *Server) Begin() (done func()) {
	s.running.Add(1)
	return func() { s.running.Add(-1) }
}

func anthropicNotFound(message string) []byte {
	text, _ := json.Marshal(message)
	return fmt.Appendf(nil, `{"type":"error","error":{"type":"not_found_error","message":%s}}`, text)
}

// TLSConfig returns the encryption that the configuration's files describe. The files are read again when they change.
func TLSConfig(config Config) (*tls.Config, error) {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.limits == (limits{}) {
		config.limits = defaultLimits()
	}
	c, err := newCertificates(config)
	if err != nil {
		return nil, err
	}
	return c.config(), nil
}

// certificates serves the key pair and reads it again when a file changes.
type certificates struct {
	files    Config
	mu       sync.Mutex
	pair     *tls.Certificate
	pool     *x509.CertPool
	modified time.Time
	checked  time.Time
}

func newCertificates(config Config) (*certificates, error) {
	c := &certificates{files: config}
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *certificates) newest() time.Time {
	var newest time.Time
	for _, path := range []string{c.files.CertPath, c.files.KeyPath, c.files.ClientCAPath} {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest
}

func (c *certificates) load() error {
	if _, err := os.Stat(c.files.CertPath); err != nil {
		return fmt.Errorf("TLS certificate not found: %s", c.files.CertPath)
	}
	if _, err := os.Stat(c.files.KeyPath); err != nil {
		return fmt.Errorf("TLS key not found: %s", c.files.KeyPath)
	}
	modified := c.newest()
	pair, err := tls.LoadX509KeyPair(c.files.CertPath, c.files.KeyPath)
	if err != nil {
		return fmt.Errorf("--tls-cert-path %s with --tls-key-path %s: %w", c.files.CertPath, c.files.KeyPath, err)
	}
	var pool *x509.CertPool
	if c.files.ClientCAPath != "" {
		text, err := os.ReadFile(c.files.ClientCAPath)
		if err != nil {
			return fmt.Errorf("--tls-client-ca-cert-path: %w", err)
		}
		pool = x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return fmt.Errorf("--tls-client-ca-cert-path %s holds no PEM certificate", c.files.ClientCAPath)
		}
	}
	c.pair, c.pool, c.modified = &pair, pool, modified
	return nil
}

// current returns the newest key pair that loads; a broken new one leaves the old one in force.
func (c *certificates) current() (*tls.Certificate, *x509.CertPool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) > c.files.limits.reload {
		c.checked = now
		if !c.newest().Equal(c.modified) { // older files are new ones too, as after going back to a former secret
			if err := c.load(); err != nil {
				c.files.Logger.Error("new TLS files do not load; the old ones stay in force", "error", err)
			}
		}
	}
	return c.pair, c.pool
}

func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			pair, pool := c.current()
			config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*pair}, NextProtos: []string{"h2", "http/1.1"}}
			if pool != nil {
				config.ClientCAs, config.ClientAuth = pool, tls.RequireAndVerifyClientCert
			}
			return config, nil
		},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, _ := c.current()
			return pair, nil
		},
	}
}
