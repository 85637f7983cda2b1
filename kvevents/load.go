package kvevents

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"signalbox/internal/packed"
	"signalbox/kvindex"
)

// Figure is a number that a report may leave open.
type Figure struct {
	Value uint64
	Known bool
}

// Load is what a worker, or another router, reports about a rank on the topic kv_metrics. A figure that is not known is no news:
// the last one holds.
type Load struct {
	Rank kvindex.Rank
	// ActiveDecodeBlocks and ActivePrefillTokens are a router's view of the rank's requests.
	ActiveDecodeBlocks, ActivePrefillTokens Figure
	// UsedBlocks are the blocks in use as the engine itself counts them.
	UsedBlocks Figure
}

// ParseLoad reads the payload of a message of the topic kv_metrics.
func ParseLoad(payload []byte) (load Load, err error) {
	hasWorker := false
	rest, err := packed.Each(payload, func(key, value []byte) (rest []byte, err error) {
		figure := func(f *Figure) {
			f.Value, f.Known, rest, err = readOptional(value)
		}
		switch string(key) {
		case "worker_id":
			hasWorker = true
			load.Rank.WorkerID, rest, err = readUint(value)
		case "dp_rank":
			load.Rank.DPRank, rest, err = readRank(value)
		case "active_decode_blocks":
			figure(&load.ActiveDecodeBlocks)
		case "active_prefill_tokens":
			figure(&load.ActivePrefillTokens)
		case "kv_used_blocks":
			figure(&load.UsedBlocks)
		default:
			rest, err = msgp.Skip(value)
		}
		return rest, err
	})
	switch {
	case err != nil:
		return Load{}, fmt.Errorf("load report: %w", err)
	case !hasWorker:
		return Load{}, errors.New("load report: worker_id must be there")
	case len(rest) > 0:
		return Load{}, fmt.Errorf("load report: %d bytes after its end", len(rest))
	}
	return load, nil
}
