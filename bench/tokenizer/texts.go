package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/text/language/display"
)

// kindOfText is a file of prompts of one kind.
type kindOfText struct {
	name, file string
	bytes      int // of the measured part
}

// promptBytes is the length of one prompt.
const promptBytes = 16 << 10

// writeTexts writes the texts to measure. They come from what a Go installation has: the documentation and sources of Go and of the
// modules that signalbox uses, and names in some two hundred languages.
func writeTexts(dir string, size int) ([]kindOfText, error) {
	root, err := goVariable("GOROOT")
	if err != nil {
		return nil, err
	}
	modules, err := goVariable("GOMODCACHE")
	if err != nil {
		return nil, err
	}
	var kinds []kindOfText
	for _, source := range []struct {
		name string
		read func(limit int) (string, error)
	}{
		{"documents", func(limit int) (string, error) { return readFiles(modules, ".md", limit) }},
		{"code", func(limit int) (string, error) { return readFiles(filepath.Join(root, "src"), ".go", limit) }},
		{"multilingual", func(limit int) (string, error) { return names(limit), nil }},
	} {
		text, err := source.read(2 * size)
		if err != nil {
			return nil, err
		}
		prompts := cut(text)
		var parts struct{ Warm, Measured []string }
		kind := kindOfText{name: source.name, file: filepath.Join(dir, source.name+".json")}
		for i, prompt := range prompts { // every other one, so that both parts are alike
			if i%2 == 0 {
				parts.Warm = append(parts.Warm, prompt)
				continue
			}
			parts.Measured = append(parts.Measured, prompt)
			kind.bytes += len(prompt)
		}
		encoded, err := json.Marshal(parts)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(kind.file, encoded, 0o600); err != nil {
			return nil, err
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

func goVariable(name string) (string, error) {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("go env %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// readFiles joins files below a folder whose names end in suffix, up to limit bytes. Of many files it takes some from all over.
func readFiles(folder, suffix string, limit int) (string, error) {
	var paths []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, suffix) {
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	const longest = 64 << 10 // of one file: change logs and tables would make up most of it
	var b strings.Builder
	for stride := 7; len(paths) > 0 && b.Len() < limit; {
		var rest []string
		for i, path := range paths {
			if i%stride != 0 {
				rest = append(rest, path)
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			if len(text) <= longest && b.Len() < limit {
				b.WriteString(strings.ToValidUTF8(string(text), "\uFFFD"))
			}
		}
		paths = rest
	}
	return b.String()[:min(limit, b.Len())], nil
}

// names lists the world's languages and regions in the words of each language.
func names(limit int) string {
	var b strings.Builder
	supported := display.Supported.Tags()
	for _, in := range supported {
		separator := ", "
		if script, _ := in.Script(); script.String() == "Hans" || script.String() == "Hant" || script.String() == "Jpan" {
			separator = "、"
		}
		languages, regions := display.Languages(in), display.Regions(in)
		if languages == nil || regions == nil {
			continue
		}
		for i, tag := range supported {
			region, _ := tag.Region()
			for _, name := range []string{languages.Name(tag), regions.Name(region)} {
				if name != "" {
					b.WriteString(name + separator)
				}
			}
			if i%12 == 11 {
				b.WriteString("\n")
			}
		}
		b.WriteString("\n\n")
	}
	// The languages of one script are neighbours; take from each part.
	all := cut(b.String())
	var mixed strings.Builder
	for offset := range 16 {
		for i := offset; i < len(all); i += 16 {
			if mixed.Len() < limit {
				mixed.WriteString(all[i])
			}
		}
	}
	return mixed.String()
}

// cut makes prompts of about the same length, at line ends.
func cut(text string) []string {
	var prompts []string
	for len(text) > promptBytes {
		at := strings.LastIndexByte(text[:promptBytes], '\n') + 1
		if at == 0 {
			at = promptBytes
			for at > 0 && text[at]&0xC0 == 0x80 {
				at--
			}
		}
		prompts = append(prompts, text[:at])
		text = text[at:]
	}
	return append(prompts, strings.ToValidUTF8(text, ""))
}
