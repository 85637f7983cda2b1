package tcp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"signalbox/inference"
)

// certificates returns the two sides' settings for a certificate of 127.0.0.1: each process is a server on one kind of connection
// and a client on the other.
func certificates(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	issuer := httptest.NewTLSServer(nil)
	defer issuer.Close()
	roots := x509.NewCertPool()
	roots.AddCert(issuer.Certificate())
	return &tls.Config{Certificates: issuer.TLS.Certificates}, &tls.Config{RootCAs: roots}
}

func TestStreamsOverTLS(t *testing.T) {
	serverTLS, clientTLS := certificates(t)
	client, server := pair(t, Options{ServerTLS: serverTLS, ClientTLS: clientTLS})
	server.Handle("p", counting(false, nil))
	for range 3 {
		stream, err := client.Send(t.Context(), target(server, "p", inference.MessagePack), request(4))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(t, stream); err != nil || !slices.Equal(got, []uint32{0, 1, 2, 3}) {
			t.Errorf("%v, %v", got, err)
		}
	}
	ended := make(chan struct{})
	server.Handle("long", counting(true, ended))
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.Send(ctx, target(server, "long", inference.MessagePack), request(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	receive(t, "the worker is told", ended)
}

// TestTLSIsNotGivenUp: neither side falls back to plain connections, and a certificate that nobody vouches for is no certificate.
func TestTLSIsNotGivenUp(t *testing.T) {
	serverTLS, clientTLS := certificates(t)
	_, secured := pair(t, Options{ServerTLS: serverTLS, ClientTLS: clientTLS})
	secured.Handle("p", counting(false, nil))
	_, plain := pair(t, Options{})
	plain.Handle("p", counting(false, nil))
	for name, test := range map[string]struct {
		client *tls.Config
		server *Server
	}{
		"a plain client of a secured worker":      {nil, secured},
		"a client that does not know the issuer":  {&tls.Config{}, secured},
		"a client that expects another name":      {&tls.Config{RootCAs: clientTLS.RootCAs, ServerName: "elsewhere.invalid"}, secured},
		"a secured client of a plain worker":      {clientTLS, plain},
		"a client that speaks only older TLS 1.1": {&tls.Config{RootCAs: clientTLS.RootCAs, MaxVersion: tls.VersionTLS11}, secured},
	} {
		client, err := NewClient(Options{Host: "127.0.0.1", ClientTLS: test.client, ConnectTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err = client.Send(ctx, target(test.server, "p", inference.MessagePack), request(1))
		if inference.KindOf(err) != inference.CannotConnect {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		client.Close()
	}
}

// TestTheNameOfACertificateCanBeGiven reaches a worker by an address that its certificate does not name.
func TestTheNameOfACertificateCanBeGiven(t *testing.T) {
	serverTLS, clientTLS := certificates(t)
	named := clientTLS.Clone()
	named.ServerName = "example.com" // in the certificate
	client, server := pair(t, Options{ServerTLS: serverTLS, ClientTLS: named})
	server.Handle("p", counting(false, nil))
	_, port, err := net.SplitHostPort(server.Address())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client.Send(t.Context(), inference.Target{Address: "localhost:" + port + "/p", Codec: inference.MessagePack}, request(2))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, stream); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}
