package settings

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// Help writes the command's flags, grouped, with their defaults and variables.
func (f *Frontend) Help(w io.Writer) { f.table.help(w) }

// FrontendHelp writes the help of the frontend command.
func FrontendHelp(w io.Writer) { declareFrontend().table.help(w) }

// WorkerHelp writes the help of the worker command.
func WorkerHelp(w io.Writer) { declareWorker().table.help(w) }

// DemoHelp writes the help of the demo command.
func DemoHelp(w io.Writer) { declareDemo().table.help(w) }

func (t *table) help(w io.Writer) {
	fmt.Fprintf(w, "usage: signalbox %s [flags]\n", t.command)
	group := ""
	for _, s := range t.settings {
		if s.hidden {
			continue
		}
		if s.group != group {
			group = s.group
			fmt.Fprintf(w, "\n%s\n", group)
		}
		fmt.Fprintf(w, "  %s\n      %s%s\n", s.heading(), s.help, s.footnote())
	}
	fmt.Fprint(w, "\n  --help\n      Print this.\n  --version\n      Print the version.\n")
}

// heading is the setting's spellings.
func (s *setting) heading() string {
	if s.flag == "" {
		return s.env[0]
	}
	text := "--" + s.flag
	if s.short != 0 {
		text = "-" + string(s.short) + ", " + text
	}
	if s.isSwitch() {
		text += " | --no-" + s.flag
	}
	return text
}

func (s *setting) footnote() string {
	var notes []string
	if s.flag != "" && len(s.env) > 0 {
		notes = append(notes, "env "+s.env[0])
	}
	if value := s.value.fallback(); value != nil && value != "" {
		notes = append(notes, fmt.Sprintf("default %v", value))
	}
	if _, isText := s.value.fallback().(bool); !isText && s.value.allowed() != "text" {
		notes = append(notes, s.value.allowed())
	}
	if len(notes) == 0 {
		return ""
	}
	return " (" + strings.Join(notes, "; ") + ")"
}

// Dump writes the resolved configuration: one JSON object with the values and where each came from.
func (f *Frontend) Dump(w io.Writer, version string) error {
	config := make(map[string]any)
	origins := make(map[string]string)
	for _, s := range f.table.settings {
		if s.ignored != "" {
			continue
		}
		shown := s.value.show()
		if s.secret && shown != nil && shown != "" {
			shown = redacted
		}
		if shown == "" {
			shown = nil
		}
		config[s.name] = shown
		origins[s.name] = s.origin.String()
	}
	environment := make(map[string]string)
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "DYN_") || strings.HasPrefix(name, "SIGNALBOX_") {
			environment[name] = value
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	return encoder.Encode(map[string]any{"config": config, "origin": origins, "signalbox_version": version, "environment": environment,
		"runtime_info": map[string]any{"command_line_args": os.Args}})
}

// Markdown writes the configuration page: every setting of every command.
func Markdown(w io.Writer) {
	fmt.Fprint(w, "# Configuration\n\nEvery setting, generated from package `settings` (`make generate`). A flag beats a variable, a variable beats the default.\n")
	for _, t := range []*table{declareFrontend().table, declareWorker().table, declareDemo().table} {
		fmt.Fprintf(w, "\n## `signalbox %s`\n", t.command)
		group := ""
		for _, s := range t.settings {
			if s.group != group {
				group = s.group
				fmt.Fprintf(w, "\n### %s\n\n| flag | variable | default | allowed | meaning |\n|---|---|---|---|---|\n", group)
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", code(s.flagCell()), code(strings.Join(append(append([]string{}, s.env...), s.oldEnv...), " ")), code(shownDefault(s)), cell(s.value.allowed()), cell(s.help))
		}
	}
}

func (s *setting) flagCell() string {
	var all []string
	for _, spelling := range s.spellings() {
		all = append(all, "--"+spelling)
	}
	if s.isSwitch() && s.flag != "" {
		all = append(all, "--no-"+s.flag)
	}
	return strings.Join(all, " ")
}

func shownDefault(s *setting) string {
	value := s.value.fallback()
	if value == nil || value == "" {
		return ""
	}
	return fmt.Sprint(value)
}

func code(text string) string {
	if text == "" || text == "[]" {
		return "–"
	}
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = "`" + word + "`"
	}
	return strings.Join(words, " ")
}

func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }
