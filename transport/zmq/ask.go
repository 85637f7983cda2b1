package zmq

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// Ask sends one request to a ROUTER socket ("tcp://host:port"), as a DEALER socket does, and hands out every message of the answer
// until more says that it was the last one. The parts are valid until it returns. A connection that ends before is an error, and so is
// the end of ctx.
func Ask(ctx context.Context, endpoint string, request [][]byte, more func(parts [][]byte) bool) error {
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return fmt.Errorf("endpoint %q: only tcp://host:port is supported", endpoint)
	}
	dialer := net.Dialer{Timeout: handshakeTime}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	reader := &frameReader{source: bufio.NewReaderSize(conn, 16<<10), limit: maxMessage}
	if err := handshake(conn, reader, "DEALER"); err != nil {
		return err
	}
	if _, err := conn.Write(appendMessage(nil, request)); err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Time{})
	command := func(name string, data []byte) error {
		if name != "PING" {
			return nil
		}
		_ = conn.SetWriteDeadline(time.Now().Add(handshakeTime))
		_, err := conn.Write(pong(data))
		return err
	}
	for {
		parts, err := reader.message(command)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if !more(parts) {
			return nil
		}
	}
}
