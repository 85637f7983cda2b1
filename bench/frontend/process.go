package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc: a hundredth of a second on every Linux that runs here.
const clockTick = 10 * time.Millisecond

// process is a child that is measured from outside.
type process struct {
	name    string
	command *exec.Cmd
	log     *bytes.Buffer
}

// startProcess runs a program until stop; its output is kept for error messages.
func startProcess(ctx context.Context, name string, environment []string, program string, arguments ...string) (*process, error) {
	p := &process{name: name, command: exec.CommandContext(ctx, program, arguments...), log: &bytes.Buffer{}}
	p.command.Env = append(os.Environ(), environment...)
	p.command.Stdout, p.command.Stderr = io.Discard, p.log
	p.command.Cancel = func() error { return p.command.Process.Signal(os.Interrupt) }
	p.command.WaitDelay = 10 * time.Second
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (p *process) stop() {
	_ = p.command.Process.Signal(os.Interrupt)
	done := make(chan struct{})
	go func() { // ends with the process
		_ = p.command.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		_ = p.command.Process.Kill()
		<-done
	}
}

// cpu returns the CPU time of the process and all its threads so far.
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid), "stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("unexpected form of /proc/PID/stat")
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * clockTick, err
}

// resident returns the resident memory in KiB.
func (p *process) resident() (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	return 0, errors.New("no VmRSS in /proc/PID/status")
}

// freePort asks the system for a port that nobody uses.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// waitServed waits until the model can be used.
func waitServed(ctx context.Context, url, model string) error {
	deadline := time.Now().Add(time.Minute)
	probe := scenario{words: 3, output: 1}
	var last error
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if _, _, err := probe.one(ctx, http.DefaultClient, url, model, 0); err == nil {
			return nil
		} else {
			last = err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s does not serve %s: %w", url, model, last)
}
