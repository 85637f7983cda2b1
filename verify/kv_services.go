package verify

import (
	"os"
	"path/filepath"

	"signalbox/kvservice/recorded"
)

// KVServices replays recorded sessions with the indexer, the slot tracker and the selection service: one file of them, or all files of
// a folder.
func KVServices(path string) (result Result) {
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if files, _ = filepath.Glob(filepath.Join(path, "*.json")); len(files) == 0 {
			result.fail("%s holds no recorded session", path)
		}
	}
	for _, file := range files {
		replayed, err := recorded.Replay(file)
		if err != nil {
			result.fail("%v", err)
			continue
		}
		result.Passed += replayed.Passed
		for _, failure := range replayed.Failures {
			result.fail("%s: %s", filepath.Base(file), failure)
		}
	}
	return result
}
