package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"signalbox/preprocess/bpe"
	"signalbox/preprocess/prompt"
	"signalbox/verify"
)

// runTokenize prints the tokens of standard input.
func runTokenize(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: signalbox tokenize MODEL_DIR < TEXT")
	}
	tokenizer, err := bpe.Load(filepath.Join(args[0], "tokenizer.json"))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for _, id := range tokenizer.Encode(nil, string(text), false) {
		fmt.Fprintf(out, "%d\t%q\n", id, tokenizer.Token(id))
	}
	return out.Flush()
}

// runRender prints the prompt of a chat request on standard input.
func runRender(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: signalbox render MODEL_DIR < BODY.json")
	}
	files := prompt.Files{TokenizerConfig: filepath.Join(args[0], "tokenizer_config.json")}
	for _, name := range []string{"chat_template.jinja", "chat_template.json"} {
		if _, err := os.Stat(filepath.Join(args[0], name)); err == nil {
			files.Template = filepath.Join(args[0], name)
			break
		}
	}
	formatter, err := prompt.Load(files, prompt.Options{})
	if err != nil {
		return err
	}
	var body struct {
		Messages, Tools      json.RawMessage
		Args                 json.RawMessage `json:"chat_template_args"`
		Kwargs               json.RawMessage `json:"chat_template_kwargs"`
		ReasoningEffort      string          `json:"reasoning_effort"`
		AddGenerationPrompt  *bool           `json:"add_generation_prompt"`
		ContinueFinalMessage bool            `json:"continue_final_message"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&body); err != nil {
		return fmt.Errorf("request body: %w", err)
	}
	if body.Args == nil {
		body.Args = body.Kwargs
	}
	text, err := formatter.Render(prompt.Request{Messages: body.Messages, Tools: body.Tools, Arguments: body.Args, ReasoningEffort: body.ReasoningEffort,
		NoGenerationPrompt: body.AddGenerationPrompt != nil && !*body.AddGenerationPrompt, ContinueFinalMessage: body.ContinueFinalMessage})
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, strings.NewReader(text))
	return err
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
