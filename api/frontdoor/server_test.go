package frontdoor

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, config Config, change func(*limits), handler http.Handler) *Server {
	t.Helper()
	config.Host, config.Logger = "127.0.0.1", slog.New(slog.DiscardHandler)
	s := NewServer(config)
	if change != nil {
		change(&s.config.limits)
	}
	if err := s.Start(handler); err != nil {
		t.Fatal(err)
	}
	return s
}

// pair writes a certificate that is its own authority, with the serial number.
func pair(t *testing.T, directory string, serial int64, at time.Time) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(directory, "cert.pem"), filepath.Join(directory, "key.pem")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		writeAt(t, path, pem.EncodeToMemory(block), at)
	}
	return certificate, key
}

func writeAt(t *testing.T, path string, text []byte, at time.Time) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// serial connects and returns the serial number of the server's certificate.
func serial(s *Server, config *tls.Config) (int64, error) {
	connection, err := tls.Dial("tcp", s.Address(), config)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// TestCertificatesAreReadAgain changes the files under a running server: a pair that loads is used for new connections, one that does
// not leaves the old one in force.
func TestCertificatesAreReadAgain(t *testing.T) {
	directory, now := t.TempDir(), time.Now()
	certificate, key := pair(t, directory, 1, now.Add(-3*time.Hour))
	s := serve(t, Config{CertPath: certificate, KeyPath: key, DrainTimeout: time.Second}, func(l *limits) { l.reload = 0 }, http.NotFoundHandler())
	defer s.Shutdown()
	insecure := &tls.Config{InsecureSkipVerify: true}
	for _, step := range []struct {
		change func()
		want   int64
	}{
		{func() {}, 1},
		{func() { pair(t, directory, 2, now.Add(-2*time.Hour)) }, 2},
		{func() { writeAt(t, certificate, []byte("no certificate"), now.Add(-time.Hour)) }, 2},
		{func() { pair(t, directory, 3, now) }, 3},
	} {
		step.change()
		if got, err := serial(s, insecure); err != nil || got != step.want {
			t.Errorf("certificate %d, %v; want %d", got, err, step.want)
		}
	}
	// Plain requests to the TLS port get no answer of ours.
	response, err := http.Get("http://" + s.Address() + "/")
	if err == nil {
		defer response.Body.Close()
		if response.StatusCode == http.StatusNotFound {
			t.Error("a plain request was served")
		}
	}
}

// TestClientsMustShowACertificate where their authority is configured.
func TestClientsMustShowACertificate(t *testing.T) {
	certificate, key := pair(t, t.TempDir(), 1, time.Now())
	clientCertificate, clientKey := pair(t, t.TempDir(), 7, time.Now())
	s := serve(t, Config{CertPath: certificate, KeyPath: key, ClientCAPath: clientCertificate, DrainTimeout: time.Second}, nil,
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.TLS.PeerCertificates[0].SerialNumber, r.Proto)
		}))
	defer s.Shutdown()
	get := func(config *tls.Config) (string, error) {
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get("https://" + s.Address() + "/")
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return string(text), err
	}
	if text, err := get(&tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Errorf("a client without a certificate was served: %s", text)
	}
	own, err := tls.LoadX509KeyPair(clientCertificate, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := get(&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{own}}); err != nil || text != "7HTTP/2.0" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestBadFilesStopTheStart(t *testing.T) {
	certificate, key := pair(t, t.TempDir(), 1, time.Now())
	for want, config := range map[string]Config{
		"TLS certificate not found":  {CertPath: "nope.pem", KeyPath: key},
		"TLS key not found":          {CertPath: certificate, KeyPath: "nope.pem"},
		"--tls-key-path":             {CertPath: certificate, KeyPath: certificate},
		"holds no PEM certificate":   {CertPath: certificate, KeyPath: key, ClientCAPath: key},
		"--tls-client-ca-cert-path:": {CertPath: certificate, KeyPath: key, ClientCAPath: "nope.pem"},
	} {
		config.Host = "127.0.0.1"
		if err := NewServer(config).Start(http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestDraining: what runs may finish, new connections are still answered, and the end comes at once when all is done.
func TestDraining(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var s *Server
	s = serve(t, Config{DrainTimeout: time.Minute}, nil, late(func() http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/work", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.Track(func(w http.ResponseWriter, r *http.Request) {
				close(entered)
				<-leave
				fmt.Fprint(w, "done")
			}).ServeHTTP(w, r)
		}))
		mux.HandleFunc("/state", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.Draining(), s.Stopping()) })
		return mux
	}))
	answers := make(chan string, 1)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) string {
		response, err := client.Get("http://" + s.Address() + path)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return string(text)
	}
	go func() { answers <- get("/work") }()
	<-entered
	if state := get("/state"); state != "false false" {
		t.Errorf("before the end: %s", state)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown() }()
	for get("/state") != "true false" {
		select {
		case err := <-ended:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
	}
	close(leave)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if answer := <-answers; answer != "done" {
		t.Errorf("the running request ended with %q", answer)
	}
}

// late makes a handler late: it needs the server that it is given to.
func late(make func() http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { make().ServeHTTP(w, r) })
}

// TestWhatDoesNotFinishIsTold: after the drain time the request's context ends, and the handler has a moment for its last words.
func TestWhatDoesNotFinishIsTold(t *testing.T) {
	entered := make(chan struct{})
	var s *Server
	s = serve(t, Config{DrainTimeout: 20 * time.Millisecond}, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Track(func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
			fmt.Fprint(w, "last words ", s.Stopping(), " ", context.Cause(r.Context()))
		}).ServeHTTP(w, r)
	}))
	answers := make(chan string, 1)
	go func() {
		response, err := http.Get("http://" + s.Address() + "/")
		if err != nil {
			answers <- err.Error()
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		answers <- string(text)
	}()
	<-entered
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
	if answer := <-answers; answer != "last words true Service is not ready" {
		t.Errorf("answer %q", answer)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestClientsThatHoldConnections send half a header, nothing, or a header without end: none keeps its connection.
func TestClientsThatHoldConnections(t *testing.T) {
	s := serve(t, Config{DrainTimeout: time.Second}, func(l *limits) { l.readHeader, l.idle, l.headerBytes = 50*time.Millisecond, 50*time.Millisecond, 4096 }, http.NotFoundHandler())
	defer s.Shutdown()
	for name, sent := range map[string]string{
		"half a header": "GET / HTTP/1.1\r\nHost: x\r\n",
		"nothing":       "",
		"idle":          "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"too much":      "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 20<<10) + "\r\n\r\n",
	} {
		connection, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		_ = connection.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(connection, sent)
		if _, err := io.Copy(io.Discard, bufio.NewReader(connection)); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the connection is still open", name)
		}
		connection.Close()
	}
}
