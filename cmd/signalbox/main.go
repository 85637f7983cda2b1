// Command signalbox routes inference requests to the worker that holds their prefix and has room. See README.md.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"signalbox/settings"
)

// command is one subcommand.
type command struct {
	name, summary string
	run           func(args []string) error
}

func commands() []command {
	return []command{
		{"frontend", "serve the HTTP API in front of a fleet (the default)", runFrontend},
		{"worker", "serve a simulated engine as a worker", runWorker},
		{"demo", "frontend and simulated workers in one process", runDemo},
		{"indexer", "say over HTTP which engine holds which prefix: indexer --help", runIndexer},
		{"slot-tracker", "count over HTTP what workers are busy with: slot-tracker --help", runSlotTracker},
		{"select", "say over HTTP which worker a request should go to: select --help", runSelect},
		{"router", "route requests at an endpoint of the request plane: router --help", runRouter},
		{"explain", "show why requests went where they did: explain --help", runExplain},
		{"verify", "compare with recorded answers: verify PATH…", runVerify},
		{"render", "show what a model's chat template makes of a request: render MODEL_DIR < body.json", runRender},
		{"tokenize", "show what a model's tokenizer makes of a text: tokenize MODEL_DIR < text", runTokenize},
		{"docs", "print the configuration page", func([]string) error { settings.Markdown(os.Stdout); return nil }},
	}
}

func main() {
	args := os.Args[1:]
	run := runFrontend
	if len(args) > 0 && len(args[0]) > 0 && args[0][0] != '-' {
		found := false
		for _, c := range commands() {
			if c.name == args[0] {
				run, args, found = c.run, args[1:], true
				break
			}
		}
		if !found {
			fmt.Fprintf(os.Stderr, "signalbox: no command %q\n\n", args[0])
			usage(os.Stderr)
			os.Exit(2)
		}
	} else if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		usage(os.Stdout)
		fmt.Println()
	}
	err := run(args)
	var status exitStatus
	switch {
	case err == nil:
	case errors.As(err, &status):
		os.Exit(int(status))
	default:
		fmt.Fprintln(os.Stderr, "signalbox:", err)
		os.Exit(1)
	}
}

// exitStatus ends the program with a status and no further words.
type exitStatus int

// Error implements error.
func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: signalbox [command] [flags]")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-12s %s\n", c.name, c.summary)
	}
}

// version returns the build's version.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "0.1.0"
	}
	return info.Main.Version
}
