package settings

import "time"

// declareFrontend binds every setting of the frontend to its field.
func declareFrontend() *Frontend {
	f := &Frontend{table: newTable("frontend")}
	f.declareHTTP()
	f.declareRouter()
	f.declareScoring()
	f.declareIndexer()
	f.declareLoad()
	f.declareLoadModel()
	f.declareFaults()
	f.declareDiscovery()
	f.declareUpstream()
	f.declarePlanes()
	f.declareRest()
	f.declarePaths()
	return f
}

func (f *Frontend) declareHTTP() {
	t, h := f.table, &f.HTTP
	t.in("HTTP & Networking")
	t.add(required(&h.Host, "0.0.0.0", filled("an address or host name")), spec{name: "http_host", flag: "http-host", env: names("DYN_HTTP_HOST"), help: "HTTP listen address."})
	t.add(required(&h.Port, 8000, whole(0, 65535)), spec{name: "http_port", flag: "http-port", env: names("DYN_HTTP_PORT"), help: "HTTP listen port; the gRPC port with --kserve-grpc-server."})
	t.add(required(&h.TLSCertPath, "", text()), spec{name: "tls_cert_path", flag: "tls-cert-path", env: names("DYN_TLS_CERT_PATH"), help: "TLS certificate (PEM). Must be paired with --tls-key-path."})
	t.add(required(&h.TLSKeyPath, "", text()), spec{name: "tls_key_path", flag: "tls-key-path", env: names("DYN_TLS_KEY_PATH"), help: "TLS private key (PEM). Must be paired with --tls-cert-path."})
	t.add(required(&h.TLSClientCAPath, "", text()), spec{name: "tls_client_ca_cert_path", flag: "tls-client-ca-cert-path", env: names("DYN_TLS_CLIENT_CA_CERT_PATH"), help: "CA of client certificates (PEM); with it every client must show one."})
	t.add(required(&h.BodyLimitMB, 192, whole(1, 1<<20)), spec{name: "http_body_limit_mb", env: names("DYN_HTTP_BODY_LIMIT_MB"), help: "Largest request body in MiB."})
	t.add(required(&h.ShutdownTimeout, 5*time.Second, duration(time.Second, 0)), spec{name: "http_graceful_shutdown_timeout_secs", env: names("DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"), help: "Seconds that running answers may take to finish at shutdown."})
	t.add(required(&h.KeepAlive, 0, duration(time.Millisecond, 0)), spec{name: "http_sse_keep_alive_interval_ms", env: names("DYN_HTTP_SSE_KEEP_ALIVE_INTERVAL_MS"), help: "Idle milliseconds after which a comment is sent on a stream; 0 for never."})
	t.add(required(&h.ErrorPeek, 0, duration(time.Millisecond, 0)), spec{name: "http_pre_commit_error_peek_ms", env: names("DYN_HTTP_PRE_COMMIT_ERROR_PEEK_MS"), help: "Milliseconds that a stream's headers wait for the first item, so that an immediate error gets a real status; 0 for not."})
	t.add(required(&h.StreamTimeout, 0, duration(time.Second, 0)), spec{name: "http_backend_stream_timeout_secs", env: names("DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS"), help: "Seconds without an item from the worker after which a stream fails; 0 for none."})
	t.add(required(&h.OverloadStatus, 529, whole(200, 999)), spec{name: "http_overload_status_code", env: names("DYN_HTTP_OVERLOAD_STATUS_CODE"), help: "HTTP status of refusals for load."})
	t.add(required(&h.MetadataHeader, "x-dynamo-meta-", filled("a header prefix")), spec{name: "metadata_header", env: names("DYN_METADATA_HEADER"), help: "Prefix of headers that travel to the worker."})
	t.add(required(&h.ContextWindow, 0, whole(0, 1<<30)), spec{name: "context_window", env: names("DYN_CONTEXT_WINDOW"), help: "Context window shown in model listings, in tokens; 0 shows the model's own."})
	t.add(required(&h.MaxOutputTokens, 0, whole(0, 1<<30)), spec{name: "max_output_tokens", env: names("DYN_MAX_OUTPUT_TOKENS"), help: "Output limit shown in model listings, in tokens; 0 shows none."})
	t.add(toggle(&h.IgnoreUnknown, false), spec{name: "ignore_unsupported_fields", env: names("DYN_IGNORE_OPENAI_FE_UNSUPPORTED_FIELDS"), help: "Ignore unknown top-level fields of requests instead of refusing them."})
	t.add(toggle(&h.ForceUsage, false), spec{name: "force_include_usage", env: names("DYN_ENABLE_FORCE_INCLUDE_USAGE"), help: "Streams report usage without being asked."})
	t.add(required(&h.FileDescriptors, 8192, whole(-1, 1<<30)), spec{name: "fd_limit_target", env: names("DYN_FRONTEND_FD_LIMIT_TARGET"), help: "The soft limit of open files is raised to this at start; 0 or less leaves it."})
	t.add(collection(&h.RouteExtensions), spec{name: "frontend_route_extensions", flag: "frontend-route-extension", env: names("DYN_FRONTEND_ROUTE_EXTENSIONS"), help: "Switch on routes that were linked into the program under this name; Python entry points cannot be loaded."})
	t.add(toggle(&h.CommentNotes, false), spec{name: "annotations_as_comments", env: names("SIGNALBOX_ANNOTATIONS_AS_COMMENTS"), help: "Send annotations as comments alone, which no client library trips over."})
	t.add(required(&h.ClientStallLimit, 30*time.Second, duration(time.Second, 1)), spec{name: "client_stall_secs", env: names("SIGNALBOX_CLIENT_STALL_SECS"), help: "Seconds that a client may take nothing of its stream before it is dropped."})
}

func (f *Frontend) declareRouter() {
	t, r := f.table, &f.Router
	t.in("Router: Routing and Readiness")
	t.add(required(&r.Mode, RoundRobin, oneOf(RoundRobin, RandomMode, PowerOfTwo, KV, Direct, LeastLoaded, DeviceWeighted)), spec{name: "router_mode", flag: "router-mode", env: names("DYN_ROUTER_MODE"), help: "Routing strategy."})
	t.add(required(&r.MinInitialWorkers, 0, whole(0, 1<<30)), spec{name: "min_initial_workers", flag: "router-min-initial-workers", env: names("DYN_ROUTER_MIN_INITIAL_WORKERS"), help: "Workers that must be there before a model is served; 0 does not wait."})
	t.add(nullable(&r.AffinityTTL, wholeDuration(time.Second, 1, 31536000)), spec{name: "session_affinity_ttl_secs", flag: "router-session-affinity-ttl-secs", env: names("DYN_ROUTER_SESSION_AFFINITY_TTL_SECS"), help: "Enables session affinity with this idle time to live, in seconds."})
	t.add(required(&r.AffinityMode, "hard", oneOf("hard", "soft")), spec{name: "session_affinity_mode", flag: "router-session-affinity-mode", env: names("DYN_ROUTER_SESSION_AFFINITY_MODE"), help: "hard keeps a session on its worker, soft moves it when the worker is busy."})
	t.add(toggle(&r.DecodeFallback, false), spec{name: "decode_fallback", flag: "decode-fallback", env: names("DYN_DECODE_FALLBACK"), help: "Serve whole requests on decode workers while no prefill worker is there."})
	t.add(toggle(new(bool), false), spec{name: "enforce_disagg", flag: "enforce-disagg", env: names("DYN_ENFORCE_DISAGG"), hidden: true, ignored: "use --no-decode-fallback, which is the default", help: "Deprecated and ignored."})
	t.add(required(new(string), "", oneOf("token-capacity", "none")), spec{name: "admission_control", flag: "admission-control", env: names("DYN_ADMISSION_CONTROL"), hidden: true, ignored: "set the --active-* thresholds instead", help: "Deprecated and ignored."})
	t.add(toggle(&r.ConditionalDisagg, false), spec{name: "conditional_disagg_enabled", flag: "router-conditional-disagg", env: names("DYN_ROUTER_CONDITIONAL_DISAGG"), help: "Decide for each request whether it needs a prefill worker."})
	t.add(required(&r.ConditionalConfig, "", text()), spec{name: "conditional_disagg_config", flag: "router-conditional-disagg-config", env: names("DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG"), help: "Its rules, a JSON object."})
	t.add(required(&r.PrefillPolicy, "", text()), spec{name: "router_prefill_policy", flag: "router-prefill-policy", env: names("DYN_ROUTER_PREFILL_POLICY"), help: "Worker-selection policy instance of the prefill stage."})
	t.add(required(&r.DecodePolicy, "", text()), spec{name: "router_decode_policy", flag: "router-decode-policy", env: names("DYN_ROUTER_DECODE_POLICY"), help: "Worker-selection policy instance of the decode stage."})
	t.add(required(&r.SelectionPolicy, "", text()), spec{name: "worker_selection_policy", env: names("DYN_ROUTER_WORKER_SELECTION_POLICY"), help: "Worker-selection policy instance of every stage without one of its own."})
	t.add(required(&r.ShadowPolicy, "", text()), spec{name: "router_shadow_policy", flag: "router-shadow-policy", env: names("SIGNALBOX_ROUTER_SHADOW_POLICY"), help: "Worker-selection policy instance that decides along in every pool without effect; metrics compare it with the one in force."})
	t.add(required(&r.DeviceRatio, 8, whole(1, 1<<20)), spec{name: "encoder_cuda_to_cpu_ratio", env: names("DYN_ENCODER_CUDA_TO_CPU_RATIO"), help: "Throughput of one accelerator in CPU workers, for device-aware-weighted."})
	t.add(required(&r.Inhibited, 5*time.Second, duration(time.Second, 0)), spec{name: "inhibited_duration_secs", env: names("DYN_RUNTIME_INHIBITED_DURATION_SECS"), help: "Seconds that a worker which failed is set aside; 0 never sets one aside."})
	t.add(required(new(string), "", text()), spec{name: "lora_allocation", env: names("DYN_LORA_ALLOCATION_ENABLED", "DYN_LORA_ALLOCATION_ALGORITHM", "DYN_LORA_ALLOCATION_TIMESTEP_SECS",
		"DYN_LORA_ALLOCATION_SCALE_DOWN_COOLDOWN_TICKS", "DYN_LORA_ALLOCATION_RATE_WINDOW_MULTIPLIER", "DYN_LORA_ALLOCATION_BUCKETS_PER_SECOND", "DYN_LORA_ALLOCATION_PREDICTOR_TYPE",
		"DYN_LORA_ALLOCATION_EMA_ALPHA", "DYN_LORA_MCF_CONFIG"), hidden: true, ignored: "requests for an adapter go to the workers that have registered it", help: "Ignored."})
	t.add(toggle(&r.LoRA, false), spec{name: "lora_enabled", env: names("DYN_LORA_ENABLED"), help: "Route requests for LoRA adapters only to workers that have them."})
}

func (f *Frontend) declareScoring() {
	t, s := f.table, &f.Scoring
	t.in("Router: KV Scoring and Cache Locality")
	t.add(toggle(&s.LoadAware, false), spec{name: "load_aware", flag: "load-aware", env: names("DYN_ROUTER_LOAD_AWARE"), help: "Preset for KV routing by load without cache signals; implies --router-mode kv."})
	t.add(required(&s.OverlapCredit, 1, number(0, unbounded)), spec{name: "overlap_score_credit", flag: "router-kv-overlap-score-credit", env: names("DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT"), help: "Credit multiplier for device-local prefix overlap."})
	t.add(required(&s.OverlapCreditDecay, 0, number(0, unbounded)), spec{name: "overlap_score_credit_decay", flag: "router-kv-overlap-score-credit-decay", env: names("DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY"), help: "Decay of that credit as active prefill load rises above the least loaded worker; 0 for none."})
	t.add(required(&s.PrefillLoadScale, 1, number(0, unbounded)), spec{name: "prefill_load_scale", flag: "router-prefill-load-scale", env: names("DYN_ROUTER_PREFILL_LOAD_SCALE"), help: "Scale of prompt-side load after cache credits."})
	t.add(required(&s.DecodeActiveRequestWeight, 0, number(0, unbounded)), spec{name: "decode_active_request_weight", flag: "router-decode-active-request-weight", env: names("DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT"), help: "Cost of each active request, in blocks."})
	t.add(required(&s.HostCacheHitWeight, 0.75, number(0, 1)), spec{name: "host_cache_hit_weight", flag: "router-host-cache-hit-weight", env: names("DYN_ROUTER_HOST_CACHE_HIT_WEIGHT"), help: "Credit multiplier for host-pinned cache hits."})
	t.add(required(&s.DiskCacheHitWeight, 0.25, number(0, 1)), spec{name: "disk_cache_hit_weight", flag: "router-disk-cache-hit-weight", env: names("DYN_ROUTER_DISK_CACHE_HIT_WEIGHT"), help: "Credit multiplier for disk and other lower-tier cache hits."})
	t.add(required(&s.SharedCacheMultiplier, 0.5, number(0, 1)), spec{name: "shared_cache_multiplier", flag: "shared-cache-multiplier", env: names("DYN_SHARED_CACHE_MULTIPLIER"), help: "Experimental multiplier for external shared-cache hits."})
	t.add(required(&s.SharedCacheType, "none", oneOf("none", "hicache")), spec{name: "shared_cache_type", flag: "shared-cache-type", env: names("DYN_SHARED_CACHE_TYPE"), help: "Experimental external shared cache."})
	t.add(required(&s.SharedCacheEvents, "", text()), spec{name: "mooncake_kv_events_endpoint", env: names("DYN_MOONCAKE_KV_EVENTS_ENDPOINT"), help: "Where the master of the shared cache publishes its events (tcp://host:port), instead of where the workers say."})
	t.add(required(&s.Temperature, 0, number(0, unbounded)), spec{name: "router_temperature", flag: "router-temperature", env: names("DYN_ROUTER_TEMPERATURE"), help: "Softmax temperature of worker sampling; 0 is deterministic."})
	t.add(optional(&s.OverlapWeight, number(0, unbounded)), spec{name: "overlap_score_weight", flag: "router-kv-overlap-score-weight", oldFlags: names("kv-overlap-score-weight"), env: names("DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT"), oldEnv: names("DYN_OVERLAP_SCORE_WEIGHT"), hidden: true, help: "Deprecated: sets --router-prefill-load-scale, and 0 sets the overlap credit to 0 too."})
}

func (f *Frontend) declareIndexer() {
	t, x := f.table, &f.Indexer
	t.in("Router: KV State and Indexers")
	t.add(toggle(&x.KVEvents, true), spec{name: "use_kv_events", flag: "router-kv-events", oldFlags: names("kv-events"), env: names("DYN_ROUTER_USE_KV_EVENTS"), help: "Consume workers' KV cache events, or predict cache state from routing decisions."})
	t.add(required(&x.TTL, 120*time.Second, duration(time.Second, 0)), spec{name: "router_ttl_secs", flag: "router-ttl-secs", env: names("DYN_ROUTER_TTL_SECS"), help: "Seconds that predicted blocks live with --no-router-kv-events."})
	t.add(nullable(&x.PredictedTTL, duration(time.Second, 0)), spec{name: "router_predicted_ttl_secs", flag: "router-predicted-ttl-secs", env: names("DYN_ROUTER_PREDICTED_TTL_SECS"), help: "Enables a side indexer of routing decisions with this time to live, in seconds. Requires KV events."})
	t.add(required(&x.ApproximatePolicy, "ttl", oneOf("ttl", "lru")), spec{name: "router_approximate_cache_policy", flag: "router-approximate-cache-policy", env: names("DYN_ROUTER_APPROXIMATE_CACHE_POLICY"), help: "How predicted blocks end with --no-router-kv-events."})
	t.add(required(&x.EventThreads, 4, whole(1, 1024)), spec{name: "router_event_threads", flag: "router-event-threads", env: names("DYN_ROUTER_EVENT_THREADS"), help: "Threads that apply KV events to the index."})
	t.add(toggle(&x.UseRemote, false), spec{name: "use_remote_indexer", flag: "use-remote-indexer", env: names("DYN_USE_REMOTE_INDEXER"), help: "Experimental: query an indexer served on the worker component."})
	t.add(toggle(&x.Serve, false), spec{name: "serve_indexer", flag: "serve-indexer", env: names("DYN_SERVE_INDEXER"), help: "Serve this frontend's KV indexers over the request plane."})
	t.add(toggle(&x.SessionPrefixIndex, false), spec{name: "enable_session_prefix_index", flag: "enable-session-prefix-index", env: names("DYN_ENABLE_SESSION_PREFIX_INDEX"), help: "Accepted for compatibility: no routing decision depends on an index of sessions, so none is kept."})
	t.add(toggle(&x.ReplicaSync, false), spec{name: "router_replica_sync", flag: "router-replica-sync", env: names("DYN_ROUTER_REPLICA_SYNC"), help: "Share active sequences with other routers over the event plane."})
}

func (f *Frontend) declareLoad() {
	t, l := f.table, &f.Load
	t.in("Router: Active Load and Queueing")
	t.add(toggle(&l.TrackActiveBlocks, true), spec{name: "router_track_active_blocks", flag: "router-track-active-blocks", oldFlags: names("track-active-blocks"), env: names("DYN_ROUTER_TRACK_ACTIVE_BLOCKS"), help: "Track blocks used by requests in progress."})
	t.add(toggle(&l.TrackOutputBlocks, false), spec{name: "router_track_output_blocks", flag: "router-track-output-blocks", oldFlags: names("track-output-blocks"), env: names("DYN_ROUTER_TRACK_OUTPUT_BLOCKS"), help: "Track output blocks with fractional decay during generation."})
	t.add(toggle(&l.AssumeKVReuse, true), spec{name: "router_assume_kv_reuse", flag: "router-assume-kv-reuse", oldFlags: names("assume-kv-reuse"), env: names("DYN_ROUTER_ASSUME_KV_REUSE"), help: "Count prefixes that active requests share once."})
	t.add(toggle(&l.TrackPrefillTokens, true), spec{name: "router_track_prefill_tokens", flag: "router-track-prefill-tokens", env: names("DYN_ROUTER_TRACK_PREFILL_TOKENS"), help: "Count prompt tokens in active load."})
	t.add(required(&l.TrackingHash, "public-xxh3-v1", oneOf("public-xxh3-v1", "keyed-xxh3-v1")), spec{name: "router_tracking_hash", flag: "router-tracking-hash", env: names("DYN_ROUTER_TRACKING_HASH"), help: "Algorithm of tracking identities."})
	t.add(required(&l.TrackingKeyFile, "", text()), spec{name: "router_tracking_key_file", flag: "router-tracking-key-file", env: names("DYN_ROUTER_TRACKING_KEY_FILE"), help: "File of exactly 32 key bytes, for keyed-xxh3-v1."})
	t.add(required(&l.TrackingKeyID, "", text()), spec{name: "router_tracking_key_id", flag: "router-tracking-key-id", env: names("DYN_ROUTER_TRACKING_KEY_ID"), help: "Name of the key's epoch, for keyed-xxh3-v1."})
	t.add(required(&l.PrefillModel, "none", oneOf("none", "aic", "ais")), spec{name: "router_prefill_load_model", flag: "router-prefill-load-model", env: names("DYN_ROUTER_PREFILL_LOAD_MODEL"), help: "Model of prompt-side load; ais is another word for aic."})
	t.add(nullable(&l.QueueThreshold, number(0, unbounded)), spec{name: "router_queue_threshold", flag: "router-queue-threshold", env: names("DYN_ROUTER_QUEUE_THRESHOLD"), help: "Fraction of prefill capacity above which requests wait in a queue; unset never queues."})
	t.add(required(&l.QueuePolicy, "fcfs", oneOf("fcfs", "wspt")), spec{name: "router_queue_policy", flag: "router-queue-policy", env: names("DYN_ROUTER_QUEUE_POLICY"), help: "Order of the queue: fcfs for tail TTFT, wspt for average TTFT."})
	t.add(required(&l.PolicyConfig, "", text()), spec{name: "router_policy_config", flag: "router-policy-config", env: names("DYN_ROUTER_POLICY_CONFIG"), help: "YAML file of policy classes and worker selection, read at start."})
	t.add(required(&l.OverlapRefreshAfter, 10*time.Second, duration(time.Second, -86400)), spec{name: "router_overlap_refresh_after_secs", env: names("DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS"), help: "Seconds in the queue after which a request's overlap is looked up again; 0 or less for never."})
	t.add(required(&l.ActiveRequestExpiry, 300*time.Second, duration(time.Second, 1)), spec{name: "router_active_request_expiry_secs", env: names("DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS"), help: "Seconds without progress after which a request is no longer counted as load."})
}

func (f *Frontend) declareLoadModel() {
	t, m := f.table, &f.LoadModel
	t.in("AIC Prefill Load Model")
	word := func(field *string, name, help string) {
		env := "DYN_AIC_" + upper(name)
		t.add(required(field, "", text()), spec{name: "ais_" + snake(name), flag: "aic-" + name, synonyms: names("ais-" + name), env: names(env, "DYN_AIS_"+upper(name)), help: help})
	}
	size := func(field *Optional[int], name, help string) {
		t.add(optional(field, whole(1, 1<<20)), spec{name: "ais_" + snake(name), flag: "aic-" + name, synonyms: names("ais-" + name), env: names("DYN_AIC_"+upper(name), "DYN_AIS_"+upper(name)), help: help})
	}
	word(&m.Backend, "backend", "Backend family to model, for example vllm or sglang.")
	word(&m.System, "system", "Hardware to model, for example h200_sxm.")
	word(&m.ModelPath, "model-path", "Model to look up in the performance data.")
	word(&m.BackendVersion, "backend-version", "Version of the performance data; the backend's own default without it.")
	t.add(required(&m.TPSize, 1, whole(1, 1<<20)), spec{name: "ais_tp_size", flag: "aic-tp-size", synonyms: names("ais-tp-size"), env: names("DYN_AIC_TP_SIZE", "DYN_AIS_TP_SIZE"), help: "Tensor-parallel size."})
	size(&m.MoETPSize, "moe-tp-size", "MoE tensor-parallel size.")
	size(&m.MoEEPSize, "moe-ep-size", "MoE expert-parallel size.")
	size(&m.AttentionDPSize, "attention-dp-size", "Attention data-parallel size of MoE models.")
	size(&m.NextN, "nextn", "Draft tokens of multi-token prediction, 1 to 5.")
	word(&m.NextNAcceptRates, "nextn-accept-rates", "Acceptance rates of the draft tokens, comma separated.")
	t.add(required(&m.MTPSeed, 42, whole(0, 1<<62)), spec{name: "ais_mtp_seed", flag: "aic-mtp-seed", synonyms: names("ais-mtp-seed"), env: names("DYN_AIC_MTP_SEED", "DYN_AIS_MTP_SEED"), help: "Seed of the draft sampling."})
	word(&m.PerfConfig, "perf-config", "Performance model configuration.")
}

func (f *Frontend) declareFaults() {
	t, x := f.table, &f.Faults
	t.in("Fault Tolerance")
	t.add(required(&x.MigrationLimit, 0, whole(0, 1<<32-1)), spec{name: "migration_limit", flag: "migration-limit", env: names("DYN_MIGRATION_LIMIT"), help: "How often a stream may move to another worker; 0 is never."})
	t.add(nullable(&x.MigrationMaxSeqLen, whole(1, 1<<32-1)), spec{name: "migration_max_seq_len", flag: "migration-max-seq-len", env: names("DYN_MIGRATION_MAX_SEQ_LEN"), help: "Sequence length in tokens beyond which a stream no longer moves."})
	t.add(nullable(&x.DecodeBlocksThreshold, number(0, 1)), spec{name: "active_decode_blocks_threshold", flag: "active-decode-blocks-threshold", env: names("DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD"), help: "KV cache utilisation above which a worker is busy."})
	t.add(nullable(&x.PrefillTokensThreshold, whole(0, 1<<62)), spec{name: "active_prefill_tokens_threshold", flag: "active-prefill-tokens-threshold", env: names("DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD"), help: "Active prefill tokens above which a worker is busy."})
	t.add(nullable(&x.PrefillTokensFraction, number(0, unbounded)), spec{name: "active_prefill_tokens_threshold_frac", flag: "active-prefill-tokens-threshold-frac", env: names("DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC"), help: "The same as a fraction of max_num_batched_tokens."})
	t.add(required(&x.HoldPatience, 0, duration(time.Second, 0)), spec{name: "hold_secs", env: names("SIGNALBOX_HOLD_SECS"), help: "Seconds that a request waits for a worker when its model has none, as in a fleet that scales to zero; such models stay listed. 0 refuses it at once."})
	t.add(required(&x.HoldLimit, 1000, whole(1, 1<<20)), spec{name: "hold_requests", env: names("SIGNALBOX_HOLD_REQUESTS"), help: "Requests that may wait so; more are refused as overload."})
	t.add(collection(&x.KeptModels), spec{name: "kept_models", env: names("SIGNALBOX_KEPT_MODELS"), help: "Models that are listed, and wait so, although no worker has served them yet."})
}
