package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

const trackingKeyBytes = 32

func rule(problem string, settings ...string) error {
	return &RuleError{Settings: settings, Problem: problem}
}

// resolve applies presets and deprecated mappings and checks the rules between settings.
func (f *Frontend) resolve() ([]Warning, error) {
	var warnings []Warning
	if f.Scoring.LoadAware {
		if err := f.applyLoadAware(); err != nil {
			return nil, err
		}
	}
	if weight, set := f.Scoring.OverlapWeight.Get(); set {
		f.Scoring.PrefillLoadScale = weight
		if weight == 0 {
			f.Scoring.OverlapCredit = 0
		}
		warnings = append(warnings, Warning{Name: "--router-kv-overlap-score-weight",
			Text: fmt.Sprintf("--router-kv-overlap-score-weight is deprecated: it sets --router-prefill-load-scale to %v; use that flag and --router-kv-overlap-score-credit", weight)})
	}
	if f.Protocol.ExperimentalParsers && f.Protocol.ParserVersion != "2" {
		warnings = append(warnings, Warning{Name: "DYN_ENABLE_EXPERIMENTAL_PARSERS_V2",
			Text: "DYN_ENABLE_EXPERIMENTAL_PARSERS_V2 has no effect, as in release 1.6; DYN_PARSER_VERSION=2 selects the second generation of parsers, for more formats than it did"})
	}
	if len(f.Upstream.Servers) > 0 || f.Upstream.File != "" {
		if origin, _ := f.Origin("discovery_backend"); origin.Kind == FromDefault {
			if err := f.table.override("discovery_backend", "mem", Origin{Kind: FromPreset, Name: "--upstream"}); err != nil {
				return nil, err
			}
		}
	}
	problems := append(f.tlsRules(), f.routerRules()...)
	problems = append(problems, f.loadModelRules()...)
	problems = append(problems, f.trackingRules()...)
	return warnings, errors.Join(problems...)
}

// applyLoadAware turns routing by load without cache signals on.
func (f *Frontend) applyLoadAware() error {
	origin := Origin{Kind: FromPreset, Name: "--load-aware"}
	for _, preset := range [][2]string{{"router_mode", "kv"}, {"overlap_score_credit", "0"}, {"use_kv_events", "false"}, {"router_track_active_blocks", "true"},
		{"router_assume_kv_reuse", "false"}, {"router_track_prefill_tokens", "true"}, {"use_remote_indexer", "false"}, {"serve_indexer", "false"},
		{"shared_cache_multiplier", "0"}, {"shared_cache_type", "none"}, {"router_predicted_ttl_secs", "None"}} {
		if err := f.table.override(preset[0], preset[1], origin); err != nil {
			return err
		}
	}
	return nil
}

func (f *Frontend) tlsRules() (problems []error) {
	h := &f.HTTP
	if (h.TLSCertPath == "") != (h.TLSKeyPath == "") {
		problems = append(problems, rule("--tls-cert-path and --tls-key-path must be provided together", "tls_cert_path", "tls_key_path"))
	}
	if h.TLSClientCAPath != "" && h.TLSCertPath == "" {
		problems = append(problems, rule("--tls-client-ca-cert-path requires --tls-cert-path and --tls-key-path", "tls_client_ca_cert_path"))
	}
	for _, file := range [][2]string{{"TLS certificate", h.TLSCertPath}, {"TLS key", h.TLSKeyPath}, {"TLS client CA", h.TLSClientCAPath}} {
		if file[1] != "" {
			if _, err := os.Stat(file[1]); err != nil {
				problems = append(problems, rule(file[0]+" not found: "+file[1], "tls_cert_path"))
			}
		}
	}
	p := &f.Planes
	if (p.TCPTLSCertPath == "") != (p.TCPTLSKeyPath == "") {
		problems = append(problems, rule("--tcp-tls-cert-path and --tcp-tls-key-path must be provided together", "tcp_tls_cert_path"))
	}
	if (p.TCPTLSClientCert == "") != (p.TCPTLSClientKey == "") {
		problems = append(problems, rule("--tcp-tls-client-cert-path and --tcp-tls-client-key-path must be provided together", "tcp_tls_client_cert_path"))
	}
	return problems
}

func (f *Frontend) routerRules() (problems []error) {
	x, r := &f.Indexer, &f.Router
	if x.Serve && x.UseRemote {
		problems = append(problems, rule("--serve-indexer and --use-remote-indexer are mutually exclusive", "serve_indexer", "use_remote_indexer"))
	}
	if x.Serve && r.Mode != KV {
		problems = append(problems, rule("--serve-indexer requires --router-mode=kv", "serve_indexer", "router_mode"))
	}
	if x.Serve && f.Scoring.OverlapCredit == 0 {
		problems = append(problems, rule("--serve-indexer requires --router-kv-overlap-score-credit greater than 0", "serve_indexer", "overlap_score_credit"))
	}
	if x.PredictedTTL.Set && !x.KVEvents {
		problems = append(problems, rule("--router-predicted-ttl-secs requires --router-kv-events", "router_predicted_ttl_secs", "use_kv_events"))
	}
	if x.ApproximatePolicy == "lru" && x.KVEvents {
		problems = append(problems, rule("--router-approximate-cache-policy=lru requires --no-router-kv-events", "router_approximate_cache_policy", "use_kv_events"))
	}
	if f.Load.TrackOutputBlocks && !f.Load.TrackActiveBlocks {
		problems = append(problems, rule("--router-track-output-blocks requires --router-track-active-blocks", "router_track_output_blocks", "router_track_active_blocks"))
	}
	if r.ConditionalConfig != "" {
		if !r.ConditionalDisagg {
			problems = append(problems, rule("--router-conditional-disagg-config requires --router-conditional-disagg", "conditional_disagg_config"))
		}
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(r.ConditionalConfig), &object) != nil {
			problems = append(problems, rule("--router-conditional-disagg-config must be a JSON object", "conditional_disagg_config"))
		}
	}
	if r.LoRA {
		switch r.Mode {
		case Direct, PowerOfTwo, LeastLoaded, DeviceWeighted:
			problems = append(problems, rule(fmt.Sprintf("--router-mode=%s does not work with DYN_LORA_ENABLED: use round-robin, random or kv", r.Mode), "router_mode", "lora_enabled"))
		case RoundRobin, RandomMode:
			if r.AffinityTTL.Set {
				problems = append(problems, rule(fmt.Sprintf("session affinity is unsupported with DYN_LORA_ENABLED and %s routing", r.Mode), "session_affinity_ttl_secs", "lora_enabled"))
			}
		}
	}
	if len(f.HTTP.RouteExtensions) > 0 {
		const only = "--frontend-route-extension is only supported by the HTTP frontend, so it cannot be combined with "
		if f.Experimental.Interactive {
			problems = append(problems, rule(only+"--interactive", "frontend_route_extensions", "interactive"))
		}
		if f.KServe.Enabled {
			problems = append(problems, rule(only+"--kserve-grpc-server", "frontend_route_extensions", "kserve_grpc_server"))
		}
	}
	if p := f.Experimental.ChatProcessor; p != "dynamo" {
		problems = append(problems, rule(fmt.Sprintf("--dyn-chat-processor %s needs that Python engine, which cannot run here: leave the flag out and name the parsers at the worker (--dyn-tool-call-parser, --dyn-reasoning-parser)", p), "chat_processor"))
	}
	return problems
}

func (f *Frontend) loadModelRules() (problems []error) {
	if f.Load.PrefillModel == "none" {
		return nil
	}
	word := f.Load.PrefillModel
	if f.Router.Mode != KV {
		problems = append(problems, rule("--router-prefill-load-model="+word+" requires --router-mode=kv", "router_prefill_load_model", "router_mode"))
	}
	if !f.Load.TrackPrefillTokens {
		problems = append(problems, rule("--router-prefill-load-model="+word+" requires --router-track-prefill-tokens", "router_prefill_load_model", "router_track_prefill_tokens"))
	}
	m := &f.LoadModel
	for _, need := range [][2]string{{"backend", m.Backend}, {"system", m.System}, {"model-path", m.ModelPath}} {
		if need[1] == "" {
			problems = append(problems, rule("--router-prefill-load-model="+word+" requires --aic-"+need[0], "router_prefill_load_model"))
		}
	}
	if m.MoETPSize.Set || m.MoEEPSize.Set {
		attention, tp, ep := m.AttentionDPSize.Or(1), m.MoETPSize.Or(1), m.MoEEPSize.Or(1)
		if m.TPSize*attention != tp*ep {
			problems = append(problems, rule(fmt.Sprintf("aic_tp_size * aic_attention_dp_size must equal aic_moe_tp_size * aic_moe_ep_size: %d * %d is not %d * %d", m.TPSize, attention, tp, ep), "ais_moe_tp_size"))
		}
	}
	return problems
}

func (f *Frontend) trackingRules() (problems []error) {
	l := &f.Load
	keyed := l.TrackingHash == "keyed-xxh3-v1"
	switch {
	case !keyed && (l.TrackingKeyFile != "" || l.TrackingKeyID != ""):
		problems = append(problems, rule("--router-tracking-key-file and --router-tracking-key-id require --router-tracking-hash=keyed-xxh3-v1", "router_tracking_key_file"))
	case keyed && (l.TrackingKeyFile == "" || l.TrackingKeyID == ""):
		problems = append(problems, rule("--router-tracking-hash=keyed-xxh3-v1 requires --router-tracking-key-file and --router-tracking-key-id", "router_tracking_hash"))
	case keyed:
		key, err := os.ReadFile(l.TrackingKeyFile)
		if err != nil {
			problems = append(problems, rule(fmt.Sprintf("--router-tracking-key-file %q cannot be read: %v", l.TrackingKeyFile, err), "router_tracking_key_file"))
		} else if len(key) != trackingKeyBytes {
			problems = append(problems, rule(fmt.Sprintf("--router-tracking-key-file %q holds %d bytes; exactly %d raw bytes are needed", l.TrackingKeyFile, len(key), trackingKeyBytes), "router_tracking_key_file"))
		}
	}
	return problems
}
