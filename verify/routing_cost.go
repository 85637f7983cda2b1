package verify

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/cost"
	"signalbox/router/kv"
	"signalbox/router/selection"
)

type rankName struct {
	WorkerID uint64 `json:"worker_id"`
	DPRank   uint32 `json:"dp_rank"`
}

func (r rankName) rank() inference.Rank { return inference.Rank(r) }

type scoreInput struct {
	Config              json.RawMessage
	SelectorLabel       string `json:"selector_label"`
	BlockSize           int    `json:"block_size"`
	Workers             []routingWorker
	OverloadedWorkerIDs []uint64  `json:"overloaded_worker_ids"`
	AvailableWorkerIDs  *[]uint64 `json:"available_worker_ids"`
	Loads               []routingLoad
	Overlap             []scoreOverlap
	Request             scoreRequest
}

type scoreOverlap struct {
	rankName
	Device, Disk, External uint32
	HostPinned             uint32 `json:"host_pinned"`
}

type scoreRequest struct {
	ISLTokens         int                `json:"isl_tokens"`
	TrackedBlocks     int                `json:"tracked_blocks"`
	PinnedWorker      *rankName          `json:"pinned_worker"`
	AllowedWorkerIDs  []uint64           `json:"allowed_worker_ids"`
	RequiredTaints    []string           `json:"required_taints"`
	PreferredTaints   map[string]float32 `json:"preferred_taints"`
	Override          json.RawMessage    `json:"router_config_override"`
	SharedCacheRanges [][2]uint32        `json:"shared_cache_ranges"`
}

type scoreExpect struct {
	ConfigError   string `json:"config_error"`
	OverrideError string `json:"override_error"`
	Error         string
	Costs         []struct {
		rankName
		Cost float64
	}
	Winners []rankName
	Result  *struct {
		RequiredBlocks        int     `json:"required_blocks"`
		PotentialDecodeBlocks *uint64 `json:"potential_decode_blocks"`
		PerWinner             []struct {
			rankName
			CachedTokens           int     `json:"cached_tokens"`
			EffectiveOverlapBlocks float64 `json:"effective_overlap_blocks"`
		} `json:"per_winner"`
	}
}

func message(err error) string {
	if typed, ok := err.(*inference.Error); ok {
		return typed.Message
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// verifyScore lets the built-in policy choose from a recorded situation, many times where winners tie.
func verifyScore(_ string, rawInput, rawExpect json.RawMessage) error {
	var input scoreInput
	var expect scoreExpect
	if err := decodeCase(rawInput, rawExpect, &input, &expect); err != nil {
		return err
	}
	if input.Config == nil {
		input.Config = json.RawMessage("{}")
	}
	config, err := kv.ParseConfig(input.Config)
	if message(err) != expect.ConfigError {
		return fmt.Errorf("configuration: error %q, recorded %q", message(err), expect.ConfigError)
	}
	if err != nil {
		return nil
	}
	var override *inference.RouterOverride
	if input.Request.Override != nil {
		override, err = kv.ParseOverride(input.Request.Override)
	}
	if message(err) != expect.OverrideError {
		return fmt.Errorf("override: error %q, recorded %q", message(err), expect.OverrideError)
	}
	if err != nil {
		return nil
	}
	table, err := scoreTable(&input, &config, override)
	if message(err) != expect.Error {
		return fmt.Errorf("error %q, recorded %q", message(err), expect.Error)
	}
	if err != nil {
		return nil
	}
	return compareScore(table, &config, &expect, input.Request.TrackedBlocks)
}

// scoreTable builds the policy's table the way the router does.
func scoreTable(input *scoreInput, config *kv.Config, override *inference.RouterOverride) (*selection.Table, error) {
	pool := router.NewPool(router.PoolOptions{Endpoint: "recorded"})
	var workers []router.Worker
	for _, worker := range input.Workers {
		workers = append(workers, router.Worker{
			ID: worker.WorkerID, DataParallelStart: worker.DataParallelStart, DataParallelSize: worker.DataParallelSize, Taints: worker.Taints,
		})
	}
	pool.SetWorkers(workers)
	pool.SetOverloaded(input.OverloadedWorkerIDs)
	if available := input.AvailableWorkerIDs; available != nil {
		for _, worker := range workers {
			if !slices.Contains(*available, worker.ID) {
				pool.MarkDown(worker.ID)
			}
		}
	}
	snapshot := pool.Snapshot()
	conditions := router.Conditions{Allowed: input.Request.AllowedWorkerIDs, Required: input.Request.RequiredTaints}
	if pin := input.Request.PinnedWorker; pin != nil {
		conditions.Pin = &router.Pin{WorkerID: pin.WorkerID, Rank: pin.DPRank, HasRank: true}
	}
	ranks, err := snapshot.AppendEligible(nil, &conditions)
	if err != nil {
		return nil, err
	}
	prompt := cost.Prompt{
		InputTokens: input.Request.ISLTokens, BlockSize: input.BlockSize,
		TrackPrefill: config.TrackPrefillTokens, DecodePool: input.SelectorLabel != "prefill",
	}
	if override != nil && override.TrackPrefillTokens != nil {
		prompt.TrackPrefill = *override.TrackPrefillTokens
	}
	for _, run := range input.Request.SharedCacheRanges {
		prompt.Shared = append(prompt.Shared, cost.Range{Start: run[0], End: run[1]})
	}
	table := &selection.Table{
		Prompt: prompt, Weights: config.Weights(), Override: override, Preferred: -1, Random: rand.New(rand.NewPCG(1, 2)),
	}
	preferred := router.AppendPreferred(nil, input.Request.PreferredTaints)
	for _, ref := range ranks {
		worker := &snapshot.Workers[ref.Worker]
		row := selection.Row{Rank: inference.Rank{WorkerID: worker.ID, DPRank: ref.Rank}, Worker: worker}
		if len(preferred) > 0 && conditions.Pin == nil {
			row.TaintMultiplier = cost.TaintMultiplier(worker.TaintWeight(preferred))
		}
		for _, l := range input.Loads {
			if (rankName{l.WorkerID, l.DPRank}).rank() == row.Rank {
				row.HasLoad, row.Load = true, cost.Load(l.projection())
			}
		}
		for _, overlap := range input.Overlap {
			if overlap.rank() == row.Rank {
				row.Overlap = cost.Overlap{Device: overlap.Device, Host: overlap.HostPinned, Disk: overlap.Disk + overlap.External}
			}
		}
		table.Rows = append(table.Rows, row)
	}
	return table, nil
}

func compareScore(table *selection.Table, config *kv.Config, expect *scoreExpect, tracked int) error {
	var policy selection.Default
	won := map[inference.Rank]bool{}
	for range 40 * len(expect.Winners) {
		row, err := policy.Select(table)
		if err != nil {
			return err
		}
		won[table.Rows[row].Rank] = true
	}
	if len(table.Costs) != len(expect.Costs) {
		return fmt.Errorf("%d candidates, recorded %d", len(table.Costs), len(expect.Costs))
	}
	for i, want := range expect.Costs {
		if table.Rows[i].Rank != want.rank() || !near(table.Costs[i], want.Cost, 1e-12) {
			return fmt.Errorf("candidate %+v costs %v, recorded %+v", table.Rows[i].Rank, table.Costs[i], want)
		}
	}
	for _, winner := range expect.Winners {
		if !won[winner.rank()] {
			return fmt.Errorf("%+v never won, recorded winners %+v", winner, expect.Winners)
		}
	}
	if len(won) != len(expect.Winners) {
		return fmt.Errorf("winners %v, recorded %+v", won, expect.Winners)
	}
	result := expect.Result
	if result == nil {
		return nil
	}
	blocks := cost.Blocks(table.Prompt.InputTokens, table.Prompt.BlockSize)
	if blocks != result.RequiredBlocks {
		return fmt.Errorf("the request needs %d blocks, recorded %d", blocks, result.RequiredBlocks)
	}
	weights := config.Weights()
	for _, want := range result.PerWinner {
		for i := range table.Rows {
			row := &table.Rows[i]
			if row.Rank != want.rank() {
				continue
			}
			effective := weights.Effective(row.Overlap)
			cached := cost.CachedTokens(effective, table.Prompt.BlockSize)
			if !near(effective, want.EffectiveOverlapBlocks, 1e-12) || cached != want.CachedTokens {
				return fmt.Errorf("%+v overlaps %v blocks and %d tokens, recorded %+v", row.Rank, effective, cached, want)
			}
			potential := kv.PotentialDecodeBlocks(row.Load, blocks, tracked)
			if result.PotentialDecodeBlocks != nil && potential != *result.PotentialDecodeBlocks {
				return fmt.Errorf("%+v would have %d decode blocks, recorded %d", row.Rank, potential, *result.PotentialDecodeBlocks)
			}
		}
	}
	return nil
}

// near compares with a relative tolerance.
func near(a, b, tolerance float64) bool {
	return a == b || math.Abs(a-b) <= tolerance*max(math.Abs(a), math.Abs(b))
}

// verifySoftmax compares odds, and the choice for given samples.
func verifySoftmax(_ string, rawInput, rawExpect json.RawMessage) error {
	var input struct {
		Costs       []float64
		Temperature float64
	}
	var expect struct {
		Probabilities []float64
		Picks         []struct {
			Row    int
			Sample float64
		}
	}
	if err := decodeCase(rawInput, rawExpect, &input, &expect); err != nil {
		return err
	}
	odds := cost.AppendProbabilities(nil, input.Costs, input.Temperature)
	for i, want := range expect.Probabilities {
		if !near(odds[i], want, 1e-9) && math.Abs(odds[i]-want) > 1e-300 {
			return fmt.Errorf("odds of row %d are %v, recorded %v", i, odds[i], want)
		}
	}
	for _, pick := range expect.Picks {
		if got := cost.Sample(odds, pick.Sample); got != pick.Row {
			return fmt.Errorf("sample %v picks row %d, recorded %d", pick.Sample, got, pick.Row)
		}
	}
	return nil
}

// verifyTwoTier compares the choices of dynamo-two-tier-cost-fn.
func verifyTwoTier(_ string, rawInput, rawExpect json.RawMessage) error {
	var input struct {
		BlockSize int `json:"block_size"`
		ISLTokens int `json:"isl_tokens"`
		Workers   []struct {
			WorkerID            uint64 `json:"worker_id"`
			ActiveRequests      uint64 `json:"active_requests"`
			DeviceOverlapBlocks uint32 `json:"device_overlap_blocks"`
		}
		AllowedWorkerIDs []uint64 `json:"allowed_worker_ids"`
		Parameters       json.RawMessage
	}
	var expect struct {
		AcceptableWinners []uint64 `json:"acceptable_winners"`
		ObservedWinner    uint64   `json:"observed_winner"`
	}
	if err := decodeCase(rawInput, rawExpect, &input, &expect); err != nil {
		return err
	}
	policy, err := selection.New(selection.Catalog(), "dynamo-two-tier-cost-fn", input.Parameters)
	if err != nil {
		return err
	}
	table := &selection.Table{
		Prompt: cost.Prompt{InputTokens: input.ISLTokens, BlockSize: input.BlockSize}, Preferred: -1, Random: rand.New(rand.NewPCG(1, 2)),
	}
	for _, worker := range input.Workers {
		if input.AllowedWorkerIDs != nil && !slices.Contains(input.AllowedWorkerIDs, worker.WorkerID) {
			continue
		}
		row := selection.Row{Rank: inference.Rank{WorkerID: worker.WorkerID}}
		row.HasLoad, row.Load.ActiveRequests, row.Overlap.Device = true, worker.ActiveRequests, worker.DeviceOverlapBlocks
		table.Rows = append(table.Rows, row)
	}
	observed := false
	for range 60 {
		row, err := policy.Select(table)
		if err != nil {
			return err
		}
		winner := table.Rows[row].Rank.WorkerID
		if !slices.Contains(expect.AcceptableWinners, winner) {
			return fmt.Errorf("worker %d won, recorded as acceptable: %v", winner, expect.AcceptableWinners)
		}
		observed = observed || winner == expect.ObservedWinner
	}
	if !observed {
		return fmt.Errorf("worker %d never won, but was seen to", expect.ObservedWinner)
	}
	return nil
}
