package tcp

import (
	"net"
	"syscall"
	"time"
)

// Dead hosts are noticed by keep-alive probes, as Go's dialer and listener set them up for each connection.
const (
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 15 * time.Second
	keepAliveCount    = 9
)

// listenConfig sets the keep-alive probes up once, on the listening socket, from which accepted ones inherit them: a connection
// serves one answer, and four system calls for each would be a good part of its cost.
func listenConfig() net.ListenConfig {
	return net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			for _, option := range []struct{ level, name, value int }{
				{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
				{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, int(keepAliveIdle / time.Second)},
				{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, int(keepAliveInterval / time.Second)},
				{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, keepAliveCount},
			} {
				if failed = syscall.SetsockoptInt(int(fd), option.level, option.name, option.value); failed != nil {
					return
				}
			}
		})
		if err != nil {
			return err
		}
		return failed
	}}
}
