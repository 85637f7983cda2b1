//go:build !linux

package tcp

import "net"

func listenConfig() net.ListenConfig { return net.ListenConfig{} }
