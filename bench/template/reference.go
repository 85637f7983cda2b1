package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

//go:embed reference.py
var referenceSource string

// reference is jinja2 in a Python process of its own.
type reference struct {
	version string // of jinja2 and Python
	encoder *json.Encoder
	decoder *json.Decoder
	command *exec.Cmd
	close   func() error
}

// findPython returns the first Python that has jinja2.
func findPython(ctx context.Context, given string) (string, error) {
	candidates := []string{given}
	if given == "" {
		candidates = []string{os.Getenv("SIGNALBOX_BENCH_PYTHON"), "python3"}
	}
	for _, python := range candidates {
		if python != "" && exec.CommandContext(ctx, python, "-c", "import jinja2").Run() == nil {
			return python, nil
		}
	}
	return "", fmt.Errorf("none of %q is a Python with jinja2: pip install jinja2==3.1.6, then name it with -python", candidates)
}

func startReference(ctx context.Context, python string) (*reference, error) {
	command := exec.CommandContext(ctx, python, "-c", referenceSource)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", python, err)
	}
	r := &reference{encoder: json.NewEncoder(in), decoder: json.NewDecoder(bufio.NewReader(out)), command: command, close: in.Close}
	var hello struct{ Version, Python string }
	if err := r.decoder.Decode(&hello); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: want a Python that has jinja2: %w", python, err), r.stop())
	}
	r.version = "jinja2 " + hello.Version + ", Python " + hello.Python
	return r, nil
}

// stop ends the process.
func (r *reference) stop() error {
	err := r.close()
	return errors.Join(err, r.command.Wait())
}

// load makes the process ready to render a case, and returns the text.
func (r *reference) load(id int, source string, variables json.RawMessage) (text string, ok bool, err error) {
	if err := r.encoder.Encode(map[string]any{"load": id, "source": source, "variables": variables}); err != nil {
		return "", false, err
	}
	var answer struct{ Text, Error *string }
	if err := r.decoder.Decode(&answer); err != nil {
		return "", false, err
	}
	if answer.Text == nil {
		return "", false, nil
	}
	return *answer.Text, true, nil
}

// measure returns the time of one render, the mean of as many as fit into the duration.
func (r *reference) measure(id int, duration time.Duration) (time.Duration, error) {
	if err := r.encoder.Encode(map[string]any{"time": id, "seconds": duration.Seconds()}); err != nil {
		return 0, err
	}
	var answer struct{ Microseconds float64 }
	err := r.decoder.Decode(&answer)
	return time.Duration(answer.Microseconds * float64(time.Microsecond)), err
}
