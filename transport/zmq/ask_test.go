package zmq

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// router answers one request as a ROUTER socket does, and closes the connection.
func router(t *testing.T, answer func(request [][]byte) [][][]byte) (endpoint string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // ends with the listener
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		reader := &frameReader{source: bufio.NewReader(conn), limit: maxMessage}
		if err := handshake(conn, reader, "ROUTER"); err != nil {
			return
		}
		if _, err := conn.Write(appendCommand(nil, "PING", []byte{0, 0, 'x'})); err != nil {
			return
		}
		pong := false
		request, err := reader.message(func(name string, _ []byte) error { pong = pong || name == "PONG"; return nil })
		if err != nil {
			return
		}
		for _, parts := range answer(request) {
			if _, err := conn.Write(appendMessage(nil, parts)); err != nil {
				return
			}
		}
		_, _ = reader.message(func(string, []byte) error { return nil }) // until the other side closes, or has read all
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return "tcp://" + listener.Addr().String()
}

func TestAsk(t *testing.T) {
	endpoint := router(t, func(request [][]byte) [][][]byte {
		return [][][]byte{{nil, request[1], []byte("one")}, {nil, request[1], []byte("two")}, {nil, nil, []byte("end")}}
	})
	var heard []string
	err := Ask(t.Context(), endpoint, [][]byte{nil, []byte("q")}, func(parts [][]byte) bool {
		heard = append(heard, string(parts[1])+string(parts[2]))
		return len(parts[1]) > 0
	})
	if err != nil || strings.Join(heard, " ") != "qone qtwo end" {
		t.Errorf("heard %q, %v", heard, err)
	}
}

func TestAskFails(t *testing.T) {
	if err := Ask(t.Context(), "ipc://x", nil, nil); err == nil {
		t.Error("an endpoint of another kind is asked")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "tcp://" + listener.Addr().String()
	listener.Close()
	if err := Ask(t.Context(), closed, [][]byte{nil}, nil); err == nil {
		t.Error("nobody answers, and nothing is said of it")
	}
	ctx, cancel := context.WithCancel(t.Context())
	endpoint := router(t, func([][]byte) [][][]byte { return [][][]byte{{nil, []byte("one")}} })
	err = Ask(ctx, endpoint, [][]byte{nil, []byte("q")}, func([][]byte) bool {
		cancel() // the end never comes
		return true
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for the end: %v", err)
	}
}
