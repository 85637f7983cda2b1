package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// blockTokens is the length of the trace's blocks.
const blockTokens = 512

// vocabulary bounds the token ids; they belong to the built-in model.
const vocabulary = 4000

// request is a line of the trace. Equal ids are equal blocks behind equal prefixes.
type request struct {
	Timestamp    int64    `json:"timestamp"` // ms since the start
	InputLength  int      `json:"input_length"`
	OutputLength int      `json:"output_length"`
	Blocks       []uint64 `json:"hash_ids"`
}

func (r request) at() time.Duration { return time.Duration(r.Timestamp) * time.Millisecond }

// tokens makes a prompt whose blocks are equal where the trace's are.
func (r request) tokens() []uint32 {
	tokens := make([]uint32, 0, len(r.Blocks)*blockTokens)
	for _, id := range r.Blocks {
		state := id*0x9e3779b97f4a7c15 + 1
		for range blockTokens {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
			tokens = append(tokens, uint32(state%vocabulary))
		}
	}
	return tokens[:min(len(tokens), r.InputLength)]
}

func readTrace(path string, until time.Duration) ([]request, error) {
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
	var list []request
	for {
		var r request
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, len(list)+1, err)
		}
		if r.at() > until {
			return list, nil
		}
		list = append(list, r)
	}
}

// bound is the part of all prompt tokens that stand in blocks which came before.
func bound(requests []request) float64 {
	seen := make(map[uint64]bool)
	known, all := 0, 0
	for _, r := range requests {
		all += r.InputLength
		for i, id := range r.Blocks {
			whole := (i+1)*blockTokens <= r.InputLength
			if seen[id] && whole {
				known += blockTokens
			}
			seen[id] = true
		}
	}
	return float64(known) / float64(max(all, 1))
}
