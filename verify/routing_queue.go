package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/policy"
	"signalbox/router/queue"
)

type queueOp struct {
	Op          string
	ID          string
	Arrival     float64 `json:"arrival_offset_secs"`
	Jump        float64 `json:"priority_jump"`
	Strict      uint32  `json:"strict_priority"`
	RawTokens   uint64  `json:"raw_isl_tokens"`
	Cached      uint64  `json:"cached_tokens"`
	PolicyClass string  `json:"policy_class"`
	Pinned      *struct {
		WorkerID uint64 `json:"worker_id"`
		DPRank   uint32 `json:"dp_rank"`
	} `json:"pinned_worker"`
	BlockedClasses []string `json:"blocked_classes"`
	BlockedLanes   []string `json:"blocked_lanes"`
	BlockedIDs     []string `json:"blocked_ids"`
	IDs            []string
	Count          int
}

type queueResult struct {
	Class    string
	ID       string
	Stats    [][]any
	Rejected *struct {
		Current, Limit uint64
		LimitKind      string `json:"limit_kind"`
		Message        string
	}
}

// queueReplay is a queue in the middle of a recording.
type queueReplay struct {
	profile *policy.Profile
	queue   *queue.Queue
	items   map[string]*queue.Item
}

// verifyQueue replays who waits, who goes next and who is refused.
func verifyQueue(_ string, rawInput, rawExpect json.RawMessage) error {
	var input struct {
		PolicyYAML  string `json:"policy_yaml"`
		QueuePolicy string `json:"queue_policy"`
		Threshold   *float64
		WorkerCount *int `json:"worker_count"`
		Ops         []queueOp
	}
	var expect struct{ Results []queueResult }
	if err := decodeCase(rawInput, rawExpect, &input, &expect); err != nil {
		return err
	}
	replay := queueReplay{items: make(map[string]*queue.Item)}
	if input.PolicyYAML != "" {
		config, err := policy.Parse("<inline>", []byte(input.PolicyYAML))
		if err != nil {
			return err
		}
		replay.profile = config.Profile("")
	} else {
		orders := map[string]queue.Order{"fcfs": queue.FCFS, "wspt": queue.WSPT, "lcfs": queue.LCFS}
		replay.profile = policy.Synthetic(orders[input.QueuePolicy], input.Threshold)
	}
	replay.queue = replay.profile.Queue()
	replay.queue.SetWorkers(1)
	if input.WorkerCount != nil {
		replay.queue.SetWorkers(*input.WorkerCount)
	}
	for i, op := range input.Ops {
		got, err := replay.step(op)
		if err != nil {
			return fmt.Errorf("step %d (%s %s): %w", i, op.Op, op.ID, err)
		}
		want := expect.Results[i]
		if got.Class != want.Class || got.ID != want.ID || (got.Rejected == nil) != (want.Rejected == nil) || got.Rejected != nil && *got.Rejected != *want.Rejected {
			return fmt.Errorf("step %d (%s %s): %+v, recorded %+v", i, op.Op, op.ID, got, want)
		}
		if got, want := fmt.Sprint(replay.stats()), fmt.Sprint(want.Stats); got != want {
			return fmt.Errorf("step %d (%s %s): stats %s, recorded %s", i, op.Op, op.ID, got, want)
		}
	}
	return nil
}

func (r *queueReplay) stats() [][]any {
	rows := [][]any{}
	for i := range r.queue.Classes() {
		s := r.queue.Stats(i)
		rows = append(rows, []any{r.queue.Name(i), s.Requests, s.RawTokens, s.CachedTokens, s.Deficit})
	}
	return rows
}

func (r *queueReplay) step(op queueOp) (result queueResult, err error) {
	switch op.Op {
	case "workers":
		r.queue.SetWorkers(op.Count)
	case "remove":
		for _, id := range op.IDs {
			r.queue.Remove(r.items[id])
		}
	case "pop":
		item := r.queue.Pop(func(item *queue.Item) bool { return r.blocked(op, item) })
		if item != nil {
			result.ID, result.Class = item.Value.(string), r.queue.Name(item.Class)
		}
	case "enqueue":
		class := r.profile.Select(op.PolicyClass).Class(op.RawTokens - min(op.Cached, op.RawTokens))
		item := &queue.Item{Class: class, RawTokens: op.RawTokens, CachedTokens: op.Cached, Arrival: seconds(op.Arrival), Jump: op.Jump, Strict: op.Strict, Value: op.ID}
		if op.Pinned != nil {
			item.Lane = queue.Exact(inference.Rank{WorkerID: op.Pinned.WorkerID, DPRank: op.Pinned.DPRank})
		}
		result.Class = r.queue.Name(class)
		r.items[op.ID] = item
		var limit *router.QueueLimitError
		if err := r.queue.Add(item); errors.As(err, &limit) {
			result.Rejected = &struct {
				Current, Limit uint64
				LimitKind      string `json:"limit_kind"`
				Message        string
			}{limit.Current, limit.Limit, string(limit.LimitKind), limit.Error()}
		}
	default:
		return result, fmt.Errorf("no step is called %q", op.Op)
	}
	return result, nil
}

func (r *queueReplay) blocked(op queueOp, item *queue.Item) bool {
	lane := "shared"
	if rank, exact := item.Lane.Rank(); exact {
		lane = fmt.Sprintf("%d:%d", rank.WorkerID, rank.DPRank)
	}
	return slices.Contains(op.BlockedClasses, r.queue.Name(item.Class)) || slices.Contains(op.BlockedLanes, lane) || slices.Contains(op.BlockedIDs, item.Value.(string))
}

// verifyPolicyYAML reads policy files, those with mistakes among them, and names the classes of requests.
func verifyPolicyYAML(_ string, rawInput, rawExpect json.RawMessage) error {
	type wish struct {
		PolicyClass *string `json:"policy_class"`
		Uncached    uint64  `json:"uncached_tokens"`
		Class       string
	}
	var input struct {
		PolicyYAML string `json:"policy_yaml"`
		Model      string
		Resolve    []wish
	}
	var expect struct {
		OK       bool
		Error    string
		Classes  []string
		Profiles bool `json:"has_routing_profiles"`
		Resolved []wish
	}
	if err := decodeCase(rawInput, rawExpect, &input, &expect); err != nil {
		return err
	}
	config, err := policy.Parse("<inline>", []byte(input.PolicyYAML))
	if !expect.OK {
		return sameMistake(err, expect.Error)
	}
	if err != nil {
		return err
	}
	if has := config.Root != nil || len(config.Models) > 0; has != expect.Profiles {
		return fmt.Errorf("it has profiles: %v, recorded %v", has, expect.Profiles)
	}
	profile := config.Profile(input.Model)
	if profile == nil {
		profile = policy.Synthetic(queue.FCFS, nil)
	}
	var classes []string
	for i := range profile.Classes {
		classes = append(classes, profile.Classes[i].Name)
	}
	if !slices.Equal(classes, expect.Classes) {
		return fmt.Errorf("classes %v, recorded %v", classes, expect.Classes)
	}
	for _, w := range expect.Resolved {
		name := ""
		if w.PolicyClass != nil {
			name = *w.PolicyClass
		}
		if got := profile.Classes[profile.Select(name).Class(w.Uncached)].Name; got != w.Class {
			return fmt.Errorf("%q with %d uncached tokens is in class %s, recorded %s", name, w.Uncached, got, w.Class)
		}
	}
	return nil
}

// sameMistake compares a refusal with the recorded one. The wording of a parser is its own; what it is about is not.
func sameMistake(err error, recorded string) error {
	var mistake *policy.Error
	if !errors.As(err, &mistake) {
		return fmt.Errorf("got %v, recorded %q", err, recorded)
	}
	if !strings.HasPrefix(recorded, "failed to parse") {
		if mistake.Text() != recorded {
			return fmt.Errorf("got %q, recorded %q", mistake.Text(), recorded)
		}
		return nil
	}
	const prefix = "failed to parse router policy config <inline>: "
	if !mistake.Syntax || !strings.HasPrefix(mistake.Error(), prefix) {
		return fmt.Errorf("got %q, recorded %q", mistake.Error(), recorded)
	}
	path, rest, isPath := strings.Cut(strings.TrimPrefix(recorded, prefix), ": ")
	if !isPath || strings.Contains(path, "`") {
		path, rest = "", strings.TrimPrefix(recorded, prefix)
	}
	_, key, _ := strings.Cut(rest, "`")
	key, _, _ = strings.Cut(key, "`")
	if mistake.Path != path || !strings.Contains(mistake.Problem, "`"+key+"`") {
		return fmt.Errorf("got %q, recorded %q", mistake.Error(), recorded)
	}
	return nil
}
