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
	files, err := tokenizerFiles(args[0])
	if err != nil {
		return err
	}
	model, err := tokenizer.LoadModel(files)
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

// tokenizerFiles are the files of a model directory that a tokenizer is read from: tokenizer.json, else tiktoken.model or the first
// *.tiktoken.
func tokenizerFiles(directory string) (tokenizer.ModelFiles, error) {
	file := func(pattern string) string {
		found, _ := filepath.Glob(filepath.Join(directory, pattern))
		if len(found) == 0 {
			return ""
		}
		return found[0]
	}
	files := tokenizer.ModelFiles{TokenizerConfig: file("tokenizer_config.json"), Config: file("config.json")}
	for _, pattern := range []string{"tokenizer.json", "tiktoken.model", "*.tiktoken"} {
		if files.Tokenizer = file(pattern); files.Tokenizer != "" {
			return files, nil
		}
	}
	return files, fmt.Errorf("tokenize: %s has neither tokenizer.json nor tiktoken.model nor a *.tiktoken file", directory)
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
