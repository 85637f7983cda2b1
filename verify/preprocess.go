package verify

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
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
