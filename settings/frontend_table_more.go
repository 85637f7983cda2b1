package settings

import (
	"strings"
	"time"
)

func snake(name string) string { return strings.ReplaceAll(name, "-", "_") }

func upper(name string) string { return strings.ToUpper(snake(name)) }

func (f *Frontend) declareDiscovery() {
	t, d := f.table, &f.Discovery
	t.in("Model Discovery")
	t.add(required(&d.Namespace, "", text()), spec{name: "namespace", flag: "namespace", env: names("DYN_NAMESPACE"), help: "Exact namespace to serve."})
	t.add(required(&d.NamespacePrefix, "", text()), spec{name: "namespace_prefix", flag: "namespace-prefix", env: names("DYN_NAMESPACE_PREFIX"), help: "Serve every namespace that begins so. Wins over --namespace."})
	t.add(optionalText(&d.ModelName, "a model name"), spec{name: "model_name", flag: "model-name", env: names("DYN_MODEL_NAME"), help: "Serve models under this name."})
	t.add(optionalDirectory(&d.ModelPath), spec{name: "model_path", flag: "model-path", env: names("DYN_MODEL_PATH"), help: "Local directory of the model's files, for those that are not where the worker says."})
	t.add(optional(&d.BlockSize, whole(1, 1<<32-1)), spec{name: "kv_cache_block_size", flag: "kv-cache-block-size", env: names("DYN_KV_CACHE_BLOCK_SIZE"), help: "KV cache block size in tokens, instead of the worker's."})
	t.add(toggle(&d.TrustRemoteCode, false), spec{name: "trust_remote_code", flag: "trust-remote-code", env: names("DYN_TRUST_REMOTE_CODE"), help: "Accepted for compatibility; no code of a model is ever run."})
}

func (f *Frontend) declareUpstream() {
	t, u := f.table, &f.Upstream
	t.in("Plain servers as workers")
	t.add(collection(&u.Servers), spec{name: "upstream", flag: "upstream", env: names("SIGNALBOX_UPSTREAM"), help: "URL of a vLLM, SGLang, llama.cpp or other OpenAI-compatible server that is a worker; repeatable, several are joined by commas. Options stand in its query: http://host:8000?tokenizer=/models/m&kv_events=5557. Without --discovery-backend no other workers are looked for."})
	t.add(required(&u.File, "", text()), spec{name: "upstream_config", flag: "upstream-config", env: names("SIGNALBOX_UPSTREAM_CONFIG"), help: "YAML file of such servers: a list \"servers\" of url and options, and \"defaults\" for all of them."})
	t.add(required(&u.Every, 2*time.Second, duration(time.Second, 0.01)), spec{name: "upstream_health_secs", env: names("SIGNALBOX_UPSTREAM_HEALTH_SECS"), help: "Seconds between two looks at the health of such a server."})
}

func (f *Frontend) declarePlanes() {
	t, p := f.table, &f.Planes
	t.in("Infrastructure")
	t.add(required(&f.Discovery.Backend, "etcd", oneOf("kubernetes", "etcd", "file", "mem")), spec{name: "discovery_backend", flag: "discovery-backend", env: names("DYN_DISCOVERY_BACKEND"), help: "Where workers are discovered."})
	t.add(required(&p.Request, "tcp", oneOf("tcp", "nats")), spec{name: "request_plane", flag: "request-plane", env: names("DYN_REQUEST_PLANE"), help: "How requests reach workers."})
	t.add(required(&p.Response, "tcp", oneOf("tcp", "quic")), spec{name: "response_plane", flag: "response-plane", env: names("DYN_RESPONSE_PLANE"), help: "How answers come back; workers must agree."})
	t.add(required(&p.Event, "zmq", oneOf("zmq", "nats")), spec{name: "event_plane", flag: "event-plane", env: names("DYN_EVENT_PLANE"), help: "How events are published."})
	path := func(field *string, name, flag, env, help string) {
		t.add(required(field, "", text()), spec{name: name, flag: flag, env: names(env), help: help})
	}
	path(&p.TCPTLSCertPath, "tcp_tls_cert_path", "tcp-tls-cert-path", "DYN_TCP_TLS_CERT_PATH", "Certificate of the request plane's listener (PEM).")
	path(&p.TCPTLSKeyPath, "tcp_tls_key_path", "tcp-tls-key-path", "DYN_TCP_TLS_KEY_PATH", "Its private key (PEM).")
	path(&p.TCPTLSCAPath, "tcp_tls_ca_cert_path", "tcp-tls-ca-cert-path", "DYN_TCP_TLS_CA_CERT_PATH", "CA of the workers' certificates (PEM).")
	path(&p.TCPTLSClientCert, "tcp_tls_client_cert_path", "tcp-tls-client-cert-path", "DYN_TCP_TLS_CLIENT_CERT_PATH", "Client certificate shown to workers (PEM).")
	path(&p.TCPTLSClientKey, "tcp_tls_client_key_path", "tcp-tls-client-key-path", "DYN_TCP_TLS_CLIENT_KEY_PATH", "Its private key (PEM).")
	path(&p.TCPTLSClientCA, "tcp_tls_client_ca_cert_path", "tcp-tls-client-ca-cert-path", "DYN_TCP_TLS_CLIENT_CA_CERT_PATH", "CA of client certificates that workers must show (PEM).")
	t.add(toggle(&p.TCPTLSInsecure, false), spec{name: "tcp_tls_insecure", env: names("DYN_TCP_TLS_INSECURE"), help: "Do not verify the workers' certificates."})
	t.add(required(&p.TCPTLSServerName, "", text()), spec{name: "tcp_tls_server_name", env: names("DYN_TCP_TLS_SERVER_NAME"), help: "Name to verify in the workers' certificates."})
	t.add(required(&p.TCPTLSHandshakeTimeout, 3*time.Second, duration(time.Second, 0)), spec{name: "tcp_tls_handshake_timeout_secs", env: names("DYN_TCP_TLS_HANDSHAKE_TIMEOUT_SECS"), help: "Seconds for a TLS handshake on the request plane."})
	path(&p.NATSTLSCAPath, "nats_tls_ca_cert_path", "nats-tls-ca-cert-path", "NATS_TLS_CA_CERT_PATH", "CA of the NATS server's certificate (PEM).")
	t.add(toggle(&p.NATSTLSInsecure, false), spec{name: "nats_tls_insecure", flag: "nats-tls-insecure", env: names("NATS_TLS_INSECURE"), help: "Do not verify the NATS server's certificate."})
	path(&p.NATSTLSClientCert, "nats_tls_client_cert_path", "nats-tls-client-cert-path", "NATS_TLS_CLIENT_CERT_PATH", "Client certificate shown to NATS (PEM).")
	path(&p.NATSTLSClientKey, "nats_tls_client_key_path", "nats-tls-client-key-path", "NATS_TLS_CLIENT_KEY_PATH", "Its private key (PEM).")
	t.add(required(&p.ResponseHost, "", text()), spec{name: "tcp_response_stream_host", env: names("DYN_TCP_RESPONSE_STREAM_HOST"), help: "Network interface on which answers are awaited."})
	t.add(required(&p.ResponsePort, 0, whole(0, 65535)), spec{name: "tcp_response_stream_port", env: names("DYN_TCP_RESPONSE_STREAM_PORT"), help: "Port on which answers are awaited; 0 lets the system choose."})
	t.add(required(&p.PoolSize, 100, whole(1, 1<<16)), spec{name: "tcp_pool_size", env: names("DYN_TCP_POOL_SIZE"), help: "Request connections per worker."})
	t.add(required(&p.ConnectTimeout, 5*time.Second, duration(time.Second, 0)), spec{name: "tcp_connect_timeout", env: names("DYN_TCP_CONNECT_TIMEOUT"), help: "Seconds for a connection to a worker."})
	t.add(required(&p.RequestTimeout, 5*time.Second, duration(time.Second, 0)), spec{name: "tcp_request_timeout", env: names("DYN_TCP_REQUEST_TIMEOUT"), help: "Seconds for a worker to take a request."})
	t.add(required(&p.ConnectLimit, 64, whole(1, 1<<16)), spec{name: "tcp_global_connect_limit", env: names("DYN_TCP_GLOBAL_CONNECT_LIMIT"), help: "Connections being opened at one time."})
	t.add(required(&p.MaxMessageSize, 32<<20, whole(1024, 1<<31-1)), spec{name: "tcp_max_message_size", env: names("DYN_TCP_MAX_MESSAGE_SIZE"), help: "Largest frame on the request plane, in bytes."})
}

func (f *Frontend) declareRest() {
	t := f.table
	t.in("KServe gRPC")
	t.add(toggle(&f.KServe.Enabled, false), spec{name: "kserve_grpc_server", flag: "kserve-grpc-server", env: names("DYN_KSERVE_GRPC_SERVER"), help: "Serve KServe gRPC v2 instead of the HTTP inference API."})
	t.add(required(&f.KServe.MetricsPort, 8788, whole(0, 65535)), spec{name: "grpc_metrics_port", flag: "grpc-metrics-port", env: names("DYN_GRPC_METRICS_PORT"), help: "HTTP port of health and metrics beside the gRPC service."})
	t.add(required(&f.KServe.ConnectionWindow, 0, whole(0, 1<<31-1)), spec{name: "grpc_initial_connection_window_size", env: names("DYN_GRPC_INITIAL_CONNECTION_WINDOW_SIZE"), help: "HTTP/2 window of a gRPC connection, in bytes; 0 lets it grow by itself."})
	t.add(required(&f.KServe.StreamWindow, 0, whole(0, 1<<31-1)), spec{name: "grpc_initial_stream_window_size", env: names("DYN_GRPC_INITIAL_STREAM_WINDOW_SIZE"), help: "HTTP/2 window of a gRPC stream, in bytes; 0 lets it grow by itself."})
	t.in("Monitoring")
	m := &f.Monitoring
	t.add(required(&m.MetricsPrefix, "", text()), spec{name: "metrics_prefix", flag: "metrics-prefix", env: names("DYN_METRICS_PREFIX"), help: "Prefix of the frontend's metrics; dynamo_frontend without it."})
	t.add(required(&m.DumpConfigTo, "", text()), spec{name: "dump_config_to", flag: "dump-config-to", env: names("DYN_DUMP_CONFIG_TO"), help: "Write the resolved configuration to this file."})
	t.add(required(&m.Log, "info", text()), spec{name: "log", env: names("DYN_LOG"), help: "Log level: error, warn, info, debug or trace."})
	t.add(toggle(&m.LogJSON, false), spec{name: "logging_jsonl", env: names("DYN_LOGGING_JSONL"), help: "Log one JSON object per line."})
	t.add(toggle(&m.Explain, false), spec{name: "explain", env: names("SIGNALBOX_EXPLAIN"), help: "Record routing decisions with their candidates: the newest under /signalbox/decisions, all in the log at debug level. See signalbox explain."})
	t.in("Tokenizer")
	t.add(required(&f.Tokenizer.Backend, "default", oneOf("default", "fastokens", "basetenkenizer")), spec{name: "tokenizer_backend", flag: "tokenizer", env: names("DYN_TOKENIZER"), help: "Every value means the built-in tokenizer."})
	t.add(toggle(&f.Tokenizer.Fallback, true), spec{name: "tokenizer_fallback", flag: "tokenizer-fallback", env: names("DYN_TOKENIZER_FALLBACK"), help: "Accepted for compatibility: there is one tokenizer."})
	t.in("Protocol")
	p := &f.Protocol
	t.add(toggle(&p.Anthropic, false), spec{name: "enable_anthropic_api", flag: "enable-anthropic-api", env: names("DYN_ENABLE_ANTHROPIC_API"), help: "Serve the Anthropic Messages API under /v1/messages."})
	t.add(toggle(&p.StripAnthropicPreamble, true), spec{name: "strip_anthropic_preamble", flag: "strip-anthropic-preamble", env: names("DYN_STRIP_ANTHROPIC_PREAMBLE"), help: "Remove the billing line that agents put before their system prompt."})
	t.add(toggle(&p.StreamingToolDispatch, false), spec{name: "enable_streaming_tool_dispatch", flag: "enable-streaming-tool-dispatch", env: names("DYN_ENABLE_STREAMING_TOOL_DISPATCH"), help: "Send a tool_call_dispatch event for every complete call of a stream."})
	t.add(toggle(&p.StreamingReasoning, false), spec{name: "enable_streaming_reasoning_dispatch", flag: "enable-streaming-reasoning-dispatch", env: names("DYN_ENABLE_STREAMING_REASONING_DISPATCH"), help: "Send a reasoning_dispatch event for every complete reasoning block of a stream."})
	t.add(required(&p.ReasoningField, "reasoning_content", oneOf("reasoning_content", "reasoning")), spec{name: "reasoning_field_name", flag: "reasoning-field-name", env: names("DYN_REASONING_FIELD_NAME"), help: "Name of the reasoning field in chat answers."})
	t.add(toggle(&p.ExcludeToolsWhenNone, true), spec{name: "exclude_tools_when_tool_choice_none", flag: "exclude-tools-when-tool-choice-none", env: names("DYN_EXCLUDE_TOOLS_WHEN_TOOL_CHOICE_NONE"), help: "Leave tools out of the prompt when the client forbids calls."})
	t.add(toggle(&p.DisableExtensions, false), spec{name: "disable_frontend_nvext", env: names("DYN_DISABLE_FRONTEND_NVEXT"), help: "Ignore nvext and the routing headers."})
	t.add(toggle(&p.DisableAdmin, false), spec{name: "disable_frontend_admin_api", env: names("DYN_DISABLE_FRONTEND_ADMIN_API"), help: "Do not serve /busy_threshold."})
	t.add(required(&p.ParserVersion, "auto", oneOf("auto", "1", "2")), spec{name: "parser_version", env: names("DYN_PARSER_VERSION"), help: "Generation of the output parsers: auto and 1 are the first, 2 the second where there is one (DeepSeek V4, Gemma 4, GLM, Kimi, Qwen3-Coder)."})
	t.add(toggle(&p.ExperimentalParsers, false), spec{name: "enable_experimental_parsers_v2", env: names("DYN_ENABLE_EXPERIMENTAL_PARSERS_V2"), help: "Of release 1.5, without effect as in 1.6: DYN_PARSER_VERSION=2 takes its place."})
	t.add(toggle(&p.GenerateVLLM, false), spec{name: "vllm_inference_v1_generate", env: names("DYN_VLLM_ENABLE_INFERENCE_V1_GENERATE"), help: "Serve /inference/v1/generate."})
	t.add(toggle(&p.GenerateSGLang, false), spec{name: "sglang_generate", env: names("DYN_SGLANG_ENABLE_GENERATE"), help: "Serve /generate."})
	t.add(toggle(&p.ListRLWorkers, false), spec{name: "enable_rl", env: names("DYN_ENABLE_RL"), help: "Serve /v1/rl/workers on a port of its own."})
	t.add(required(&p.RLPort, 8001, whole(0, 65535)), spec{name: "rl_port", env: names("DYN_RL_PORT"), help: "That port."})
	t.add(required(&p.RLEndpoint, "rl", text()), spec{name: "rl_endpoint", env: names("DYN_RL_ENDPOINT"), help: "Name of the endpoints that list a worker's routes for reinforcement learning."})
	t.add(required(&p.RLComponents, "", text()), spec{name: "rl_components", env: names("DYN_RL_COMPONENTS", "DYN_RL_COMPONENT"), help: "Comma-separated components that are listed; all when empty."})
	t.add(required(&p.RLTimeout, 30, whole(1, 86400)), spec{name: "rl_request_timeout_secs", env: names("DYN_RL_REQUEST_TIMEOUT_SECS"), help: "Seconds that each worker has to answer."})
	t.add(required(&p.RLProbes, 32, whole(1, 1<<16)), spec{name: "rl_max_concurrent_probes", env: names("DYN_RL_MAX_CONCURRENT_PROBES"), help: "Workers that are asked at one time."})
	t.in("Experimental")
	e := &f.Experimental
	t.add(required(&e.ChatProcessor, "dynamo", oneOf("dynamo", "vllm", "sglang")), spec{name: "chat_processor", flag: "dyn-chat-processor", synonyms: names("chat-processor"), env: names("DYN_CHAT_PROCESSOR"), help: "Only dynamo is built in; the others name a Python engine."})
	t.add(toggle(&e.DebugPerf, false), spec{name: "debug_perf", flag: "dyn-debug-perf", env: names("DYN_DEBUG_PERF"), help: "Log the time of each preprocessing step."})
	t.add(required(&e.PreprocessWorkers, 0, whole(0, 1<<16)), spec{name: "preprocess_workers", flag: "dyn-preprocess-workers", env: names("DYN_PREPROCESS_WORKERS"), help: "Prompts that are prepared at one time; 0 takes one less than the processors."})
	t.add(toggle(&e.Interactive, false), spec{name: "interactive", flag: "interactive", short: 'i', env: names("DYN_INTERACTIVE"), help: "Chat in the terminal instead of serving."})
}

func (f *Frontend) declarePaths() {
	t, p := f.table, &f.Paths
	t.in("Endpoint Paths")
	path := func(field *string, word, standard string) {
		t.add(required(field, standard, routePath()), spec{name: "path_" + strings.ToLower(word), env: names("DYN_HTTP_SVC_"+word+"_PATH", "DYN_HTTP_SVC_"+word+"_PATH_ENV"), help: "Path of " + standard + "."})
	}
	path(&p.Chat, "CHAT", "/v1/chat/completions")
	path(&p.Completions, "CMP", "/v1/completions")
	path(&p.Embeddings, "EMB", "/v1/embeddings")
	path(&p.Responses, "RESPONSES", "/v1/responses")
	path(&p.Models, "MODELS", "/v1/models")
	path(&p.Anthropic, "ANTHROPIC", "/v1/messages")
	path(&p.Health, "HEALTH", "/health")
	path(&p.Live, "LIVE", "/live")
	path(&p.Metrics, "METRICS", "/metrics")
	path(&p.Classify, "CLASSIFY", "/v1/classify")
	path(&p.Pooling, "POOLING", "/v1/pooling")
	path(&p.GenerateVLLM, "VLLM_GENERATE", "/inference/v1/generate")
	path(&p.GenerateSGLang, "SGLANG_GENERATE", "/generate")
	t.in("Environment of Services")
	e := &f.Environment
	t.add(required(&e.FileStore, "", text()), spec{name: "file_kv", env: names("DYN_FILE_KV"), help: "Directory of the file discovery backend; dynamo_store_kv in the temporary directory without it."})
	t.add(required(&e.ETCDEndpoints, "", text()), spec{name: "etcd_endpoints", env: names("ETCD_ENDPOINTS"), help: "Comma-separated etcd URLs; ETCD_AUTH_* and ETCD_LEASE_TTL are read too."})
	t.add(required(&e.NATSServer, "", text()), spec{name: "nats_server", env: names("NATS_SERVER"), help: "NATS URL; NATS_AUTH_* are read too."})
}

// optionalText binds a text that is "" when unset and must not be blank when given.
func optionalText(field *string, what string) value {
	return required(field, "", orEmpty(filled(what)))
}

// optionalDirectory binds a directory that is "" when unset and must exist when given.
func optionalDirectory(field *string) value { return required(field, "", orEmpty(existingDirectory())) }

// orEmpty shows an empty default as unset and leaves the rest to the parser.
func orEmpty(p parser[string]) parser[string] {
	show := p.show
	p.show = func(v string) any {
		if v == "" {
			return nil
		}
		return show(v)
	}
	return p
}
