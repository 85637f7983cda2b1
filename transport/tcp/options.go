// Package tcp is the Dynamo request plane over TCP. A Client sends requests to workers over pooled connections and listens for
// the connections that workers open to bring their answers home; a Server is the worker's side of both. The bytes are those of
// package wire.
//
// The path of a token has no hand-over: whoever calls Next on a stream reads that stream's socket.
package tcp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Options configure both sides. The zero value of a member means the default named with it.
type Options struct {
	// Host is the address to listen on and to advertise; "" takes the machine's first address that is not loopback. Who listens on all
	// addresses (0.0.0.0 or ::) advertises that one, too.
	Host string
	// Port is the port to listen on; 0 lets the system choose.
	Port int
	// PoolSize bounds the request connections to one host (100).
	PoolSize int
	// ConnectTimeout bounds a dial (5 s), AckTimeout the wait for a worker to take a request (5 s).
	ConnectTimeout, AckTimeout time.Duration
	// CallHomeTimeout bounds the time from a request's acceptance to the worker's connection (60 s).
	CallHomeTimeout time.Duration
	// IdleTimeout bounds the time between two items of an answer; 0 for no bound.
	IdleTimeout time.Duration
	// MaxMessage bounds a frame in bytes (32 MiB).
	MaxMessage int
	// ConnectLimit bounds the dials under way at one time (64).
	ConnectLimit int
	// Courier carries the requests whose address is a subject; nil: there are none.
	Courier Courier
	// MaxRunning bounds the requests that a Server runs at one time (10000); more are refused as overloaded.
	MaxRunning int
	// ServerTLS and ClientTLS switch TLS on for accepted and for dialled connections.
	ServerTLS, ClientTLS *tls.Config
}

func (o Options) withDefaults() Options {
	set := func(value *time.Duration, fallback time.Duration) {
		if *value <= 0 {
			*value = fallback
		}
	}
	count := func(value *int, fallback int) {
		if *value <= 0 {
			*value = fallback
		}
	}
	set(&o.ConnectTimeout, 5*time.Second)
	set(&o.AckTimeout, 5*time.Second)
	set(&o.CallHomeTimeout, time.Minute)
	count(&o.PoolSize, 100)
	count(&o.MaxMessage, 32<<20)
	count(&o.ConnectLimit, 64)
	count(&o.MaxRunning, 10000)
	if o.Host == "" {
		o.Host = MachineAddress()
	}
	return o
}

// MachineAddress returns the machine's first address that is not loopback, else 127.0.0.1.
func MachineAddress() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && !network.IP.IsLoopback() && network.IP.To4() != nil {
			return network.IP.String()
		}
	}
	return "127.0.0.1"
}

// advertised returns the address that others connect to.
func advertised(listening net.Addr) string {
	address, ok := listening.(*net.TCPAddr)
	if !ok || !address.IP.IsUnspecified() {
		return listening.String()
	}
	return net.JoinHostPort(MachineAddress(), strconv.Itoa(address.Port))
}

// InterfaceAddress returns the first address of the network interface.
func InterfaceAddress(name string) (string, error) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return "", fmt.Errorf("network interface %q: %w", name, err)
	}
	addresses, err := device.Addrs()
	if err != nil {
		return "", fmt.Errorf("network interface %q: %w", name, err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok {
			return network.IP.String(), nil
		}
	}
	return "", fmt.Errorf("network interface %q has no address", name)
}

func listen(o Options) (net.Listener, error) {
	address := net.JoinHostPort(o.Host, fmt.Sprint(o.Port))
	config := listenConfig()
	listener, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if o.ServerTLS != nil {
		return tls.NewListener(listener, o.ServerTLS), nil
	}
	return listener, nil
}
