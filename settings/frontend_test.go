package settings

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets every value through: what is not built yet has a test of its own.
func TestMain(m *testing.M) {
	unbuilt = Unavailable
	Unavailable = map[string]string{}
	os.Exit(m.Run())
}

var unbuilt map[string]string

func TestWhatIsNotBuiltStopsTheStart(t *testing.T) {
	Unavailable = unbuilt
	defer func() { Unavailable = map[string]string{} }()
	for key := range unbuilt {
		name, _, _ := strings.Cut(key, "=")
		if declareFrontend().table.byName[name] == nil {
			t.Errorf("%q is no setting", key)
		}
	}
	if len(unbuilt) == 0 {
		t.Skip("everything is built")
	}
	_, _, err := LoadFrontend([]string{"--event-plane", "nats"}, nil)
	if unbuilt["event_plane=nats"] != "" && (err == nil || !strings.Contains(err.Error(), "not available yet") || !strings.Contains(err.Error(), "--event-plane")) {
		t.Errorf("--event-plane nats: %v", err)
	}
	if _, _, err := LoadFrontend(nil, nil); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

func TestFlagBeatsVariableBeatsDefault(t *testing.T) {
	load := func(args, environ []string) *Frontend {
		t.Helper()
		f, _, err := LoadFrontend(args, environ)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if f := load(nil, nil); f.HTTP.Port != 8000 || f.Router.Mode != RoundRobin || f.Scoring.HostCacheHitWeight != 0.75 || f.Indexer.TTL != 120*time.Second || !f.Indexer.KVEvents {
		t.Errorf("defaults: %+v", f)
	}
	environ := []string{"DYN_HTTP_PORT=9000", "DYN_ROUTER_MODE=kv", "DYN_ROUTER_USE_KV_EVENTS=false"}
	if f := load(nil, environ); f.HTTP.Port != 9000 || f.Router.Mode != KV || f.Indexer.KVEvents {
		t.Errorf("variables: %+v", f)
	}
	f := load([]string{"--http-port", "9001", "--router-mode=random", "--router-kv-events"}, environ)
	if f.HTTP.Port != 9001 || f.Router.Mode != RandomMode || !f.Indexer.KVEvents {
		t.Errorf("flags: %+v", f)
	}
	if origin, _ := f.Origin("http_port"); origin.String() != "flag --http-port" {
		t.Errorf("origin %q", origin)
	}
}

func TestMistakesNameTheFlagTheValueAndWhatIsRight(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, make([]byte, 31), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args    []string
		environ []string
		want    []string
	}{
		{args: []string{"--http-port", "abc"}, want: []string{"--http-port", "abc", "65535"}},
		{environ: []string{"DYN_HTTP_PORT="}, want: []string{"DYN_HTTP_PORT"}},
		{args: []string{"--router-mode", "foo"}, want: []string{"--router-mode", "foo", "round-robin"}},
		{environ: []string{"DYN_ROUTER_MODE=foo"}, want: []string{"DYN_ROUTER_MODE", "foo", "kv"}},
		{args: []string{"--router-host-cache-hit-weight", "1.5"}, want: []string{"--router-host-cache-hit-weight", "1.5"}},
		{args: []string{"--tls-cert-path", "x.pem"}, want: []string{"--tls-cert-path and --tls-key-path must be provided together"}},
		{args: []string{"--serve-indexer"}, want: []string{"--serve-indexer requires --router-mode=kv"}},
		{args: []string{"--router-mode=kv", "--serve-indexer", "--use-remote-indexer"}, want: []string{"mutually exclusive"}},
		{args: []string{"--router-session-affinity-ttl-secs", "0"}, want: []string{"--router-session-affinity-ttl-secs", "31536000"}},
		{args: []string{"--migration-limit", "-1"}, want: []string{"--migration-limit", "-1"}},
		{args: []string{"--router-tracking-hash=keyed-xxh3-v1", "--router-tracking-key-file", key, "--router-tracking-key-id", "a"}, want: []string{"31 bytes", "32"}},
		{args: []string{"--router-prefill-load-model=aic"}, want: []string{"requires --router-mode=kv", "--aic-backend"}},
		{args: []string{"--nonsense"}, want: []string{"--nonsense"}},
		{args: []string{"--http-prot", "1"}, want: []string{"--http-port"}},
		{args: []string{"--model-path", "/does/not/exist"}, want: []string{"--model-path", "/does/not/exist"}},
		{args: []string{"--frontend-route-extension", "a:b", "--interactive"}, want: []string{"only supported by the HTTP frontend", "--interactive"}},
		{args: []string{"--dyn-chat-processor", "vllm"}, want: []string{"vllm"}},
		{args: []string{"--router-predicted-ttl-secs", "5", "--no-router-kv-events"}, want: []string{"requires --router-kv-events"}},
	} {
		_, _, err := LoadFrontend(c.args, c.environ)
		if err == nil {
			t.Errorf("%v %v: no error", c.args, c.environ)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v %v: %q does not say %q", c.args, c.environ, err, want)
			}
		}
	}
}

func TestPresetsAndDeprecatedSpellings(t *testing.T) {
	f, _, err := LoadFrontend([]string{"--load-aware"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.Router.Mode != KV || f.Scoring.OverlapCredit != 0 || f.Indexer.KVEvents || f.Load.AssumeKVReuse || f.Scoring.SharedCacheMultiplier != 0 {
		t.Errorf("--load-aware: %+v", f)
	}
	f, warnings, err := LoadFrontend([]string{"--kv-overlap-score-weight", "0", "--no-kv-events", "--admission-control", "none", "--enforce-disagg"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.Scoring.PrefillLoadScale != 0 || f.Scoring.OverlapCredit != 0 || f.Indexer.KVEvents {
		t.Errorf("deprecated: %+v", f.Scoring)
	}
	if len(warnings) < 4 {
		t.Errorf("warnings: %v", warnings)
	}
	f, _, err = LoadFrontend([]string{"--ais-backend", "vllm", "--active-decode-blocks-threshold", "None"}, []string{"DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD=0.5"})
	if err != nil || f.LoadModel.Backend != "vllm" || f.Faults.DecodeBlocksThreshold.Set {
		t.Errorf("%v: %+v", err, f)
	}
}

func TestEveryTableDeclaresNamesOnce(t *testing.T) {
	for _, table := range []*table{declareFrontend().table, declareWorker().table, declareDemo().table} {
		names, flags, variables := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, s := range table.settings {
			if names[s.name] {
				t.Errorf("%s: name %q is declared twice", table.command, s.name)
			}
			names[s.name] = true
			for _, flag := range s.spellings() {
				if flags[flag] {
					t.Errorf("%s: flag --%s is declared twice", table.command, flag)
				}
				flags[flag] = true
			}
			for _, variable := range s.env {
				if variables[variable] {
					t.Errorf("%s: variable %s is declared twice", table.command, variable)
				}
				variables[variable] = true
			}
			if s.help == "" || s.group == "" {
				t.Errorf("%s: %s has no help or group", table.command, s.name)
			}
		}
	}
}

func TestDocumentationIsCurrent(t *testing.T) {
	var want bytes.Buffer
	Markdown(&want)
	have, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want.Bytes()) {
		t.Error("docs/configuration.md is out of date: run `make generate`")
	}
}

func TestDumpHoldsEveryKeyOfThePeer(t *testing.T) {
	f, _, err := LoadFrontend([]string{"--http-port", "1234"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var dump bytes.Buffer
	if err := f.Dump(&dump, "test"); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields(`active_decode_blocks_threshold ais_backend ais_mtp_seed chat_processor conditional_disagg_enabled debug_perf
		decode_active_request_weight discovery_backend disk_cache_hit_weight dump_config_to enable_anthropic_api event_plane
		exclude_tools_when_tool_choice_none grpc_metrics_port host_cache_hit_weight http_host http_port interactive kserve_grpc_server
		kv_cache_block_size load_aware metrics_prefix migration_limit migration_max_seq_len min_initial_workers model_name model_path namespace
		overlap_score_credit prefill_load_scale reasoning_field_name request_plane response_plane router_mode router_policy_config
		router_queue_policy router_temperature router_ttl_secs session_affinity_mode session_affinity_ttl_secs shared_cache_type
		strip_anthropic_preamble tls_cert_path tokenizer_backend use_kv_events use_remote_indexer`) {
		if !strings.Contains(dump.String(), `"`+key+`"`) {
			t.Errorf("the dump lacks %q", key)
		}
	}
}

func FuzzLoadFrontend(f *testing.F) {
	f.Add("--http-port=1 --router-mode kv", "DYN_HTTP_PORT=2")
	f.Fuzz(func(t *testing.T, args, environ string) {
		_, _, _ = LoadFrontend(strings.Fields(args), strings.Split(environ, "\n"))
	})
}

// A variable of an older release that changes nothing is named.
func TestExperimentalParsersAreNamed(t *testing.T) {
	_, warnings, err := LoadFrontend(nil, []string{"DYN_ENABLE_EXPERIMENTAL_PARSERS_V2=1"})
	if err != nil || len(warnings) != 1 || warnings[0].Name != "DYN_ENABLE_EXPERIMENTAL_PARSERS_V2" {
		t.Errorf("%v %v", warnings, err)
	}
	if _, warnings, err := LoadFrontend(nil, []string{"DYN_ENABLE_EXPERIMENTAL_PARSERS_V2=1", "DYN_PARSER_VERSION=2"}); err != nil || len(warnings) != 0 {
		t.Errorf("%v %v", warnings, err)
	}
}

func TestPlainServersNeedNoStore(t *testing.T) {
	for _, c := range []struct {
		args, environ []string
		backend       string
	}{
		{nil, nil, "etcd"},
		{[]string{"--upstream", "http://a:1", "--upstream", "http://b:1"}, nil, "mem"},
		{nil, []string{"SIGNALBOX_UPSTREAM=http://a:1 http://b:1"}, "mem"},
		{[]string{"--upstream-config", "servers.yaml"}, nil, "mem"},
		{[]string{"--upstream", "http://a:1", "--discovery-backend", "etcd"}, nil, "etcd"},
		{[]string{"--upstream", "http://a:1"}, []string{"DYN_DISCOVERY_BACKEND=file"}, "file"},
	} {
		f, _, err := LoadFrontend(c.args, c.environ)
		if err != nil || f.Discovery.Backend != c.backend {
			t.Errorf("%v %v: %q, %v; want %q", c.args, c.environ, f.Discovery.Backend, err, c.backend)
		}
	}
	f, _, err := LoadFrontend([]string{"--upstream", "http://a:1", "--upstream", "http://b:1"}, nil)
	if err != nil || len(f.Upstream.Servers) != 2 {
		t.Errorf("%v, %v; want both servers", f, err)
	}
}
