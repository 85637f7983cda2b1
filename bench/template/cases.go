package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"signalbox/preprocess/chattemplate"
)

// renderCase is one template with one conversation.
type renderCase struct {
	id                 int
	name, conversation string
	source             string
	template           *chattemplate.Template
	variables          chattemplate.Value
	variablesJSON      json.RawMessage

	bytes        int // length of the text
	ours, theirs []time.Duration
	allocations  float64
}

type conversation struct {
	ID                   string
	Messages, Tools      json.RawMessage
	AddGenerationPrompt  bool `json:"add_generation_prompt"`
	ContinueFinalMessage bool `json:"continue_final_message"`
	Kwargs               map[string]json.RawMessage
}

// readCases returns every template with every conversation.
func readCases(o options) ([]*renderCase, error) {
	var tokens map[string]map[string]*string
	var conversations []conversation
	for name, into := range map[string]any{"templates.json": &tokens, "conversations.json": &conversations} {
		text, err := os.ReadFile(filepath.Join(o.golden, name))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			return nil, err
		}
	}
	var names []string
	for name := range tokens {
		if strings.Contains(name, o.only) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	now := func() time.Time { return time.Date(2026, 11, 30, 12, 34, 56, 0, time.Local) }
	var cases []*renderCase
	for _, name := range names {
		source, err := os.ReadFile(filepath.Join(o.models, "tpl", name+".jinja"))
		if err != nil {
			return nil, err
		}
		template, err := chattemplate.Compile(string(source), chattemplate.Options{Now: now})
		if err != nil {
			return nil, err
		}
		for _, c := range conversations {
			raw, err := variables(c, tokens[name])
			if err != nil {
				return nil, err
			}
			value, err := chattemplate.ParseJSON(raw)
			if err != nil {
				return nil, err
			}
			cases = append(cases, &renderCase{name: name, conversation: c.ID, source: string(source), template: template, variables: value, variablesJSON: raw})
		}
	}
	if cases == nil {
		return nil, errors.New("no template of that name")
	}
	return cases, nil
}

// variables are what a template is given, as JSON. Messages and tools keep the bytes, and so the order of keys, that they have.
func variables(c conversation, tokens map[string]*string) (json.RawMessage, error) {
	all := map[string]any{"messages": c.Messages, "tools": json.RawMessage("null"), "add_generation_prompt": c.AddGenerationPrompt}
	if len(c.Tools) > 0 {
		all["tools"] = c.Tools
	}
	for name, token := range tokens {
		if token != nil {
			all[name] = *token
		}
	}
	for name, value := range c.Kwargs {
		all[name] = value
	}
	return json.Marshal(all)
}
