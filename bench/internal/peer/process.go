// Package peer starts programs that are measured from outside, and reads what they use.
package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc: a hundredth of a second on every Linux that runs here.
const clockTick = 10 * time.Millisecond

// Process is a child that is measured from outside.
type Process struct {
	command *exec.Cmd
	log     *bytes.Buffer
}

// Start runs a program until Stop; what it writes to standard error is kept for error messages.
func Start(ctx context.Context, name string, environment []string, program string, arguments ...string) (*Process, error) {
	p := &Process{command: exec.CommandContext(ctx, program, arguments...), log: &bytes.Buffer{}}
	p.command.Env = append(os.Environ(), environment...)
	p.command.Stdout, p.command.Stderr = io.Discard, p.log
	p.command.Cancel = func() error { return p.command.Process.Signal(os.Interrupt) }
	p.command.WaitDelay = 10 * time.Second
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// Stop ends the process and waits for it.
func (p *Process) Stop() {
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

// Log is what the process wrote to standard error. Only an ended process has all of it.
func (p *Process) Log() string { return p.log.String() }

// CPU returns the CPU time of the process and all its threads so far.
func (p *Process) CPU() (time.Duration, error) {
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

// Resident returns the resident memory in KiB.
func (p *Process) Resident() (int, error) {
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

// FreePort asks the system for a port that nobody uses.
func FreePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
