package main

import (
	"errors"
	"fmt"
	"log/slog"

	"signalbox/frontend"
	"signalbox/router/analytic"
	"signalbox/router/disagg"
	"signalbox/router/kv"
	"signalbox/router/policy"
	"signalbox/settings"
)

// routing translates the router's settings; where KV events come from is left to the caller.
func routing(s *settings.Frontend, logger *slog.Logger) (frontend.Routing, error) {
	r := frontend.Routing{Mode: string(s.Router.Mode), DeviceRatio: s.Router.DeviceRatio, KV: kvConfig(s),
		Catalog: policies(), RequestExpiry: s.Load.ActiveRequestExpiry, OverlapRefreshAfter: max(0, s.Load.OverlapRefreshAfter),
		SharedEvents: s.Scoring.SharedCacheEvents, Logger: logger}
	if err := conditionalDisagg(s, &r.KV); err != nil {
		return r, err
	}
	if err := r.KV.Validate(); err != nil {
		return r, err
	}
	if s.Load.TrackingKeyFile != "" {
		key, err := frontend.ReadTrackingKey(s.Load.TrackingKeyFile, s.Load.TrackingKeyID)
		if err != nil {
			return r, fmt.Errorf("--router-tracking-key-file: %w", err)
		}
		r.TrackingKey = key
	}
	if s.Load.PolicyConfig != "" {
		policies, err := policy.Load(s.Load.PolicyConfig)
		if err != nil {
			return r, err
		}
		r.Policies = policies
	}
	if err := r.ApplyFile(); err != nil {
		return r, err
	}
	if ttl, set := s.Router.AffinityTTL.Get(); set {
		r.SessionTTL, r.SoftSessions = ttl, s.Router.AffinityMode == "soft"
	}
	r.Wishes = []policy.Wish{{Stage: policy.Prefill, Name: s.Router.PrefillPolicy}, {Stage: policy.Decode, Name: s.Router.DecodePolicy}, {Name: s.Router.SelectionPolicy}}
	r.Shadow = s.Router.ShadowPolicy
	if s.Router.Mode != settings.KV {
		for _, setting := range []struct {
			name string
			set  bool
		}{{"--router-policy-config", r.Policies != nil}, {"--router-queue-threshold", s.Load.QueueThreshold.Set}, {"--router-replica-sync", s.Indexer.ReplicaSync},
			{"a worker-selection policy", s.Router.PrefillPolicy+s.Router.DecodePolicy+s.Router.SelectionPolicy+s.Router.ShadowPolicy != ""}} {
			if setting.set {
				logger.Warn("a setting has no effect: only routing in mode kv has queues and policies", "setting", setting.name, "router_mode", string(s.Router.Mode))
			}
		}
	}
	if err := r.Check(); err != nil {
		return r, err
	}
	if r.KV.PrefillLoadModel != "none" {
		m := &s.LoadModel
		predictor, err := analytic.New(analytic.Options{Backend: m.Backend, System: m.System, ModelPath: m.ModelPath, TensorParallel: m.TPSize,
			MoETensorParallel: m.MoETPSize.Or(0), MoEExpertParallel: m.MoEEPSize.Or(0), AttentionDataParallel: m.AttentionDPSize.Or(0)})
		if err != nil {
			return r, fmt.Errorf("--router-prefill-load-model=%s: %w", s.Load.PrefillModel, err)
		}
		r.Predictor = predictor
		logger.Info("prefill durations are estimated from the model's size and the system's peak rate: no performance database is built in",
			"system", m.System, "model", m.ModelPath)
	}
	return r, nil
}

// conditionalDisagg translates the rules for skipping the prefill workers.
func conditionalDisagg(s *settings.Frontend, c *kv.Config) error {
	if !s.Router.ConditionalDisagg {
		return nil
	}
	if s.Router.Mode != settings.KV || !s.Indexer.KVEvents {
		return errors.New("--router-conditional-disagg requires --router-mode=kv and --router-kv-events")
	}
	rules := disagg.Default()
	if text := s.Router.ConditionalConfig; text != "" {
		var err error
		if rules, err = disagg.Parse([]byte(text)); err != nil {
			return fmt.Errorf("--router-conditional-disagg-config %w", err)
		}
	}
	c.ConditionalDisagg, c.ConditionalPolicy = true, string(rules.Policy)
	c.EffISLThreshold, c.EffISLRatioThreshold = rules.UncachedTokens, rules.UncachedRatio
	c.PrefillBusyThreshold, c.DecodeBusyThreshold = rules.PrefillBusy, rules.DecodeBusy
	return rules.Check(c.QueueThreshold)
}

// kvConfig is the configuration of KV routers as the settings have it.
func kvConfig(s *settings.Frontend) kv.Config {
	c := kv.DefaultConfig()
	w, x, l := &s.Scoring, &s.Indexer, &s.Load
	c.OverlapScoreCredit, c.OverlapScoreCreditDecay, c.PrefillLoadScale = w.OverlapCredit, w.OverlapCreditDecay, w.PrefillLoadScale
	c.DecodeActiveRequestWeight, c.HostCacheHitWeight, c.DiskCacheHitWeight = w.DecodeActiveRequestWeight, w.HostCacheHitWeight, w.DiskCacheHitWeight
	c.SharedCacheMultiplier, c.SharedCacheType, c.RouterTemperature = w.SharedCacheMultiplier, w.SharedCacheType, w.Temperature
	c.UseKVEvents, c.TTLSecs, c.ApproximatePolicy, c.EventThreads = x.KVEvents, x.TTL.Seconds(), x.ApproximatePolicy, x.EventThreads
	c.UseRemoteIndexer, c.ServeIndexer, c.SessionPrefixIndex, c.ReplicaSync = x.UseRemote, x.Serve, x.SessionPrefixIndex, x.ReplicaSync
	if ttl, set := x.PredictedTTL.Get(); set {
		seconds := ttl.Seconds()
		c.PredictedTTLSecs = &seconds
	}
	c.TrackActiveBlocks, c.TrackOutputBlocks, c.AssumeKVReuse, c.TrackPrefillTokens = l.TrackActiveBlocks, l.TrackOutputBlocks, l.AssumeKVReuse, l.TrackPrefillTokens
	c.TrackingHash, c.PrefillLoadModel, c.QueuePolicy = l.TrackingHash, l.PrefillModel, l.QueuePolicy
	if threshold, set := l.QueueThreshold.Get(); set {
		c.QueueThreshold = &threshold
	}
	return c
}
