package zmq

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// libzmq returns a Python with the reference implementation, or skips the test.
func libzmq(t *testing.T) string {
	t.Helper()
	python := os.Getenv("SIGNALBOX_PYTHON161")
	if python == "" {
		t.Skip("no libzmq to talk to: set SIGNALBOX_PYTHON161 to a Python with pyzmq")
	}
	if output, err := exec.Command(python, "-c", "import zmq").CombinedOutput(); err != nil {
		t.Skipf("no libzmq to talk to: %v: %s", err, output)
	}
	return python
}

// TestTheirSubscriber publishes to libzmq, with heartbeats on, and lets it leave and come back.
func TestTheirSubscriber(t *testing.T) {
	python := libzmq(t)
	p := newPublisher(t)
	script := fmt.Sprintf(`
import sys, zmq
context = zmq.Context()
for topic in ("kv-", "load"):
    sys.stdin.readline()
    s = context.socket(zmq.SUB)
    s.setsockopt(zmq.HEARTBEAT_IVL, 20); s.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5000); s.setsockopt(zmq.RCVTIMEO, 20000)
    s.subscribe(topic)
    s.connect("tcp://127.0.0.1:%d")
    for n in range(500):
        parts = s.recv_multipart()
        assert parts == [topic.encode() + b"events", b"x" * 300, str(n).encode(), b""], parts
    s.close(0)
    print("done", flush=True)
`, p.Port())
	command := exec.Command(python, "-c", script)
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var problems strings.Builder
	command.Stderr = &problems
	pipe, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for range 2 {
		_, _ = io.WriteString(input, "go\n")
		eventually(t, "the peer has subscribed", func() bool { return p.Subscribers() == 1 })
		for n := range 500 {
			for _, topic := range []string{"kv-events", "loadevents"} {
				p.Publish([]byte(topic), []byte(strings.Repeat("x", 300)), fmt.Append(nil, n), nil)
			}
		}
		if !lines.Scan() || lines.Text() != "done" {
			break
		}
		eventually(t, "the peer has gone", func() bool { return p.Subscribers() == 0 })
	}
	_ = input.Close()
	if err := command.Wait(); err != nil {
		t.Errorf("the peer: %v\n%s", err, problems.String())
	}
}

// TestTheirPublisher receives from libzmq, which sends heartbeats.
func TestTheirPublisher(t *testing.T) {
	python := libzmq(t)
	command := exec.Command(python, "-c", `
import sys, time, zmq
s = zmq.Context().socket(zmq.XPUB)
s.setsockopt(zmq.HEARTBEAT_IVL, 20); s.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5000); s.setsockopt(zmq.RCVTIMEO, 20000)
print(s.bind_to_random_port("tcp://127.0.0.1"), flush=True)
assert s.recv() == b"\x01kv-"
for n in range(1000):
    s.send_multipart([b"kv-events", b"", b"y" * n, str(n).encode()])
    s.send_multipart([b"other", b"z"])
    if n == 500: time.sleep(0.2)  # several heartbeats
sys.stdin.read()
s.close(0)
`)
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var problems strings.Builder
	command.Stderr = &problems
	pipe, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	port := 0
	if _, err := fmt.Fscan(pipe, &port); err != nil {
		t.Error(err)
	}
	box := subscribe(t, port, "kv-")
	eventually(t, "all messages are there", func() bool { return box.count() == 1000 })
	_ = input.Close()
	if err := command.Wait(); err != nil {
		t.Errorf("the peer: %v\n%s", err, problems.String())
	}
	for n, message := range box.messages {
		if want := fmt.Sprintf("kv-events||%s|%d", strings.Repeat("y", n), n); message != want {
			t.Fatalf("message %d: %q", n, message)
		}
	}
}
