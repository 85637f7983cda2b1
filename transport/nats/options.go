// Package nats is a connection to a NATS server, with what Dynamo's planes need of one: requests to a subject with an acknowledgement,
// subjects served by one of a group, and plain publishing. Core NATS only; nothing is stored at the server.
//
// The connection comes back by itself, for as long as it takes. What is sent meanwhile waits for it.
package nats

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// DefaultServer is the server of who names none.
const DefaultServer = "nats://localhost:4222"

// Options describe a connection. The zero value connects to [DefaultServer] as user "user" with the password "user".
type Options struct {
	// Server is the URL, or several separated by commas; each starts with nats:// or tls://.
	Server string
	// The first of these that is set counts: user and password, token, nkey seed, credentials file.
	Username, Password, Token, NKeySeed, CredentialsFile string
	// The paths are of PEM files. CAPath and Insecure need tls:// in Server.
	CAPath, ClientCertPath, ClientKeyPath string
	// Insecure leaves the server's certificate unchecked.
	Insecure bool
	// RequestTimeout bounds the wait for a worker's acknowledgement; 0 means 10 s.
	RequestTimeout time.Duration
	// Patience is how long Connect tries to reach the server; 0 means 120 s.
	Patience time.Duration
	// Name is shown at the server, Version to who asks for services; "" is 0.0.0.
	Name, Version string
	Logger        *slog.Logger
}

const (
	defaultRequestTimeout = 10 * time.Second
	defaultPatience       = 120 * time.Second
)

// OptionsFromEnvironment reads the variables that all of a fleet's processes share: NATS_SERVER, NATS_AUTH_USERNAME with
// NATS_AUTH_PASSWORD, NATS_AUTH_TOKEN, NATS_AUTH_NKEY, NATS_AUTH_CREDENTIALS_FILE, NATS_TLS_CA_CERT_PATH, NATS_TLS_INSECURE,
// NATS_TLS_CLIENT_CERT_PATH with NATS_TLS_CLIENT_KEY_PATH, and DYN_NATS_REQUEST_TIMEOUT_SECS.
func OptionsFromEnvironment() (Options, error) {
	o := Options{
		Server:   os.Getenv("NATS_SERVER"),
		Username: os.Getenv("NATS_AUTH_USERNAME"), Password: os.Getenv("NATS_AUTH_PASSWORD"), Token: os.Getenv("NATS_AUTH_TOKEN"),
		NKeySeed: os.Getenv("NATS_AUTH_NKEY"), CredentialsFile: os.Getenv("NATS_AUTH_CREDENTIALS_FILE"),
		CAPath: os.Getenv("NATS_TLS_CA_CERT_PATH"), ClientCertPath: os.Getenv("NATS_TLS_CLIENT_CERT_PATH"), ClientKeyPath: os.Getenv("NATS_TLS_CLIENT_KEY_PATH"),
	}
	switch text := strings.ToLower(strings.TrimSpace(os.Getenv("NATS_TLS_INSECURE"))); text {
	case "", "0", "false", "no", "off":
	case "1", "true", "yes", "on":
		o.Insecure = true
	default:
		return o, fmt.Errorf("NATS_TLS_INSECURE is %q; want true or false", text)
	}
	if text := os.Getenv("DYN_NATS_REQUEST_TIMEOUT_SECS"); text != "" {
		seconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil || seconds == 0 {
			return o, fmt.Errorf("DYN_NATS_REQUEST_TIMEOUT_SECS is %q; want a number of seconds, at least 1", text)
		}
		o.RequestTimeout = time.Duration(seconds) * time.Second
	}
	return o, nil
}

// check fills in defaults and refuses what cannot work.
func (o *Options) check() error {
	if o.Server == "" {
		o.Server = DefaultServer
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = defaultRequestTimeout
	}
	if o.Patience <= 0 {
		o.Patience = defaultPatience
	}
	if o.Version == "" {
		o.Version = "0.0.0"
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	secure := false
	for server := range strings.SplitSeq(o.Server, ",") {
		server = strings.TrimSpace(server)
		switch {
		case strings.HasPrefix(server, "tls://"):
			secure = true
		case strings.HasPrefix(server, "nats://"):
		default:
			return fmt.Errorf("NATS_SERVER is %q; it must start with nats:// or tls://", server)
		}
	}
	if !secure && (o.CAPath != "" || o.Insecure) {
		return fmt.Errorf("NATS_SERVER is %q; with NATS_TLS_CA_CERT_PATH or NATS_TLS_INSECURE it must start with tls://", o.Server)
	}
	if (o.ClientCertPath == "") != (o.ClientKeyPath == "") {
		return errors.New("NATS_TLS_CLIENT_CERT_PATH and NATS_TLS_CLIENT_KEY_PATH must be set together")
	}
	return nil
}

// authentication returns who to be at the server.
func (o *Options) authentication() (client.Option, error) {
	switch {
	case o.Username != "" && o.Password != "":
		return client.UserInfo(o.Username, o.Password), nil
	case o.Token != "":
		return client.Token(o.Token), nil
	case o.NKeySeed != "":
		pair, err := nkeys.FromSeed([]byte(o.NKeySeed))
		if err != nil {
			return nil, fmt.Errorf("NATS_AUTH_NKEY is no seed of a key: %w", err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			return nil, fmt.Errorf("NATS_AUTH_NKEY: %w", err)
		}
		return client.Nkey(public, pair.Sign), nil
	case o.CredentialsFile != "":
		if _, err := os.Stat(o.CredentialsFile); err != nil {
			return nil, fmt.Errorf("NATS_AUTH_CREDENTIALS_FILE: %w", err)
		}
		return client.UserCredentials(o.CredentialsFile), nil
	}
	return client.UserInfo("user", "user"), nil
}

// tls returns how to make the connection secure; nil leaves it to the URL.
func (o *Options) tls() (*tls.Config, error) {
	if o.CAPath == "" && !o.Insecure && o.ClientCertPath == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.Insecure}
	if o.CAPath != "" {
		text, err := os.ReadFile(o.CAPath)
		if err != nil {
			return nil, fmt.Errorf("NATS_TLS_CA_CERT_PATH: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("NATS_TLS_CA_CERT_PATH %s holds no PEM certificate", o.CAPath)
		}
	}
	if o.ClientCertPath != "" {
		pair, err := tls.LoadX509KeyPair(o.ClientCertPath, o.ClientKeyPath)
		if err != nil {
			return nil, fmt.Errorf("NATS_TLS_CLIENT_CERT_PATH: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
