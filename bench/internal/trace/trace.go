// Package trace reads the recorded hour of a chat service that measurements replay: the Mooncake conversation trace.
package trace

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// BlockTokens is the length of the trace's blocks, in tokens.
const BlockTokens = 512

// Request is a line of the trace. Equal block ids are equal blocks behind equal prefixes.
type Request struct {
	Timestamp    int64    `json:"timestamp"` // ms since the start
	InputLength  int      `json:"input_length"`
	OutputLength int      `json:"output_length"`
	Blocks       []uint64 `json:"hash_ids"`
}

// At returns when the request came, since the start of the trace.
func (r Request) At() time.Duration { return time.Duration(r.Timestamp) * time.Millisecond }

// DefaultPath is where the trace lies: with the recorded answers in $SIGNALBOX_GOLDEN, else beside the checkout.
func DefaultPath() string {
	golden := os.Getenv("SIGNALBOX_GOLDEN")
	if golden == "" {
		golden = filepath.Join("..", "shared", "golden")
	}
	return filepath.Join(golden, "traces", "conversation_trace.jsonl.gz")
}

// Read reads gzipped JSON lines.
func Read(path string) ([]Request, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	decoder := json.NewDecoder(reader)
	var list []Request
	for {
		var r Request
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, len(list)+1, err)
		}
		list = append(list, r)
	}
}
