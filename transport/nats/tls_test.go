package nats

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// authority is a certificate that signs itself, for servers and clients, with its files.
func authority(t *testing.T, name string) (pair tls.Certificate, pool *x509.CertPool, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificatePEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	directory := t.TempDir()
	certificate, key = filepath.Join(directory, name+".pem"), filepath.Join(directory, name+".key")
	for path, text := range map[string][]byte{certificate: certificatePEM, key: keyPEM} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.X509KeyPair(certificatePEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certificatePEM)
	return pair, pool, certificate, key
}

func TestTLS(t *testing.T) {
	own, _, ownPath, _ := authority(t, "server")
	_, clients, clientPath, clientKey := authority(t, "client")
	plain := start(t, &server.Options{TLS: true, TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}})
	mutual := start(t, &server.Options{TLS: true, TLSVerify: true, TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12,
		ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}})
	for name, c := range map[string]struct {
		server      *server.Server
		environment map[string]string
		fails       bool
	}{
		"the CA is known":                 {plain, map[string]string{"NATS_TLS_CA_CERT_PATH": ownPath}, false},
		"nobody knows the CA":             {plain, nil, true},
		"another CA":                      {plain, map[string]string{"NATS_TLS_CA_CERT_PATH": clientPath}, true},
		"nobody looks":                    {plain, map[string]string{"NATS_TLS_INSECURE": "true"}, false},
		"no certificate where one must":   {mutual, map[string]string{"NATS_TLS_CA_CERT_PATH": ownPath}, true},
		"a certificate of one's own":      {mutual, map[string]string{"NATS_TLS_CA_CERT_PATH": ownPath, "NATS_TLS_CLIENT_CERT_PATH": clientPath, "NATS_TLS_CLIENT_KEY_PATH": clientKey}, false},
		"a certificate without its key":   {mutual, map[string]string{"NATS_TLS_CA_CERT_PATH": ownPath, "NATS_TLS_CLIENT_CERT_PATH": clientPath}, true},
		"a CA file that is no certifcate": {plain, map[string]string{"NATS_TLS_CA_CERT_PATH": clientKey}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"NATS_TLS_CA_CERT_PATH", "NATS_TLS_INSECURE", "NATS_TLS_CLIENT_CERT_PATH", "NATS_TLS_CLIENT_KEY_PATH"} {
				t.Setenv(variable, c.environment[variable])
			}
			t.Setenv("NATS_SERVER", strings.Replace(c.server.ClientURL(), "nats://", "tls://", 1))
			options, err := OptionsFromEnvironment()
			if err != nil {
				t.Fatal(err)
			}
			options.Logger, options.Patience = slog.New(slog.DiscardHandler), time.Millisecond
			conn, err := Connect(t.Context(), options)
			if (err != nil) != c.fails {
				t.Errorf("error %v", err)
			}
			if conn == nil {
				return
			}
			if err := conn.nc.Flush(); err != nil {
				t.Error(err)
			}
			_ = conn.Close()
		})
	}
}
