package verify

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"signalbox/preprocess/chattemplate"
)

// ModelsVariable names the folder of model files: tok/NAME/tokenizer.json and tpl/NAME.jinja.
const ModelsVariable = "SIGNALBOX_MODELS"

// modelsFolder is where model files are: $SIGNALBOX_MODELS, else .cache/models in the current directory.
func modelsFolder() string {
	if folder := os.Getenv(ModelsVariable); folder != "" {
		return folder
	}
	return filepath.Join(".cache", "models")
}

func readLines[T any](path string) ([]T, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(reader)
	var list []T
	for {
		var value T
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
}

// conversation is one input of the templates.
type conversation struct {
	ID                   string
	Messages, Tools      json.RawMessage
	AddGenerationPrompt  bool `json:"add_generation_prompt"`
	ContinueFinalMessage bool `json:"continue_final_message"`
	Kwargs               json.RawMessage
}

// ChatTemplates checks rendered conversations.
func ChatTemplates(path string) Result {
	var result Result
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		path = filepath.Dir(path)
	}
	var tokens map[string]map[string]*string
	var conversations []conversation
	for name, into := range map[string]any{"templates.json": &tokens, "conversations.json": &conversations} {
		text, err := os.ReadFile(filepath.Join(path, name))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			result.fail("%v", err)
			return result
		}
	}
	cases, err := readLines[struct{ Tpl, Conv, Text, Error string }](filepath.Join(path, "render.jsonl.gz"))
	if err != nil {
		result.fail("%v", err)
		return result
	}
	now := func() time.Time { return time.Date(2026, 11, 30, 12, 34, 56, 0, time.Local) }
	compiled := make(map[string]*chattemplate.Template)
	for _, c := range cases {
		at := slices.IndexFunc(conversations, func(x conversation) bool { return x.ID == c.Conv })
		if at < 0 {
			result.fail("%s: conversation %q is not there", c.Tpl, c.Conv)
			continue
		}
		conversation := conversations[at]
		template, known := compiled[c.Tpl]
		if !known {
			source, err := os.ReadFile(filepath.Join(modelsFolder(), "tpl", c.Tpl+".jinja"))
			if err == nil {
				template, err = chattemplate.Compile(string(source), chattemplate.Options{Now: now})
			}
			if err != nil {
				result.fail("%s: %v", c.Tpl, err)
			}
			compiled[c.Tpl] = template
		}
		if template == nil {
			continue
		}
		variables := chattemplate.NewDict(8)
		for name, raw := range map[string]json.RawMessage{"messages": conversation.Messages, "tools": conversation.Tools} {
			value := chattemplate.None
			if len(raw) > 0 {
				value, _ = chattemplate.ParseJSON(raw)
			}
			variables.Set(name, value)
		}
		for name, token := range tokens[c.Tpl] {
			if token != nil {
				variables.Set(name, chattemplate.String(*token))
			}
		}
		variables.Set("add_generation_prompt", chattemplate.Bool(conversation.AddGenerationPrompt))
		if len(conversation.Kwargs) > 0 {
			kwargs, _ := chattemplate.ParseJSON(conversation.Kwargs)
			for _, entry := range kwargs.Entries() {
				variables.Set(entry.Key.Str(), entry.Value)
			}
		}
		got, err := template.Render(variables.Value())
		if conversation.ContinueFinalMessage && err == nil {
			got = cutFinal(got, conversation.Messages)
		}
		if c.Error != "" && err != nil || c.Error == "" && err == nil && got == c.Text {
			result.Passed++
			continue
		}
		result.fail("%s, %s: renders another text (error %v)", c.Tpl, c.Conv, err)
	}
	return result
}

// cutFinal ends the text after the last message's own, as transformers does.
func cutFinal(text string, messages json.RawMessage) string {
	var list []struct{ Content string }
	if json.Unmarshal(messages, &list) != nil || len(list) == 0 {
		return text
	}
	final := list[len(list)-1].Content
	at := strings.LastIndex(text, strings.TrimSpace(final))
	if at < 0 {
		return text
	}
	left := strings.TrimLeft(final, " \t\r\n")
	if strings.HasPrefix(text[at:], left) {
		return text[:at+len(left)]
	}
	return text[:at+len(strings.TrimSpace(final))]
}
