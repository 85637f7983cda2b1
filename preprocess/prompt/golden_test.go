package prompt

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"signalbox/internal/golden"
)

type recorded struct {
	Tpl, Conv    string
	Status       int
	SameAsPython bool `json:"same_as_python"`
	Prompt       string
	Text         string
}

func lines(t *testing.T, path string) []recorded {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(reader)
	var list []recorded
	for {
		var value recorded
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, value)
	}
}

type body struct {
	Messages, Tools      json.RawMessage
	Args                 json.RawMessage `json:"chat_template_args"`
	AddGenerationPrompt  *bool           `json:"add_generation_prompt"`
	ContinueFinalMessage bool            `json:"continue_final_message"`
	ReasoningEffort      string          `json:"reasoning_effort"`
}

// A prompt that differs from the one that the rest of a fleet makes is looked for under another cache identity.
func TestPromptsAreThoseOfTheLiveFrontend(t *testing.T) {
	dir, models := golden.Dir(t, "chat_templates"), golden.Models(t)
	read := func(name string, into any) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var tokens map[string]map[string]*string
	read("templates.json", &tokens)
	var bodies map[string]body
	read("http_bodies.json", &bodies)
	python := make(map[string]string)
	for _, r := range lines(t, filepath.Join(dir, "render.jsonl.gz")) {
		python[r.Tpl+" "+r.Conv] = r.Text
	}
	formatters := make(map[string]*Formatter)
	passed, failed := 0, 0
	for _, want := range lines(t, filepath.Join(dir, "dynamo.jsonl.gz")) {
		f := formatters[want.Tpl]
		if f == nil {
			source, err := os.ReadFile(filepath.Join(models, "tpl", want.Tpl+".jinja"))
			if err != nil {
				t.Fatal(err)
			}
			special := make(map[string]string)
			for name, token := range tokens[want.Tpl] {
				if token != nil {
					special[name] = *token
				}
			}
			f, err = New(string(source), special, Options{Now: func() time.Time { return time.Date(2026, 11, 30, 12, 34, 56, 0, time.Local) }})
			if err != nil {
				t.Errorf("%s: %v", want.Tpl, err)
				continue
			}
			formatters[want.Tpl] = f
		}
		b := bodies[want.Conv]
		if string(b.Tools) == "[]" {
			continue // refused before anything is rendered
		}
		got, err := f.Render(Request{Messages: b.Messages, Tools: b.Tools, Arguments: b.Args, ReasoningEffort: b.ReasoningEffort,
			NoGenerationPrompt: b.AddGenerationPrompt != nil && !*b.AddGenerationPrompt, ContinueFinalMessage: b.ContinueFinalMessage})
		prompt := want.Prompt
		if want.SameAsPython {
			prompt = python[want.Tpl+" "+want.Conv]
		}
		if want.Status != 200 && err != nil || want.Status == 200 && err == nil && got == prompt {
			passed++
			continue
		}
		if failed++; failed <= 400 {
			t.Logf("%s, %s: status %d, error %v\n%s", want.Tpl, want.Conv, want.Status, err, difference(got, prompt))
		}
	}
	t.Logf("%d passed, %d failed", passed, failed)
	if failed > 0 || passed == 0 {
		t.Errorf("%d of %d prompts differ", failed, passed+failed)
	}
}

func difference(got, want string) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	from := max(0, at-40)
	cut := func(s string) string { return s[min(from, len(s)):min(from+120, len(s))] }
	return "got  …" + cut(got) + "\nwant …" + cut(want)
}
