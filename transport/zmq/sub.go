package zmq

import (
	"bufio"
	"context"
	"errors"
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

// Events are what a subscription tells its owner. The calls come from one goroutine.
type Events struct {
	// Connected is called after each (re)connection, before its messages. Messages in between may be lost.
	Connected func()
	// Message is called for each message; the parts belong to the receiver.
	Message func(parts [][]byte)
	// Lost is called when the connection fails.
	Lost func(err error)
}

// Subscribe receives the messages of one publisher ("tcp://host:port") whose first part begins with the topic, until ctx ends. It
// reconnects by itself.
func Subscribe(ctx context.Context, endpoint, topic string, events Events) error {
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return fmt.Errorf("event endpoint %q: only tcp:// is supported", endpoint)
	}
	pause := firstPause
	for {
		began := time.Now()
		err := receive(ctx, address, topic, events)
		if ctx.Err() != nil {
			return nil
		}
		if events.Lost != nil {
			events.Lost(err)
		}
		if time.Since(began) > longestPause {
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

// receive is one connection.
func receive(ctx context.Context, address, topic string, events Events) error {
	dialer := net.Dialer{Timeout: handshakeTime}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	reader := bufio.NewReaderSize(conn, 64<<10)
	if err := handshake(conn, reader, "SUB"); err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Time{})
	if _, err := conn.Write(appendFrame(nil, 0, append([]byte{1}, topic...))); err != nil {
		return err
	}
	if events.Connected != nil {
		events.Connected()
	}
	var parts [][]byte
	for {
		flags, body, err := readFrame(reader)
		if err != nil {
			return err
		}
		if flags&flagCommand != 0 {
			continue
		}
		if len(parts) == maxParts {
			return errors.New("a message of too many parts")
		}
		parts = append(parts, body)
		if flags&flagMore == 0 {
			events.Message(parts)
			parts = nil
		}
	}
}
