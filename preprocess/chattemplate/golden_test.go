package chattemplate

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"signalbox/internal/golden"
)

func readLines[T any](t *testing.T, path string) []T {
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
	var list []T
	for {
		var value T
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, value)
	}
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// The rendered text is the cache identity: one byte off sends every request of a conversation to a worker without its prefix.
func TestRendersAsTheReferenceDoes(t *testing.T) {
	dir, models := golden.Dir(t, "chat_templates"), golden.Models(t)
	var tokens map[string]struct {
		BOS *string `json:"bos_token"`
		EOS *string `json:"eos_token"`
	}
	readJSON(t, filepath.Join(dir, "templates.json"), &tokens)
	var conversations []struct {
		ID                   string
		Messages, Tools      json.RawMessage
		AddGenerationPrompt  bool `json:"add_generation_prompt"`
		ContinueFinalMessage bool `json:"continue_final_message"`
		Kwargs               json.RawMessage
	}
	readJSON(t, filepath.Join(dir, "conversations.json"), &conversations)
	now := func() time.Time { return time.Date(2026, 11, 30, 12, 34, 56, 0, time.Local) }
	templates := make(map[string]*Template)
	byID := make(map[string]int)
	for i, c := range conversations {
		byID[c.ID] = i
	}
	passed, failed := 0, 0
	for _, want := range readLines[struct {
		Tpl, Conv, Text, Error string
	}](t, filepath.Join(dir, "render.jsonl.gz")) {
		template := templates[want.Tpl]
		if template == nil {
			source, err := os.ReadFile(filepath.Join(models, "tpl", want.Tpl+".jinja"))
			if err != nil {
				t.Fatal(err)
			}
			if template, err = Compile(string(source), Options{Now: now}); err != nil {
				t.Errorf("%s: %v", want.Tpl, err)
				continue
			}
			templates[want.Tpl] = template
		}
		c := conversations[byID[want.Conv]]
		if c.ContinueFinalMessage {
			continue // the cut is package prompt's
		}
		variables := NewDict(8)
		set := func(name string, raw json.RawMessage) {
			value, err := ParseJSON(raw)
			if err != nil {
				t.Fatal(err)
			}
			variables.Set(name, value)
		}
		set("messages", c.Messages)
		if len(c.Tools) > 0 {
			set("tools", c.Tools)
		} else {
			variables.Set("tools", None)
		}
		if bos := tokens[want.Tpl].BOS; bos != nil {
			variables.Set("bos_token", String(*bos))
		}
		if eos := tokens[want.Tpl].EOS; eos != nil {
			variables.Set("eos_token", String(*eos))
		}
		variables.Set("add_generation_prompt", Bool(c.AddGenerationPrompt))
		if len(c.Kwargs) > 0 {
			kwargs, err := ParseJSON(c.Kwargs)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range kwargs.Entries() {
				variables.Set(entry.Key.Str(), entry.Value)
			}
		}
		got, err := template.Render(variables.Value())
		switch {
		case want.Error != "" && err != nil, want.Error == "" && err == nil && got == want.Text:
			passed++
		default:
			if failed++; failed <= 12 {
				t.Errorf("%s, %s: error %v (want %q)\n%s", want.Tpl, want.Conv, err, want.Error, firstDifference(got, want.Text))
			}
		}
	}
	t.Logf("%d passed, %d failed", passed, failed)
	if failed > 0 || passed == 0 {
		t.Errorf("%d of %d cases differ", failed, passed+failed)
	}
}

func firstDifference(got, want string) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	from := max(0, at-60)
	cut := func(s string) string {
		s = s[min(from, len(s)):]
		return strings.ToValidUTF8(s[:min(160, len(s))], "?")
	}
	return "got  …" + cut(got) + "\nwant …" + cut(want)
}
