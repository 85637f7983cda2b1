package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"signalbox/preprocess/tokenizer"
	"signalbox/verify"
)

const tokenizeHelp = `usage: signalbox tokenize MODEL_DIR < TEXT

Prints the tokens of the text on standard input, one a line: its id and what it stands for. MODEL_DIR holds tokenizer.json,
tiktoken.model or a *.tiktoken file, and perhaps tokenizer_config.json and config.json. Nothing is added to the text: what a chat
request becomes before it is tokenised is what signalbox render prints.
`

const verifyHelp = `usage: signalbox verify PATH…

Runs recorded answers of the real system against this build. The name of a directory is the kind of the recordings in it; PATH is such a
directory, one file in it, or a directory of such directories. Prints what differs and how many passed; the status is 0 when all did,
1 when some failed, and 2 when a PATH could not be run.

Kinds:`

// asksForHelp reports whether the arguments of a command without flags ask what it does.
func asksForHelp(args []string) bool {
	return len(args) == 1 && slices.Contains([]string{"-h", "-help", "--help"}, args[0])
}

// runTokenize prints the tokens of standard input.
func runTokenize(args []string) error {
	if asksForHelp(args) {
		fmt.Print(tokenizeHelp)
		return nil
	}
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
	if asksForHelp(args) {
		fmt.Println(verifyHelp, strings.Join(verify.Kinds(), ", "))
		return nil
	}
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
