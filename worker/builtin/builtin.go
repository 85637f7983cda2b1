// Package builtin holds a small model's tokenizer, chat template and configuration, so that the simulated engine can be tried
// without any download. The vocabulary has 4096 byte-level pieces of English and Go; the model knows nothing.
package builtin

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed *.json
var files embed.FS

// Write puts the model's files into the directory, which must exist.
func Write(directory string) error {
	entries, err := files.ReadDir(".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(directory, entry.Name()), text, 0o644); err != nil {
			return fmt.Errorf("write the built-in model: %w", err)
		}
	}
	return nil
}

// Words returns the ids of the whole English words in a byte-level vocabulary, sorted: what a simulated engine says. An empty
// result means that the tokenizer is of another kind.
func Words(tokenizerJSON []byte) ([]uint32, error) {
	var file struct {
		Model struct {
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(tokenizerJSON, &file); err != nil {
		return nil, fmt.Errorf("vocabulary of the simulated engine: %w", err)
	}
	var vocabulary map[string]uint32
	if json.Unmarshal(file.Model.Vocab, &vocabulary) != nil {
		return nil, nil // not a map: Unigram files list pairs
	}
	var words []uint32
	for piece, id := range vocabulary {
		if word, ok := strings.CutPrefix(piece, "Ġ"); ok && len(word) >= 3 && len(word) <= 8 && isLower(word) {
			words = append(words, id)
		}
	}
	slices.Sort(words)
	return words, nil
}

func isLower(word string) bool {
	return strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") == ""
}
