package zmq

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// Reconnect pauses of a subscription.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// Events are what a subscription tells its owner. The calls come from one goroutine; while one runs nothing is read, and what
// the publisher sends meanwhile waits at the publisher, which drops messages when too many wait.
type Events struct {
	// Connected is called after each (re)connection, before its messages. Messages in between are lost, and so may be the first
	// ones after it: the publisher learns of the subscription a moment later.
	Connected func()
	// Message is called for each message; the parts are valid until it returns.
	Message func(parts [][]byte)
	// Lost is called when a connection fails, or can't be made.
	Lost func(err error)
}

// Subscribe receives the messages of one publisher ("tcp://host:port") whose first part begins with the topic, until ctx ends;
// then it returns nil. It reconnects by itself, with pauses from 100 ms doubling to 5 s.
func Subscribe(ctx context.Context, endpoint, topic string, events Events) error {
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return fmt.Errorf("event endpoint %q: only tcp://host:port is supported", endpoint)
	}
	pause := firstPause
	for {
		connected, err := receive(ctx, address, topic, events)
		if ctx.Err() != nil {
			return nil
		}
		if events.Lost != nil {
			events.Lost(err)
		}
		if connected {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, longestPause)
	}
}

// receive is one connection; connected tells whether it brought a message.
func receive(ctx context.Context, address, topic string, events Events) (connected bool, err error) {
	dialer := net.Dialer{Timeout: handshakeTime, KeepAliveConfig: keepAlive}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	reader := &frameReader{source: bufio.NewReaderSize(conn, 16<<10), limit: maxMessage}
	if err := handshake(conn, reader, "SUB"); err != nil {
		return false, err
	}
	if _, err := conn.Write(appendFrame(nil, 0, append([]byte{1}, topic...))); err != nil {
		return false, err
	}
	_ = conn.SetDeadline(time.Time{})
	if events.Connected != nil {
		events.Connected()
	}
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
		if err != nil {
			return connected, err
		}
		connected = true
		events.Message(parts)
	}
}
