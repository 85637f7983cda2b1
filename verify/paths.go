package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// runners find the runner of a recording by the folder that it lies in.
var runners = map[string]Runner{
	"hashing":        Hashing,
	"indexer":        Indexer,
	"routing":        Routing,
	"tokenizers":     Tokenizers,
	"chat_templates": ChatTemplates,
	"parsers":        Parsers,
	"kv_services":    KVServices,
}

// Kinds lists the kinds of recordings that can be run.
func Kinds() []string {
	kinds := make([]string, 0, len(runners))
	for kind := range runners {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// Paths runs every recording under the paths: a folder of one kind, a file in one, or a folder of such folders. A path of a kind
// that is not known, or that cannot be read, is an error.
func Paths(paths []string) (Result, error) {
	var sum Result
	for _, path := range paths {
		result, err := onePath(path)
		if err != nil {
			return sum, err
		}
		sum.add(result)
	}
	return sum, nil
}

func onePath(path string) (Result, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return Result{}, err
	}
	info, err := os.Stat(absolute)
	if err != nil {
		return Result{}, err
	}
	if run := runners[filepath.Base(absolute)]; run != nil && info.IsDir() {
		return run(absolute), nil
	}
	if !info.IsDir() {
		if run := runners[filepath.Base(filepath.Dir(absolute))]; run != nil {
			return run(absolute), nil
		}
		return Result{}, fmt.Errorf("%s: recordings of kind %q cannot be run; known are %v", path, filepath.Base(filepath.Dir(absolute)), Kinds())
	}
	entries, err := os.ReadDir(absolute)
	if err != nil {
		return Result{}, err
	}
	var sum Result
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		if runners[entry.Name()] == nil {
			return sum, fmt.Errorf("%s: recordings of kind %q cannot be run; known are %v", path, entry.Name(), Kinds())
		}
		sum.add(runners[entry.Name()](filepath.Join(absolute, entry.Name())))
	}
	return sum, nil
}
