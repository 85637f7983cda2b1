package settings

import "time"

// Worker is everything that `signalbox worker` can be told. The flags are those of Dynamo's mock worker where they mean the same.
type Worker struct {
	ModelPath, ModelName string
	Adapters             []string // LoRA
	LoadsAdapters        bool
	AdapterSlots         int
	SystemHost           string
	SystemPort           int // below 0: no status server
	Endpoint             string
	Workers              int
	BlockSize            int
	Blocks               int
	MaxModelLength       Optional[int]
	MaxSequences         int
	MaxBatchedTokens     int
	PrefixCaching        bool
	ChunkedPrefill       bool
	Speedup              float64
	DecodeSpeedup        float64
	Ranks                int
	ReplayTrace          string
	ScriptFile           string
	Numbered             bool
	ToolParser           string
	ReasoningParser      string
	ContextLength        int
	DefaultMaxTokens     int
	Role                 string
	DiscoveryBackend     string
	RequestPlane         string
	EventPlane           string
	Host                 string
	DrainTimeout         time.Duration
	Log                  string

	table *table
}

func declareWorker() *Worker {
	w := &Worker{table: newTable("worker")}
	t := w.table
	t.in("Model")
	t.add(optionalDirectory(&w.ModelPath), spec{name: "model_path", flag: "model-path", help: "Model directory with tokenizer.json; a small built-in model without it."})
	t.add(required(&w.ModelName, "", text()), spec{name: "model_name", flag: "model-name", help: "Served name; the model's path without it."})
	t.add(collection(&w.Adapters), spec{name: "lora", flag: "lora", help: "Name of a LoRA adapter to register besides the model; may be given several times."})
	t.add(toggle(&w.LoadsAdapters, false), spec{name: "enable_lora", flag: "enable-lora", env: names("DYN_LORA_ENABLED"), help: "Load and unload LoRA adapters on request: by load_lora, unload_lora and list_loras beside the endpoint, and by /v1/loras of the status server."})
	t.add(required(&w.AdapterSlots, 0, whole(0, 1<<20)), spec{name: "max_loras", flag: "max-loras", help: "LoRA adapters loaded at a time, as told in the model card; 0 for any number, without telling."})
	t.add(required(&w.Endpoint, "", text()), spec{name: "endpoint", flag: "endpoint", help: "dyn://namespace.component.endpoint to serve; dyn://dynamo.backend.generate without it, dyn://dynamo.prefill.generate for prefill workers."})
	t.add(required(&w.ToolParser, "", text()), spec{name: "tool_call_parser", flag: "dyn-tool-call-parser", help: "Tool-call parser that frontends run on the output."})
	t.add(required(&w.ReasoningParser, "", text()), spec{name: "reasoning_parser", flag: "dyn-reasoning-parser", help: "Reasoning parser that frontends run on the output."})
	t.add(required(&w.ContextLength, 0, whole(0, 1<<31)), spec{name: "context_length", flag: "context-length", help: "Context length in the model card, in tokens; 0 says unknown."})
	t.in("Engine")
	t.add(required(&w.Workers, 1, whole(1, 1024)), spec{name: "num_workers", flag: "num-workers", help: "Workers in this process."})
	t.add(required(&w.BlockSize, 64, whole(1, 1<<16)), spec{name: "block_size", flag: "block-size", help: "Tokens per KV block."})
	t.add(required(&w.Blocks, 16384, whole(1, 1<<30)), spec{name: "num_gpu_blocks", flag: "num-gpu-blocks-override", help: "KV capacity of each data-parallel rank, in blocks."})
	t.add(optional(&w.MaxModelLength, whole(1, 1<<30)), spec{name: "max_model_len", flag: "max-model-len", help: "Longest sequence, prompt and output, in tokens."})
	t.add(required(&w.MaxSequences, 256, whole(1, 1<<20)), spec{name: "max_num_seqs", flag: "max-num-seqs", help: "Sequences per step."})
	t.add(required(&w.MaxBatchedTokens, 8192, whole(1, 1<<30)), spec{name: "max_num_batched_tokens", flag: "max-num-batched-tokens", help: "Tokens per step."})
	t.add(toggle(&w.PrefixCaching, true), spec{name: "enable_prefix_caching", flag: "enable-prefix-caching", help: "Keep the blocks of finished requests for prompts that begin alike."})
	t.add(toggle(&w.ChunkedPrefill, true), spec{name: "enable_chunked_prefill", flag: "enable-chunked-prefill", help: "Compute long prompts in parts."})
	t.add(required(&w.Speedup, 1, number(0, unbounded)), spec{name: "speedup_ratio", flag: "speedup-ratio", help: "Divides all simulated times; 0 does not wait at all."})
	t.add(required(&w.DecodeSpeedup, 1, number(0, unbounded)), spec{name: "decode_speedup_ratio", flag: "decode-speedup-ratio", help: "Divides decode times once more."})
	t.add(required(&w.Ranks, 1, whole(1, 1024)), spec{name: "dp_size", flag: "data-parallel-size", help: "Data-parallel ranks of each worker."})
	t.add(required(&w.DefaultMaxTokens, 0, whole(0, 1<<30)), spec{name: "default_max_tokens", flag: "default-max-tokens", help: "Output length of requests that name none; 0 refuses them, as the mock worker does."})
	t.add(required(&w.ReplayTrace, "", text()), spec{name: "response_replay_trace_path", flag: "response-replay-trace-path", help: "JSON lines of scripted outputs, chosen by the annotation output_replay_id:KEY."})
	t.add(required(&w.ScriptFile, "", text()), spec{name: "script_path", flag: "script-path", help: "JSON object of scripted item lists, chosen by the annotation script:NAME."})
	t.add(toggle(&w.Numbered, false), spec{name: "number_tokens", flag: "number-tokens", help: "Output tokens tell their position in the sequence, so that a test sees any that is lost or doubled."})
	t.add(required(&w.Role, "agg", oneOf("agg", "prefill", "decode")), spec{name: "disaggregation_mode", flag: "disaggregation-mode", help: "Part of a disaggregated model that the worker plays."})
	t.in("Infrastructure")
	t.add(required(&w.DiscoveryBackend, "etcd", oneOf("kubernetes", "etcd", "file", "mem")), spec{name: "discovery_backend", flag: "discovery-backend", env: names("DYN_DISCOVERY_BACKEND"), help: "Where the worker registers."})
	t.add(required(&w.RequestPlane, "tcp", oneOf("tcp", "nats")), spec{name: "request_plane", flag: "request-plane", env: names("DYN_REQUEST_PLANE"), help: "How requests arrive."})
	t.add(required(&w.EventPlane, "zmq", oneOf("zmq", "nats", "none")), spec{name: "event_plane", flag: "event-plane", env: names("DYN_EVENT_PLANE"), help: "How KV events are published; none publishes nothing."})
	t.add(required(&w.Host, "", text()), spec{name: "tcp_rpc_host", env: names("DYN_TCP_RPC_HOST"), help: "Address to listen on and to register; the machine's first without it."})
	t.add(required(&w.SystemHost, "0.0.0.0", filled("an address or host name")), spec{name: "system_host", env: names("DYN_SYSTEM_HOST"), help: "Address that the status server listens on."})
	t.add(required(&w.SystemPort, -1, whole(-1, 65535)), spec{name: "system_port", env: names("DYN_SYSTEM_PORT"), help: "Port of the status server with /health, /live and /v1/loras; 0 lets the system choose, -1 starts none."})
	t.add(required(&w.DrainTimeout, 30*time.Second, duration(time.Second, 0)), spec{name: "runtime_graceful_shutdown_timeout_secs", env: names("DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"), help: "Seconds that running requests may take to finish at shutdown; what then still runs is broken off, for frontends to move elsewhere."})
	t.add(required(&w.Log, "info", text()), spec{name: "log", env: names("DYN_LOG"), help: "Log level: error, warn, info, debug or trace."})
	return w
}

// LoadWorker reads a command line and an environment. ErrHelp and ErrVersion come alone.
func LoadWorker(args, environ []string) (*Worker, []Warning, error) {
	w := declareWorker()
	warnings, err := w.table.load(args, environ)
	return w, warnings, err
}

// Demo is everything that `signalbox demo` can be told.
type Demo struct {
	Workers    int
	Host       string
	Port       int
	ModelPath  string
	Speedup    float64
	RouterMode RouterMode
	Quiet      bool

	table *table
}

func declareDemo() *Demo {
	d := &Demo{table: newTable("demo")}
	t := d.table
	t.in("Demo")
	t.add(required(&d.Workers, 4, whole(1, 64)), spec{name: "workers", flag: "workers", help: "Simulated workers."})
	t.add(required(&d.Host, "127.0.0.1", filled("an address or host name")), spec{name: "http_host", flag: "http-host", help: "HTTP listen address."})
	t.add(required(&d.Port, 8000, whole(0, 65535)), spec{name: "http_port", flag: "http-port", help: "HTTP listen port; 0 lets the system choose."})
	t.add(optionalDirectory(&d.ModelPath), spec{name: "model_path", flag: "model-path", help: "Model directory with tokenizer.json; a small built-in model without it."})
	t.add(required(&d.Speedup, 1, number(0, unbounded)), spec{name: "speedup_ratio", flag: "speedup-ratio", help: "Divides all simulated times; 0 does not wait at all."})
	t.add(required(&d.RouterMode, defaultDemoMode, oneOf(RoundRobin, RandomMode, PowerOfTwo, KV, LeastLoaded, DeviceWeighted)), spec{name: "router_mode", flag: "router-mode", help: "Routing strategy."})
	t.add(toggle(&d.Quiet, false), spec{name: "quiet", flag: "quiet", help: "Do not show the live table."})
	return d
}

const defaultDemoMode = KV

// LoadDemo reads a command line. ErrHelp and ErrVersion come alone.
func LoadDemo(args []string) (*Demo, []Warning, error) {
	d := declareDemo()
	warnings, err := d.table.load(args, nil)
	return d, warnings, err
}
