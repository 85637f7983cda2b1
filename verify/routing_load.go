package verify

import (
	"encoding/json"
	"fmt"
	"time"

	"signalbox/inference"
	"signalbox/router/load"
)

// routingWorker is a worker in the recordings.
type routingWorker struct {
	WorkerID            uint64   `json:"worker_id"`
	DataParallelStart   uint32   `json:"data_parallel_start_rank"`
	DataParallelSize    uint32   `json:"data_parallel_size"`
	Taints              []string `json:"taints"`
	MaxNumBatchedTokens uint64   `json:"max_num_batched_tokens"`
	TotalKVBlocks       uint64   `json:"total_kv_blocks"`
}

// routingLoad is a rank's load in the recordings.
type routingLoad struct {
	WorkerID               uint64 `json:"worker_id"`
	DPRank                 uint32 `json:"dp_rank"`
	ActivePrefillTokens    uint64 `json:"active_prefill_tokens"`
	ActiveDecodeBlocks     uint64 `json:"active_decode_blocks"`
	AdditionalActiveBlocks uint64 `json:"additional_active_blocks"`
	ActiveRequests         uint64 `json:"active_requests"`
}

func (l routingLoad) projection() load.Projection {
	return load.Projection{
		ActivePrefillTokens: l.ActivePrefillTokens, ActiveDecodeBlocks: l.ActiveDecodeBlocks,
		AdditionalActiveBlocks: l.AdditionalActiveBlocks, ActiveRequests: l.ActiveRequests,
	}
}

type activeLoadStep struct {
	Op            string
	ID            string
	AtSecs        float64  `json:"at_secs"`
	WorkerID      uint64   `json:"worker_id"`
	DPRank        uint32   `json:"dp_rank"`
	Hashes        []uint64 `json:"hashes"`
	PrefillTokens uint64   `json:"prefill_tokens"`
	ExpectedSecs  *float64 `json:"expected_secs"`
	DecayFraction *float64 `json:"decay_fraction"`
	QueryHashes   []uint64 `json:"query_hashes"`
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// verifyActiveLoad replays the life of requests and compares every rank's projection after each step.
func verifyActiveLoad(_ string, rawInput, rawExpect json.RawMessage) error {
	var input struct {
		Workers []routingWorker
		Ops     []activeLoadStep
	}
	var expect struct {
		AfterEachOp []struct {
			Error *string
			Loads []routingLoad
		} `json:"after_each_op"`
	}
	if err := decodeCase(rawInput, rawExpect, &input, &expect); err != nil {
		return err
	}
	var tracker load.Tracker
	for _, worker := range input.Workers {
		for rank := range max(1, worker.DataParallelSize) {
			tracker.Ensure(inference.Rank{WorkerID: worker.WorkerID, DPRank: worker.DataParallelStart + rank})
		}
	}
	var view load.View
	for i, step := range input.Ops {
		now := seconds(step.AtSecs)
		err := applyLoadStep(&tracker, step, now)
		want := expect.AfterEachOp[i]
		if (err != nil) != (want.Error != nil) {
			return fmt.Errorf("step %d (%s %s): error %v, recorded %v", i, step.Op, step.ID, err, want.Error)
		}
		tracker.Project(&view, step.QueryHashes, now)
		rows := 0
		tracker.Ranks(func(int32, inference.Rank) bool { rows++; return true })
		if rows != len(want.Loads) {
			return fmt.Errorf("step %d: %d ranks have rows, recorded %d", i, rows, len(want.Loads))
		}
		for _, row := range want.Loads {
			at, known := tracker.Row(inference.Rank{WorkerID: row.WorkerID, DPRank: row.DPRank})
			if got := view.At(at); !known || got != row.projection() {
				return fmt.Errorf("step %d (%s %s): worker %d rank %d is %+v, recorded %+v", i, step.Op, step.ID, row.WorkerID, row.DPRank, got, row.projection())
			}
		}
	}
	return nil
}

func applyLoadStep(tracker *load.Tracker, step activeLoadStep, now time.Duration) error {
	handle, _ := tracker.Lookup(step.ID)
	switch step.Op {
	case "add":
		booking := load.Booking{
			ID: step.ID, Rank: inference.Rank{WorkerID: step.WorkerID, DPRank: step.DPRank},
			Hashes: step.Hashes, PrefillTokens: step.PrefillTokens,
		}
		if step.ExpectedSecs != nil {
			booking.Expected, booking.Modelled = seconds(*step.ExpectedSecs), true
		}
		_, err := tracker.Add(booking, now)
		return err
	case "prefill_complete":
		return tracker.PrefillComplete(handle, now)
	case "output_block":
		fraction := -1.0
		if step.DecayFraction != nil {
			fraction = *step.DecayFraction
		}
		return tracker.OutputBlock(handle, fraction)
	case "free":
		tracker.Free(handle, now)
	case "look":
	default:
		return fmt.Errorf("no step is called %q", step.Op)
	}
	return nil
}
