package verify

import (
	"encoding/json"
	"fmt"

	"signalbox/router/disagg"
	"signalbox/router/kv"
)

// disaggDecision is a decision with what led to it.
type disaggDecision struct {
	Enabled     bool   `json:"enabled"`
	Says        bool   `json:"policy_says_bypass"`
	Bypass      bool   `json:"bypass_after_decode_guard"`
	Needs       bool   `json:"needs_prefill_worker_busy"`
	NetNew      uint64 `json:"net_new_tokens"`
	PrefillBusy *bool  `json:"prefill_busy"`
	DecodeBusy  *bool  `json:"decode_busy"`
}

// verifyConditionalDisagg decides whether requests skip the prefill workers.
func verifyConditionalDisagg(_ string, rawInput, rawExpect json.RawMessage) error {
	var input struct {
		Config        json.RawMessage
		PromptTokens  uint64 `json:"prompt_tokens"`
		CachedTokens  uint64 `json:"decode_cached_tokens"`
		PrefillWorker *struct {
			Active   uint64 `json:"active_prefill_tokens"`
			Capacity uint64 `json:"prefill_token_capacity"`
		} `json:"prefill_worker"`
		DecodeWorker *struct {
			Blocks uint64 `json:"potential_decode_blocks"`
			Total  uint64 `json:"total_kv_blocks"`
		} `json:"decode_worker"`
	}
	var recorded disaggDecision
	if err := decodeCase(rawInput, rawExpect, &input, &recorded); err != nil {
		return err
	}
	read, err := kv.ParseConfig(input.Config)
	if err != nil {
		return err
	}
	config := read.Disaggregation()
	if err := config.Check(read.QueueThreshold); err != nil {
		return err
	}
	var made disaggDecision
	prompt := disagg.Prompt{Tokens: input.PromptTokens, CachedTokens: input.CachedTokens}
	made.Enabled, made.Needs, made.NetNew = config.Enabled, config.NeedsPrefillLoad(), prompt.Uncached()
	busy := false
	if worker := input.PrefillWorker; worker != nil {
		busy = config.PrefillIsBusy(worker.Active, worker.Capacity)
		made.PrefillBusy = &busy
	}
	made.Says = config.Bypasses(prompt, busy)
	var blocks, total uint64
	if worker := input.DecodeWorker; worker != nil {
		blocks, total = worker.Blocks, worker.Total
		if total > 0 && config.DecodeBusy != nil {
			decodeBusy := !config.DecodeAllows(blocks, total)
			made.DecodeBusy = &decodeBusy
		}
	}
	made.Bypass = made.Says && config.DecodeAllows(blocks, total)
	got, err := json.Marshal(made)
	if err != nil {
		return err
	}
	want, err := json.Marshal(recorded)
	if err != nil {
		return err
	}
	if string(got) != string(want) {
		return fmt.Errorf("got %s, recorded %s", got, want)
	}
	return nil
}
