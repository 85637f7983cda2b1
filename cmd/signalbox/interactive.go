package main

import (
	"context"
	"os"

	"signalbox/frontend"
	"signalbox/frontend/terminal"
)

// onlyHere makes the API reachable from this machine alone, on any port: the conversation in the terminal is its client.
func onlyHere(o frontend.HTTPOptions) frontend.HTTPOptions {
	o.Host, o.Port, o.CertPath, o.KeyPath, o.ClientCAPath = "127.0.0.1", 0, "", "", ""
	return o
}

// talk holds a conversation in the terminal.
func talk(ctx context.Context, f *frontend.Frontend) error {
	return (&terminal.Chat{URL: "http://" + f.Address(), In: os.Stdin, Out: os.Stdout}).Run(ctx)
}
