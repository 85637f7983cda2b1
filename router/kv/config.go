package kv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"signalbox/inference"
	"signalbox/router/cost"
	"signalbox/router/disagg"
)

// Config is a KV router's configuration. Its JSON form is the kv_router_config of model cards and of direct router APIs: names
// and defaults are those of Dynamo's router. Make one with [DefaultConfig] or [ParseConfig].
type Config struct {
	OverlapScoreCredit        float64 `json:"overlap_score_credit"`
	OverlapScoreCreditDecay   float64 `json:"overlap_score_credit_decay"`
	PrefillLoadScale          float64 `json:"prefill_load_scale"`
	DecodeActiveRequestWeight float64 `json:"decode_active_request_weight"`
	HostCacheHitWeight        float64 `json:"host_cache_hit_weight"`
	DiskCacheHitWeight        float64 `json:"disk_cache_hit_weight"`
	SharedCacheMultiplier     float64 `json:"shared_cache_multiplier"`
	RouterTemperature         float64 `json:"router_temperature"`

	UseKVEvents          bool     `json:"use_kv_events"`
	ReplicaSync          bool     `json:"router_replica_sync"`
	TrackActiveBlocks    bool     `json:"router_track_active_blocks"`
	TrackOutputBlocks    bool     `json:"router_track_output_blocks"`
	AssumeKVReuse        bool     `json:"router_assume_kv_reuse"`
	TrackPrefillTokens   bool     `json:"router_track_prefill_tokens"`
	PrefillLoadModel     string   `json:"router_prefill_load_model"`
	TTLSecs              float64  `json:"router_ttl_secs"`
	ApproximatePolicy    string   `json:"router_approximate_cache_policy"`
	PredictedTTLSecs     *float64 `json:"router_predicted_ttl_secs"`
	EventThreads         int      `json:"router_event_threads"`
	QueueThreshold       *float64 `json:"router_queue_threshold"`
	QueuePolicy          string   `json:"router_queue_policy"`
	PolicyConfig         *string  `json:"router_policy_config"`
	PrefillPolicy        *string  `json:"router_prefill_policy"`
	DecodePolicy         *string  `json:"router_decode_policy"`
	UseRemoteIndexer     bool     `json:"use_remote_indexer"`
	ServeIndexer         bool     `json:"serve_indexer"`
	SharedCacheType      string   `json:"shared_cache_type"`
	TrackingHash         string   `json:"router_tracking_hash"`
	TrackingKeyFile      *string  `json:"router_tracking_key_file"`
	TrackingKeyID        *string  `json:"router_tracking_key_id"`
	SessionPrefixIndex   bool     `json:"enable_session_prefix_index"`
	ConditionalDisagg    bool     `json:"conditional_disagg_enabled"`
	ConditionalPolicy    string   `json:"conditional_disagg_policy"`
	EffISLThreshold      uint64   `json:"conditional_disagg_eff_isl_threshold"`
	EffISLRatioThreshold float64  `json:"conditional_disagg_eff_isl_ratio_threshold"`
	PrefillBusyThreshold *float64 `json:"conditional_disagg_prefill_busy_threshold"`
	DecodeBusyThreshold  *float64 `json:"conditional_disagg_decode_busy_threshold"`
}

// DefaultConfig returns the router library's defaults.
func DefaultConfig() Config {
	return Config{
		OverlapScoreCredit: 1, PrefillLoadScale: 1, HostCacheHitWeight: 0.75, DiskCacheHitWeight: 0.25,
		UseKVEvents: true, TrackActiveBlocks: true, AssumeKVReuse: true, TrackPrefillTokens: true,
		PrefillLoadModel: "none", TTLSecs: 120, ApproximatePolicy: "ttl", EventThreads: 4, QueuePolicy: "fcfs",
		SharedCacheType: "none", TrackingHash: "public-xxh3-v1",
		ConditionalPolicy: "isl_bounding", EffISLThreshold: 2048, EffISLRatioThreshold: 0.7,
	}
}

// legacy are JSON members that are read but have no field of their own.
type legacy struct {
	OverlapScoreWeight *float64 `json:"overlap_score_weight"`
	DurableKVEvents    *bool    `json:"durable_kv_events"`
	SnapshotThreshold  *uint64  `json:"router_snapshot_threshold"`
	ResetStates        *bool    `json:"router_reset_states"`
	SkipInitialWait    *bool    `json:"skip_initial_worker_wait"`
}

// ParseConfig reads the JSON form over the defaults. Unknown members are errors; the result is validated.
func ParseConfig(text []byte) (Config, error) {
	read := struct {
		Config
		legacy
	}{Config: DefaultConfig()}
	if err := decodeStrictly(text, &read); err != nil {
		return Config{}, err
	}
	if read.DurableKVEvents != nil && *read.DurableKVEvents {
		return Config{}, errors.New("durable_kv_events=true is not supported by this runtime")
	}
	config := read.Config
	if config.SharedCacheType != "none" && !named(text, "shared_cache_multiplier") {
		config.SharedCacheMultiplier = DefaultSharedMultiplier
	}
	if read.OverlapScoreWeight != nil {
		config.ApplyOverlapScoreWeight(*read.OverlapScoreWeight)
	}
	if err := config.Validate(); err != nil {
		return Config{}, err
	}
	return config, nil
}

// DefaultSharedMultiplier is what a block of the shared cache counts where there is one and nobody says what.
const DefaultSharedMultiplier = 0.5

// named tells whether a JSON object gives the member a value.
func named(text []byte, member string) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return false
	}
	value, there := members[member]
	return there && string(value) != "null"
}

// Overlay replaces the members that a JSON object names; the result is validated.
func (c *Config) Overlay(text []byte) error {
	changed := *c
	if err := decodeStrictly(text, &changed); err != nil {
		return err
	}
	if err := changed.Validate(); err != nil {
		return err
	}
	*c = changed
	return nil
}

func decodeStrictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// ApplyOverlapScoreWeight applies the deprecated weight: it becomes the prefill load scale, and 0 switches cache credit off.
func (c *Config) ApplyOverlapScoreWeight(weight float64) {
	c.PrefillLoadScale = weight
	if weight == 0 {
		c.OverlapScoreCredit = 0
	}
}

// ApplyLoadAware applies the preset that routes by load alone, without looking at caches.
func (c *Config) ApplyLoadAware() {
	c.OverlapScoreCredit, c.SharedCacheMultiplier, c.SharedCacheType = 0, 0, "none"
	c.UseKVEvents, c.AssumeKVReuse, c.UseRemoteIndexer, c.ServeIndexer = false, false, false, false
	c.TrackActiveBlocks, c.TrackPrefillTokens = true, true
	c.PredictedTTLSecs = nil
}

// Validate checks ranges and combinations. Messages begin with the member's name.
func (c *Config) Validate() error {
	weights := c.Weights()
	if err := weights.Validate(); err != nil {
		return err
	}
	for _, rule := range []struct {
		broken  bool
		message string
	}{
		{c.QueueThreshold != nil && !(*c.QueueThreshold >= 0), "router_queue_threshold must be greater than or equal to 0"},
		{c.TTLSecs < 0, "router_ttl_secs must be greater than or equal to 0"},
		{c.EventThreads < 1, "router_event_threads must be at least 1"},
		{c.PredictedTTLSecs != nil && !(*c.PredictedTTLSecs > 0), "router_predicted_ttl_secs must be greater than 0"},
		{c.EffISLRatioThreshold < 0 || c.EffISLRatioThreshold > 1, "conditional_disagg_eff_isl_ratio_threshold must be between 0 and 1"},
		{c.TrackOutputBlocks && !c.TrackActiveBlocks, "router_track_output_blocks requires router_track_active_blocks=true"},
		{c.PrefillLoadModel != "none" && !c.TrackPrefillTokens, "router_prefill_load_model requires router_track_prefill_tokens=true"},
		{c.UseRemoteIndexer && c.ServeIndexer, "use_remote_indexer and serve_indexer are mutually exclusive"},
		{c.ServeIndexer && c.OverlapScoreCredit == 0, "serve_indexer requires overlap_score_credit > 0"},
		{c.PredictedTTLSecs != nil && !c.UseKVEvents, "router_predicted_ttl_secs requires use_kv_events=true"},
	} {
		if rule.broken {
			return errors.New(rule.message)
		}
	}
	return c.validateWords()
}

func (c *Config) validateWords() error {
	for _, word := range []struct {
		name, value string
		allowed     []string
	}{
		{"router_prefill_load_model", c.PrefillLoadModel, []string{"none", "aic", "ais"}},
		{"router_approximate_cache_policy", c.ApproximatePolicy, []string{"ttl", "lru"}},
		{"router_queue_policy", c.QueuePolicy, []string{"fcfs", "wspt", "lcfs"}},
		{"shared_cache_type", c.SharedCacheType, []string{"none", "hicache"}},
		{"router_tracking_hash", c.TrackingHash, []string{"public-xxh3-v1", "keyed-xxh3-v1"}},
		{"conditional_disagg_policy", c.ConditionalPolicy, []string{"isl_bounding", "prefill_load", "isl_or_load"}},
	} {
		known := false
		for _, allowed := range word.allowed {
			known = known || word.value == allowed
		}
		if !known {
			return fmt.Errorf("%s %q is none of %s", word.name, word.value, strings.Join(word.allowed, ", "))
		}
	}
	return nil
}

// Weights returns the part of the configuration that the cost depends on.
func (c *Config) Weights() cost.Weights {
	return cost.Weights{
		OverlapCredit: c.OverlapScoreCredit, OverlapCreditDecay: c.OverlapScoreCreditDecay,
		PrefillLoadScale: c.PrefillLoadScale, ActiveRequestWeight: c.DecodeActiveRequestWeight,
		HostWeight: c.HostCacheHitWeight, DiskWeight: c.DiskCacheHitWeight,
		SharedMultiplier: c.SharedCacheMultiplier, Temperature: c.RouterTemperature,
	}
}

// UsesIndex tells whether the router needs to know what is cached where.
func (c *Config) UsesIndex() bool { return c.OverlapScoreCredit > 0 }

// ParseOverride reads a request's router_config_override. The deprecated overlap_score_weight is taken for the prefill load scale.
func ParseOverride(text []byte) (*inference.RouterOverride, error) {
	var read struct {
		OverlapScoreCredit    *float64 `json:"overlap_score_credit"`
		OverlapScoreWeight    *float64 `json:"overlap_score_weight"`
		PrefillLoadScale      *float64 `json:"prefill_load_scale"`
		RouterTemperature     *float64 `json:"router_temperature"`
		AssumeKVReuse         *bool    `json:"assume_kv_reuse"`
		TrackPrefillTokens    *bool    `json:"track_prefill_tokens"`
		SharedCacheMultiplier *float64 `json:"shared_cache_multiplier"`
	}
	if err := decodeStrictly(text, &read); err != nil {
		return nil, err
	}
	override := &inference.RouterOverride{
		OverlapScoreCredit: read.OverlapScoreCredit, PrefillLoadScale: read.PrefillLoadScale, RouterTemperature: read.RouterTemperature,
		AssumeKVReuse: read.AssumeKVReuse, TrackPrefillTokens: read.TrackPrefillTokens, SharedCacheMultiplier: read.SharedCacheMultiplier,
	}
	if weight := read.OverlapScoreWeight; weight != nil {
		override.PrefillLoadScale = weight
		if *weight == 0 {
			override.OverlapScoreCredit = weight
		}
	}
	return override, ValidateOverride(override)
}

// ValidateOverride checks the ranges of a request's override; they are the configuration's.
func ValidateOverride(override *inference.RouterOverride) error {
	if override == nil {
		return nil
	}
	config := DefaultConfig()
	for _, change := range []struct {
		to   *float64
		from *float64
	}{
		{&config.OverlapScoreCredit, override.OverlapScoreCredit}, {&config.PrefillLoadScale, override.PrefillLoadScale},
		{&config.RouterTemperature, override.RouterTemperature}, {&config.SharedCacheMultiplier, override.SharedCacheMultiplier},
	} {
		if change.from != nil {
			*change.to = *change.from
		}
	}
	weights := config.Weights()
	return weights.Validate()
}

// DefaultRequestExpiry is how long a request may make no progress before it can be forgotten.
const DefaultRequestExpiry = 300 * time.Second

// PotentialDecodeBlocks returns the blocks that a rank would have in use with the request on it: the tracked ones, and the prompt's
// last block that is too short to be tracked. requestBlocks covers the whole prompt.
func PotentialDecodeBlocks(l cost.Load, requestBlocks, tracked int) uint64 {
	return l.ActiveDecodeBlocks + l.AdditionalActiveBlocks + uint64(max(0, requestBlocks-tracked))
}

// Disaggregation returns the part of the configuration that decides whether requests skip the prefill workers.
func (c *Config) Disaggregation() disagg.Config {
	return disagg.Config{
		Enabled: c.ConditionalDisagg, Policy: disagg.Policy(c.ConditionalPolicy),
		UncachedTokens: c.EffISLThreshold, UncachedRatio: c.EffISLRatioThreshold,
		PrefillBusy: c.PrefillBusyThreshold, DecodeBusy: c.DecodeBusyThreshold,
	}
}
