package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// OptionsFromEnvironment reads the variables that all of a fleet's processes share: ETCD_ENDPOINTS, ETCD_LEASE_TTL,
// ETCD_AUTH_USERNAME with ETCD_AUTH_PASSWORD, else ETCD_AUTH_CA with ETCD_AUTH_CLIENT_CERT and ETCD_AUTH_CLIENT_KEY.
func OptionsFromEnvironment() (Options, error) {
	var options Options
	for endpoint := range strings.SplitSeq(os.Getenv("ETCD_ENDPOINTS"), ",") {
		if endpoint = strings.TrimSpace(endpoint); endpoint != "" {
			options.Endpoints = append(options.Endpoints, endpoint)
		}
	}
	if text := os.Getenv("ETCD_LEASE_TTL"); text != "" {
		seconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil || seconds == 0 {
			return Options{}, fmt.Errorf("ETCD_LEASE_TTL is %q; want a number of seconds, at least 1", text)
		}
		options.LeaseTTL = time.Duration(seconds) * time.Second
	}
	username, password := os.Getenv("ETCD_AUTH_USERNAME"), os.Getenv("ETCD_AUTH_PASSWORD")
	if username != "" && password != "" {
		options.Username, options.Password = username, password
		return options, nil
	}
	ca, certificate, key := os.Getenv("ETCD_AUTH_CA"), os.Getenv("ETCD_AUTH_CLIENT_CERT"), os.Getenv("ETCD_AUTH_CLIENT_KEY")
	if ca == "" || certificate == "" || key == "" {
		return options, nil
	}
	var err error
	options.TLS, err = mutualTLS(ca, certificate, key)
	return options, err
}

// mutualTLS takes each part as PEM text or as the path of a file with it.
func mutualTLS(ca, certificate, key string) (*tls.Config, error) {
	roots := x509.NewCertPool()
	pem, err := pemOrFile("ETCD_AUTH_CA", ca)
	if err != nil {
		return nil, err
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("ETCD_AUTH_CA holds no certificate in PEM form")
	}
	certificatePEM, err := pemOrFile("ETCD_AUTH_CLIENT_CERT", certificate)
	if err != nil {
		return nil, err
	}
	keyPEM, err := pemOrFile("ETCD_AUTH_CLIENT_KEY", key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificatePEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("ETCD_AUTH_CLIENT_CERT and ETCD_AUTH_CLIENT_KEY: %w", err)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

func pemOrFile(variable, value string) ([]byte, error) {
	if strings.HasPrefix(strings.TrimSpace(value), "-----BEGIN") {
		return []byte(value), nil
	}
	content, err := os.ReadFile(value)
	if err != nil {
		return nil, fmt.Errorf("%s is neither PEM text nor a readable file: %w", variable, err)
	}
	return content, nil
}
