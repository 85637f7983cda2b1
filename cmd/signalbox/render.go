package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"signalbox/preprocess/prompt"
)

const renderHelp = `usage: signalbox render [flags] MODEL [BODY.json]

Prints the prompt that a chat request becomes: what the model is asked, before it is tokenised. MODEL is a model directory
(chat_template.jinja, chat_template.json or tokenizer_config.json) or the file of a template; BODY.json is the body of a
request to /v1/chat/completions, read from standard input where it is not given.

  signalbox render models/qwen3 <<< '{"messages": [{"role": "user", "content": "Hello!"}]}'
  signalbox render models/qwen3 body.json | signalbox tokenize models/qwen3

A request that the template refuses is an error with the template's words, as for a client.

Flags:
`

// renderOptions are the flags of render.
type renderOptions struct {
	template, bos, eos, unk        string
	toolParser, reasoningParser    string
	defaultThinking, now           string
	explain, asJSON, parseArgument bool
}

// runRender prints the prompt of a chat request.
func runRender(args []string) error {
	var o renderOptions
	flags := flag.NewFlagSet("render", flag.ContinueOnError)
	flags.StringVar(&o.template, "template", "", "`file` of a template that replaces the model's own (--custom-jinja-template of a worker)")
	flags.StringVar(&o.bos, "bos-token", "", "the beginning-of-sequence token, for the file of a template")
	flags.StringVar(&o.eos, "eos-token", "", "the end-of-sequence token, likewise")
	flags.StringVar(&o.unk, "unk-token", "", "the token of what is unknown, likewise")
	flags.StringVar(&o.toolParser, "tool-parser", "", "`name` of the model's tool-call parser, on which the thinking of some families depends")
	flags.StringVar(&o.reasoningParser, "reasoning-parser", "", "`name` of the model's reasoning parser, likewise")
	flags.StringVar(&o.defaultThinking, "default-thinking", "", "`mode` of requests that say nothing about thinking: enabled or disabled")
	flags.StringVar(&o.now, "now", "", "`time`, like 2026-11-30T12:00:00Z, for templates that print the date; the clock's where it is not given")
	flags.BoolVar(&o.parseArgument, "parse-arguments", false, "pass arguments of past tool calls as objects whatever the template wants (tool_call_arguments_format json_object of a worker)")
	flags.BoolVar(&o.explain, "explain", false, "tell on standard error which template is used and what it was found to want")
	flags.BoolVar(&o.asJSON, "json", false, `print a JSON object, {"template": …, "prompt": …}`)
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(renderHelp)
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return nil
	case err != nil:
		return fmt.Errorf("render: %w; see signalbox render --help", err)
	case flags.NArg() < 1 || flags.NArg() > 2:
		return fmt.Errorf("render: want a model directory or template file, and perhaps the file of a request body; see signalbox render --help")
	}
	formatter, err := o.formatter(flags.Arg(0))
	if errors.Is(err, prompt.ErrNoTemplate) {
		return fmt.Errorf("render: %s: %w", flags.Arg(0), err)
	}
	if err != nil {
		return err
	}
	body := os.Stdin
	if path := flags.Arg(1); path != "" {
		if body, err = os.Open(path); err != nil {
			return err
		}
		defer body.Close()
	}
	request, err := readRenderRequest(body)
	if err != nil {
		return fmt.Errorf("request body: %w", err)
	}
	if o.explain {
		name := formatter.TemplateFor(request)
		fmt.Fprintln(os.Stderr, "template:", name)
		for _, finding := range formatter.Findings()[name] {
			fmt.Fprintln(os.Stderr, " -", finding)
		}
	}
	text, err := formatter.Render(request)
	if err != nil {
		return err
	}
	if o.asJSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(struct {
			Template string `json:"template"`
			Prompt   string `json:"prompt"`
		}{formatter.TemplateFor(request), text})
	}
	_, err = os.Stdout.WriteString(text)
	return err
}

// formatter loads the templates of a model directory or of a file.
func (o renderOptions) formatter(path string) (*prompt.Formatter, error) {
	options := prompt.Options{ParseArguments: o.parseArgument, Family: prompt.FamilyOf(o.toolParser, o.reasoningParser)}
	switch o.defaultThinking {
	case "":
	case "enabled", "disabled":
		on := o.defaultThinking == "enabled"
		options.DefaultThinking = &on
	default:
		return nil, fmt.Errorf("render: --default-thinking %q: want enabled or disabled", o.defaultThinking)
	}
	if o.now != "" {
		now, err := time.Parse(time.RFC3339, o.now)
		if err != nil {
			return nil, fmt.Errorf("render: --now %q: want a time like 2026-11-30T12:00:00Z", o.now)
		}
		options.Now = func() time.Time { return now }
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		tokens := make(map[string]string)
		for name, token := range map[string]string{"bos_token": o.bos, "eos_token": o.eos, "unk_token": o.unk} {
			if token != "" {
				tokens[name] = token
			}
		}
		return prompt.New(string(source), tokens, options)
	}
	return prompt.Load(modelTemplates(path, o.template), options)
}

// modelTemplates are the files of a model directory that may hold a template.
func modelTemplates(directory, custom string) prompt.Files {
	file := func(name string) string {
		path := filepath.Join(directory, name)
		if _, err := os.Stat(path); err != nil {
			return ""
		}
		return path
	}
	files := prompt.Files{Custom: custom, Template: file("chat_template.jinja"), TokenizerConfig: file("tokenizer_config.json"),
		Config: file("config.json"), Name: filepath.Base(directory)}
	if files.Template == "" {
		files.Template = file("chat_template.json")
	}
	return files
}

// readRenderRequest reads what a prompt depends on from the body of a chat request.
func readRenderRequest(from io.Reader) (prompt.Request, error) {
	var body struct {
		Messages, Tools      json.RawMessage
		ToolChoice           json.RawMessage `json:"tool_choice"`
		ResponseFormat       json.RawMessage `json:"response_format"`
		Arguments            json.RawMessage `json:"chat_template_args"`
		Kwargs               json.RawMessage `json:"chat_template_kwargs"`
		ReasoningEffort      string          `json:"reasoning_effort"`
		Thinking             struct{ Type string }
		AddGenerationPrompt  *bool `json:"add_generation_prompt"`
		ContinueFinalMessage bool  `json:"continue_final_message"`
	}
	if err := json.NewDecoder(from).Decode(&body); err != nil {
		return prompt.Request{}, err
	}
	if body.Messages == nil {
		return prompt.Request{}, errors.New("messages are missing")
	}
	if body.Arguments == nil {
		body.Arguments = body.Kwargs
	}
	request := prompt.Request{ResponseFormat: body.ResponseFormat, Messages: body.Messages, Tools: body.Tools, Arguments: body.Arguments, ReasoningEffort: body.ReasoningEffort,
		Thinking:           body.Thinking.Type,
		NoGenerationPrompt: body.AddGenerationPrompt != nil && !*body.AddGenerationPrompt, ContinueFinalMessage: body.ContinueFinalMessage}
	switch choice := strings.TrimSpace(string(body.ToolChoice)); {
	case choice == `"none"`:
		request.Tools, request.NoTools = nil, true
	case choice == `"required"`:
		request.Constrained, request.ToolChoice = true, "required"
	case strings.HasPrefix(choice, "{"):
		var named struct{ Function struct{ Name string } }
		if err := json.Unmarshal(body.ToolChoice, &named); err != nil {
			return prompt.Request{}, fmt.Errorf("tool_choice: %w", err)
		}
		request.Constrained, request.NamedTool, request.ToolChoice = true, true, named.Function.Name
	}
	var format struct{ Type string }
	if json.Unmarshal(body.ResponseFormat, &format) == nil && slices.Contains([]string{"json_object", "json_schema"}, format.Type) {
		request.Constrained = true
	}
	return request, nil
}
