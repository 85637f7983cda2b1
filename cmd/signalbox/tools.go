package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"signalbox/preprocess/tokenizer"
	"signalbox/verify"
)

// runTokenize prints the tokens of standard input.
func runTokenize(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: signalbox tokenize MODEL_DIR < TEXT")
	}
	model, err := tokenizer.Load(filepath.Join(args[0], "tokenizer.json"))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for _, id := range model.Encode(nil, string(text), false) {
		fmt.Fprintf(out, "%d\t%q\n", id, model.Token(id))
	}
	return out.Flush()
}

// runVerify compares the product with recorded answers.
func runVerify(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: signalbox verify PATH…")
	}
	summary, err := verify.Paths(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "signalbox verify:", err)
		return exitStatus(2)
	}
	for _, failure := range summary.Failures {
		fmt.Println("FAIL", failure)
	}
	fmt.Printf("%d passed, %d failed\n", summary.Passed, len(summary.Failures))
	if len(summary.Failures) > 0 {
		return exitStatus(1)
	}
	return nil
}
