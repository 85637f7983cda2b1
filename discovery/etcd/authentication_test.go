package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/server/v3/embed"

	"signalbox/discovery/etcd"
	"signalbox/discovery/internal/contract"
)

var variables = []string{
	"ETCD_ENDPOINTS", "ETCD_LEASE_TTL", "ETCD_AUTH_USERNAME", "ETCD_AUTH_PASSWORD", "ETCD_AUTH_CA", "ETCD_AUTH_CLIENT_CERT", "ETCD_AUTH_CLIENT_KEY",
}

// setVariables sets some of the variables and clears the others.
func setVariables(t *testing.T, values map[string]string) {
	t.Helper()
	for _, name := range variables {
		t.Setenv(name, values[name])
	}
}

func TestOptionsFromEnvironment(t *testing.T) {
	for _, test := range []struct {
		name   string
		values map[string]string
		want   etcd.Options
	}{
		{"nothing set", nil, etcd.Options{}},
		{"list", map[string]string{"ETCD_ENDPOINTS": "http://a:1, http://b:2,"}, etcd.Options{Endpoints: []string{"http://a:1", "http://b:2"}}},
		{"TTL", map[string]string{"ETCD_LEASE_TTL": "10"}, etcd.Options{LeaseTTL: 10 * time.Second}},
		{
			"the password wins over certificates",
			map[string]string{"ETCD_AUTH_USERNAME": "u", "ETCD_AUTH_PASSWORD": "p", "ETCD_AUTH_CA": "x", "ETCD_AUTH_CLIENT_CERT": "x", "ETCD_AUTH_CLIENT_KEY": "x"},
			etcd.Options{Username: "u", Password: "p"},
		},
		{"half of the password", map[string]string{"ETCD_AUTH_USERNAME": "u"}, etcd.Options{}},
		{"two of three certificates", map[string]string{"ETCD_AUTH_CA": "x", "ETCD_AUTH_CLIENT_CERT": "x"}, etcd.Options{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			setVariables(t, test.values)
			got, err := etcd.OptionsFromEnvironment()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for name, test := range map[string]struct {
		values    map[string]string
		complaint string
	}{
		"TTL of nothing": {map[string]string{"ETCD_LEASE_TTL": "0"}, `ETCD_LEASE_TTL is "0"`},
		"TTL of words":   {map[string]string{"ETCD_LEASE_TTL": "ten"}, `ETCD_LEASE_TTL is "ten"`},
		"missing file":   {map[string]string{"ETCD_AUTH_CA": "/not/here", "ETCD_AUTH_CLIENT_CERT": "x", "ETCD_AUTH_CLIENT_KEY": "x"}, "ETCD_AUTH_CA is neither"},
		"no certificate": {map[string]string{"ETCD_AUTH_CA": "-----BEGIN X-----", "ETCD_AUTH_CLIENT_CERT": "x", "ETCD_AUTH_CLIENT_KEY": "x"}, "ETCD_AUTH_CA holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			setVariables(t, test.values)
			if _, err := etcd.OptionsFromEnvironment(); err == nil || !strings.Contains(err.Error(), test.complaint) {
				t.Errorf("got %v, want an error with %q", err, test.complaint)
			}
		})
	}
}

func TestPassword(t *testing.T) {
	s := newServer(t, nil).start(t)
	client := s.client(t)
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { _, err := client.RoleAdd(ctx, "root"); return err },
		func() error { _, err := client.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	setVariables(t, map[string]string{"ETCD_ENDPOINTS": s.endpoint(), "ETCD_AUTH_USERNAME": "root", "ETCD_AUTH_PASSWORD": "secret"})
	options, err := etcd.OptionsFromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	backend, err := etcd.Open(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	contract.Publish(t, backend, contract.Instance("ns", 1))
	if err := backend.Close(ctx); err != nil {
		t.Error(err)
	}
	// A refusal is no outage: it has to end the start at once, not after two minutes.
	options.Password = "wrong"
	if _, err := etcd.Open(ctx, options); err == nil || strings.Contains(err.Error(), "gave up") {
		t.Errorf("wrong password: %v", err)
	}
}

// certificates makes a certificate authority and a pair for this machine, and returns PEM texts.
func certificates(t *testing.T) (ca, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signalbox test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return certificate, certificate, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// Real processes take PEM text from the variables, though their names suggest paths; both have to work.
func TestClientCertificates(t *testing.T) {
	ca, certificate, key := certificates(t)
	directory := t.TempDir()
	paths := make(map[string]string)
	for name, content := range map[string]string{"ETCD_AUTH_CA": ca, "ETCD_AUTH_CLIENT_CERT": certificate, "ETCD_AUTH_CLIENT_KEY": key} {
		paths[name] = filepath.Join(directory, name)
		if err := os.WriteFile(paths[name], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newServer(t, func(config *embed.Config) {
		config.ListenClientUrls = []url.URL{freeAddress(t, "https")}
		config.AdvertiseClientUrls = config.ListenClientUrls
		config.ClientTLSInfo.CertFile, config.ClientTLSInfo.KeyFile = paths["ETCD_AUTH_CLIENT_CERT"], paths["ETCD_AUTH_CLIENT_KEY"]
		config.ClientTLSInfo.TrustedCAFile, config.ClientTLSInfo.ClientCertAuth = paths["ETCD_AUTH_CA"], true
	}).start(t)
	texts := map[string]string{"ETCD_AUTH_CA": ca, "ETCD_AUTH_CLIENT_CERT": certificate, "ETCD_AUTH_CLIENT_KEY": key}
	for name, values := range map[string]map[string]string{"text": texts, "paths": paths} {
		t.Run(name, func(t *testing.T) {
			values["ETCD_ENDPOINTS"] = s.endpoint()
			setVariables(t, values)
			options, err := etcd.OptionsFromEnvironment()
			if err != nil {
				t.Fatal(err)
			}
			options.ConnectTimeout, options.Logger = 20*time.Second, slog.New(slog.DiscardHandler)
			backend, err := etcd.Open(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			contract.Publish(t, backend, contract.Instance("ns", 1))
			if err := backend.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		_, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{s.endpoint()}, ConnectTimeout: 300 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			t.Error("a client without a certificate was let in")
		}
	})
}
