package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRenderReadsWhatAPromptDependsOn(t *testing.T) {
	for _, c := range []struct {
		body        string
		tools       bool
		constrained bool
		named       bool
	}{
		{`{"messages":[],"tools":[{}]}`, true, false, false},
		{`{"messages":[],"tools":[{}],"tool_choice":"none"}`, false, false, false},
		{`{"messages":[],"tools":[{}],"tool_choice":"required"}`, true, true, false},
		{`{"messages":[],"tools":[{}],"tool_choice":{"type":"function","function":{"name":"f"}}}`, true, true, true},
		{`{"messages":[],"response_format":{"type":"json_object"}}`, false, true, false},
		{`{"messages":[],"response_format":{"type":"text"}}`, false, false, false},
	} {
		request, err := readRenderRequest(strings.NewReader(c.body))
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		if (request.Tools != nil) != c.tools || request.Constrained != c.constrained || request.NamedTool != c.named {
			t.Errorf("%s: tools %q, constrained %v, named %v", c.body, request.Tools, request.Constrained, request.NamedTool)
		}
	}
	if _, err := readRenderRequest(strings.NewReader(`{}`)); err == nil {
		t.Error("a body without messages was read")
	}
}

func TestRenderTakesAModelDirectoryOrATemplate(t *testing.T) {
	directory := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	body := `{"messages":[{"role":"user","content":"x"}]}`
	render := func(o renderOptions, path string) string {
		t.Helper()
		formatter, err := o.formatter(path)
		if err != nil {
			t.Fatal(err)
		}
		request, err := readRenderRequest(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := formatter.Render(request)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	write("tokenizer_config.json", `{"bos_token":{"content":"<s>"},"chat_template":"config {{ bos_token }}{{ messages[0].content }}"}`)
	if got := render(renderOptions{}, directory); got != "config <s>x" {
		t.Errorf("from tokenizer_config.json: %q", got)
	}
	write("chat_template.json", `{"chat_template":"json {{ messages[0].content }}"}`)
	if got := render(renderOptions{}, directory); got != "json x" {
		t.Errorf("from chat_template.json: %q", got)
	}
	write("chat_template.jinja", `jinja {{ bos_token }}{{ messages[0].content }}`)
	if got := render(renderOptions{}, directory); got != "jinja <s>x" {
		t.Errorf("from chat_template.jinja: %q", got)
	}
	file := write("own.jinja", `own {{ bos_token }}{{ messages[0].content }}`)
	if got := render(renderOptions{template: file}, directory); got != "own <s>x" {
		t.Errorf("from a template of one's own: %q", got)
	}
	if got := render(renderOptions{bos: "<b>"}, file); got != "own <b>x" {
		t.Errorf("from a file alone: %q", got)
	}
}
