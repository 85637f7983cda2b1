package verify

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"signalbox/kvindex"
)

// indexScenario is a recorded life of a prefix index.
type indexScenario struct {
	Name string
	// Class "quirk" marks answers that are known to be wrong; the right ones are recorded beside them.
	Class string
	Steps []indexStep
}

type indexStep struct {
	Op       string
	Event    *recordedEvent
	WorkerID uint64 `json:"worker_id"`
	Hashes   []uint64
	Tiered   bool
	Expect   json.RawMessage
	// Exact is the right answer where Expect is what the recorded index made of it.
	Exact json.RawMessage
}

// recordedEvent is a KV event in JSON.
type recordedEvent struct {
	WorkerID        uint64 `json:"worker_id"`
	StorageTier     string `json:"storage_tier"`
	ResidencyDomain string `json:"residency_domain"`
	Event           struct {
		Data   json.RawMessage
		DPRank uint32 `json:"dp_rank"`
	}
}

// recordedMatch is what one rank holds.
type recordedMatch struct {
	WorkerID uint64 `json:"worker_id"`
	DPRank   uint32 `json:"dp_rank"`
	Blocks   uint32 `json:"blocks"`
}

// recordedEdge is one block that a rank holds.
type recordedEdge struct {
	WorkerID   uint64  `json:"worker_id"`
	DPRank     uint32  `json:"dp_rank"`
	ParentHash *uint64 `json:"parent_hash"`
	BlockHash  uint64  `json:"block_hash"`
	TokensHash uint64  `json:"tokens_hash"`
}

// indexErrors are the recorded texts of what was wrong with an event.
var indexErrors = map[string]error{
	"ok":                          nil,
	"Failed to find parent block": kvindex.ErrUnknownParent,
	"Failed to find block":        kvindex.ErrUnknownBlock,
	"Invalid block sequence":      kvindex.ErrSelfParent,
}

// Indexer checks recorded lives of a prefix index: one file, or all in a folder. The recorded lower tiers know each block under one
// hash only, whichever rank sent it: see [kvindex.Options].FirstNameWins, which matters to nothing else that is recorded. Scenarios
// without lower tiers must pass without it, too, on an index of several shards.
func Indexer(path string) Result { return jsonFiles(path, indexerFile) }

func indexerFile(path string) Result {
	var result Result
	var file struct{ Scenarios []indexScenario }
	if err := readJSON(path, &file); err != nil {
		result.fail("%s: %v", path, err)
		return result
	}
	if len(file.Scenarios) == 0 {
		result.fail("%s holds no scenarios", path)
	}
	for _, scenario := range file.Scenarios {
		err := runScenario(scenario, kvindex.Options{Replay: true, FirstNameWins: true})
		if err == nil && !slices.ContainsFunc(scenario.Steps, func(s indexStep) bool { return s.Tiered }) {
			err = runScenario(scenario, kvindex.Options{Replay: true, Shards: 4})
		}
		if err != nil {
			result.fail("%s, %s: %v", filepath.Base(path), scenario.Name, err)
			continue
		}
		result.Passed++
	}
	return result
}

func runScenario(scenario indexScenario, options kvindex.Options) error {
	index, err := kvindex.New(options)
	if err != nil {
		return err
	}
	if len(scenario.Steps) == 0 {
		return errors.New("no steps")
	}
	run := indexRun{index: index, quirk: scenario.Class == "quirk"}
	for i, step := range scenario.Steps {
		if err := run.step(step); err != nil {
			return fmt.Errorf("%d shards, step %d (%s): %w", options.Shards, i, step.Op, err)
		}
	}
	return nil
}

// indexRun is a scenario under way.
type indexRun struct {
	index *kvindex.Index
	quirk bool
	// refused are the tiers of events that never reach an index; the recorded one lists those tiers all the same.
	refused [kvindex.Tiers]bool
}

func (r *indexRun) step(step indexStep) error {
	expect := step.Expect
	if step.Exact != nil {
		expect = step.Exact
	}
	switch step.Op {
	case "event":
		return r.apply(step)
	case "remove_worker":
		r.index.RemoveWorker(step.WorkerID)
		return nil
	case "query":
		if step.Tiered {
			return r.queryTiers(step.Hashes, expect)
		}
		return queryDevice(r.index, step.Hashes, expect)
	case "dump":
		if r.quirk && step.Exact == nil {
			return nil // what the recorded index had made of it, and no right answer beside it
		}
		return dumpDevice(r.index, expect)
	}
	return errors.New("steps of this kind cannot be run")
}

func (r *indexRun) apply(step indexStep) error {
	if step.Event == nil {
		return errors.New("the step has no event")
	}
	var text string
	if err := json.Unmarshal(step.Expect, &text); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	want, known := indexErrors[text]
	if !known {
		return fmt.Errorf("recorded error %q is not known", text)
	}
	event, err := step.Event.convert()
	if err != nil {
		return err
	}
	// Blocks of a cache owner are no worker's: such events never reach an index.
	if step.Event.ResidencyDomain == "cache_owner" {
		r.refused[event.Tier] = true
		return nil
	}
	if got := r.index.Apply(event); !errors.Is(got, want) {
		return fmt.Errorf("the event comes to %v, recorded is %q", got, text)
	}
	return nil
}

func (r *recordedEvent) convert() (kvindex.Event, error) {
	event := kvindex.Event{Rank: kvindex.Rank{WorkerID: r.WorkerID, DPRank: r.Event.DPRank}}
	var err error
	if event.Tier, err = kvindex.ParseTier(r.StorageTier); err != nil {
		return event, err
	}
	if string(r.Event.Data) == `"cleared"` {
		event.Op = kvindex.Cleared
		return event, nil
	}
	var data struct {
		Stored *struct {
			ParentHash *uint64 `json:"parent_hash"`
			Blocks     []struct {
				BlockHash  uint64 `json:"block_hash"`
				TokensHash uint64 `json:"tokens_hash"`
			}
		}
		Removed *struct {
			BlockHashes []uint64 `json:"block_hashes"`
		}
	}
	if err := json.Unmarshal(r.Event.Data, &data); err != nil {
		return event, fmt.Errorf("event data: %w", err)
	}
	switch {
	case data.Stored != nil:
		event.Op = kvindex.Stored
		if data.Stored.ParentHash != nil {
			event.HasParent, event.Parent = true, *data.Stored.ParentHash
		}
		for _, block := range data.Stored.Blocks {
			event.Blocks = append(event.Blocks, kvindex.Block{Hash: block.BlockHash, Local: block.TokensHash})
		}
	case data.Removed != nil:
		event.Op, event.Hashes = kvindex.Removed, data.Removed.BlockHashes
	default:
		return event, fmt.Errorf("event data %s is neither stored nor removed nor cleared", r.Event.Data)
	}
	return event, nil
}

// matchesOf lists what ranks hold in one tier, in order.
func matchesOf(matches *kvindex.Matches, tier kvindex.Tier) []recordedMatch {
	list := []recordedMatch{}
	for _, match := range matches.Ranks {
		if match.Blocks[tier] > 0 {
			list = append(list, recordedMatch{match.Rank.WorkerID, match.Rank.DPRank, match.Blocks[tier]})
		}
	}
	slices.SortFunc(list, compareMatches)
	return list
}

func compareMatches(a, b recordedMatch) int {
	return cmp.Or(cmp.Compare(a.WorkerID, b.WorkerID), cmp.Compare(a.DPRank, b.DPRank), cmp.Compare(a.Blocks, b.Blocks))
}

func sameMatches(what string, got, want []recordedMatch) error {
	want = slices.DeleteFunc(slices.Clone(want), func(m recordedMatch) bool { return m.Blocks == 0 })
	slices.SortFunc(want, compareMatches)
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s: ranks hold %+v, recorded is %+v", what, got, want)
	}
	return nil
}

func queryDevice(index *kvindex.Index, hashes []uint64, expect json.RawMessage) error {
	var want []recordedMatch
	if err := json.Unmarshal(expect, &want); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	var matches kvindex.Matches
	index.Find(&matches, kvindex.Query{Locals: hashes, DeviceOnly: true})
	return sameMatches("device", matchesOf(&matches, kvindex.Device), want)
}

func (r *indexRun) queryTiers(hashes []uint64, expect json.RawMessage) error {
	var want struct {
		Device    []recordedMatch
		LowerTier map[string][]recordedMatch `json:"lower_tier"`
	}
	if err := json.Unmarshal(expect, &want); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	var matches kvindex.Matches
	r.index.Find(&matches, kvindex.Query{Locals: hashes})
	if err := sameMatches("device", matchesOf(&matches, kvindex.Device), want.Device); err != nil {
		return err
	}
	for tier := kvindex.HostPinned; tier < kvindex.Tiers; tier++ {
		expected, listed := want.LowerTier[tier.String()]
		if seen := r.index.TierSeen(tier); seen != listed && !r.refused[tier] {
			return fmt.Errorf("tier %s: blocks were ever stored there: %t, recorded is %t", tier, seen, listed)
		}
		if err := sameMatches(tier.String(), matchesOf(&matches, tier), expected); err != nil {
			return err
		}
	}
	return nil
}

// dumpDevice compares all that ranks hold on their devices, block by block.
func dumpDevice(index *kvindex.Index, expect json.RawMessage) error {
	var want []recordedEdge
	if err := json.Unmarshal(expect, &want); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	var got []recordedEdge
	for _, rank := range index.Ranks() {
		for event := range index.Events(rank) {
			if event.Tier != kvindex.Device {
				continue
			}
			var parent *uint64
			if event.HasParent {
				parent = &event.Parent
			}
			for _, block := range event.Blocks {
				got = append(got, recordedEdge{rank.WorkerID, rank.DPRank, parent, block.Hash, block.Local})
				parent = &block.Hash
			}
		}
	}
	render := func(edges []recordedEdge) []string {
		lines := []string{}
		for _, edge := range edges {
			line, _ := json.Marshal(edge)
			lines = append(lines, string(line))
		}
		slices.Sort(lines)
		return lines
	}
	if got, want := render(got), render(want); !slices.Equal(got, want) {
		return fmt.Errorf("ranks hold %v, recorded is %v", got, want)
	}
	return nil
}
