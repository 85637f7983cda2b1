package settings

import "time"

// Frontend is everything that `signalbox frontend` can be told, grouped as --help groups it.
type Frontend struct {
	HTTP         HTTP
	Router       Router
	Scoring      Scoring
	Indexer      Indexer
	Load         Load
	LoadModel    LoadModel
	Faults       Faults
	Discovery    Discovery
	Planes       Planes
	KServe       KServe
	Monitoring   Monitoring
	Tokenizer    Tokenizer
	Protocol     Protocol
	Experimental Experimental
	Paths        Paths
	Upstream     Upstream
	Environment  Environment

	table *table
}

// HTTP says where and how the API listens.
type HTTP struct {
	Host             string
	Port             int
	TLSCertPath      string
	TLSKeyPath       string
	TLSClientCAPath  string
	BodyLimitMB      int
	ShutdownTimeout  time.Duration
	KeepAlive        time.Duration // of idle streams; 0 for none
	ErrorPeek        time.Duration
	StreamTimeout    time.Duration // between two items of a worker; 0 for none
	OverloadStatus   int
	MetadataHeader   string
	ContextWindow    int // overrides the model listing; 0 leaves it
	MaxOutputTokens  int
	IgnoreUnknown    bool
	ForceUsage       bool
	FileDescriptors  int
	RouteExtensions  []string
	CommentNotes     bool
	ClientStallLimit time.Duration
}

// Router says how workers are chosen.
type Router struct {
	Mode              RouterMode
	MinInitialWorkers int
	AffinityTTL       Optional[time.Duration]
	AffinityMode      string
	DecodeFallback    bool
	ConditionalDisagg bool
	ConditionalConfig string
	PrefillPolicy     string
	DecodePolicy      string
	SelectionPolicy   string
	ShadowPolicy      string
	DeviceRatio       int
	Inhibited         time.Duration // negative: workers are never set aside
	LoRA              bool
}

// RouterMode is a way of choosing workers.
type RouterMode string

// The router modes.
const (
	RoundRobin     RouterMode = "round-robin"
	RandomMode     RouterMode = "random"
	PowerOfTwo     RouterMode = "power-of-two"
	KV             RouterMode = "kv"
	Direct         RouterMode = "direct"
	LeastLoaded    RouterMode = "least-loaded"
	DeviceWeighted RouterMode = "device-aware-weighted"
)

// Scoring weighs cache locality against load in kv mode.
type Scoring struct {
	LoadAware                 bool
	OverlapCredit             float64
	OverlapCreditDecay        float64
	PrefillLoadScale          float64
	DecodeActiveRequestWeight float64
	HostCacheHitWeight        float64
	DiskCacheHitWeight        float64
	SharedCacheMultiplier     float64
	SharedCacheType           string
	SharedCacheEvents         string
	Temperature               float64
	OverlapWeight             Optional[float64] // deprecated: replaces PrefillLoadScale
}

// Indexer says how the router knows what workers have cached.
type Indexer struct {
	KVEvents           bool
	TTL                time.Duration
	PredictedTTL       Optional[time.Duration]
	ApproximatePolicy  string
	EventThreads       int
	UseRemote          bool
	Serve              bool
	SessionPrefixIndex bool
	ReplicaSync        bool
}

// Load says what counts as a worker's load and who waits for room.
type Load struct {
	TrackActiveBlocks   bool
	TrackOutputBlocks   bool
	AssumeKVReuse       bool
	TrackPrefillTokens  bool
	TrackingHash        string
	TrackingKeyFile     string
	TrackingKeyID       string
	PrefillModel        string
	QueueThreshold      Optional[float64]
	QueuePolicy         string
	PolicyConfig        string
	OverlapRefreshAfter time.Duration
	ActiveRequestExpiry time.Duration
}

// LoadModel names the performance model behind --router-prefill-load-model.
type LoadModel struct {
	Backend, System, ModelPath, BackendVersion string
	TPSize                                     int
	MoETPSize, MoEEPSize, AttentionDPSize      Optional[int]
	NextN                                      Optional[int]
	NextNAcceptRates                           string
	MTPSeed                                    int
	PerfConfig                                 string
}

// Faults says what happens when workers fail or are full.
type Faults struct {
	MigrationLimit         int
	MigrationMaxSeqLen     Optional[int]
	DecodeBlocksThreshold  Optional[float64]
	PrefillTokensThreshold Optional[int]
	PrefillTokensFraction  Optional[float64]
	HoldPatience           time.Duration // 0: requests for models without workers are refused
	HoldLimit              int
	KeptModels             []string
}

// Discovery says which workers are looked for, and where.
type Discovery struct {
	Backend         string
	Namespace       string
	NamespacePrefix string
	ModelName       string
	ModelPath       string
	BlockSize       Optional[int]
	TrustRemoteCode bool
}

// Upstream names plain inference servers that are workers too: vLLM, SGLang, llama.cpp, or any that speaks OpenAI's API.
type Upstream struct {
	// Servers are URLs with options in their query, each one word or several joined by commas. File is a YAML file with more.
	Servers []string
	File    string
	// Every is the pause between two looks at a server.
	Every time.Duration
}

// Planes says how workers are reached.
type Planes struct {
	Request, Response, Event                                                                       string
	TCPTLSCertPath, TCPTLSKeyPath, TCPTLSCAPath, TCPTLSClientCert, TCPTLSClientKey, TCPTLSClientCA string
	TCPTLSInsecure                                                                                 bool
	TCPTLSServerName                                                                               string
	TCPTLSHandshakeTimeout                                                                         time.Duration
	NATSTLSCAPath, NATSTLSClientCert, NATSTLSClientKey                                             string
	NATSTLSInsecure                                                                                bool
	ResponseHost                                                                                   string // an interface's name
	ResponsePort                                                                                   int
	PoolSize                                                                                       int
	ConnectTimeout, RequestTimeout                                                                 time.Duration
	ConnectLimit                                                                                   int
	MaxMessageSize                                                                                 int // bytes
}

// KServe switches the gRPC service.
type KServe struct {
	Enabled     bool
	MetricsPort int
	// ConnectionWindow and StreamWindow are HTTP/2 windows in bytes; 0 lets them grow by themselves.
	ConnectionWindow, StreamWindow int
}

// Monitoring says what is told about the service.
type Monitoring struct {
	MetricsPrefix string
	DumpConfigTo  string
	Log           string
	LogJSON       bool
	Explain       bool
}

// Tokenizer chooses the tokenizer.
type Tokenizer struct {
	Backend  string
	Fallback bool
}

// Protocol switches parts of the protocols.
type Protocol struct {
	Anthropic              bool
	StripAnthropicPreamble bool
	StreamingToolDispatch  bool
	StreamingReasoning     bool
	ReasoningField         string
	ExcludeToolsWhenNone   bool
	DisableExtensions      bool
	DisableAdmin           bool
	ParserVersion          string
	ExperimentalParsers    bool // of 1.5; only warned about
	// GenerateVLLM and GenerateSGLang serve the routes in the shape of those engines; ListRLWorkers serves /v1/rl/workers at RLPort.
	GenerateVLLM, GenerateSGLang bool
	ListRLWorkers                bool
	RLPort                       int
	RLEndpoint                   string
	RLComponents                 string
	RLTimeout                    int
	RLProbes                     int
}

// Experimental is what may change.
type Experimental struct {
	ChatProcessor     string
	DebugPerf         bool
	PreprocessWorkers int
	Interactive       bool
}

// Paths are the routes that can be moved.
type Paths struct {
	Chat, Completions, Embeddings, Responses, Models, Anthropic, Health, Live, Metrics, Classify, Pooling string
	GenerateVLLM, GenerateSGLang                                                                          string
}

// Environment is what only variables set.
type Environment struct {
	FileStore     string
	ETCDEndpoints string
	NATSServer    string
	LogLevelNote  string
}

// LoadFrontend reads a command line and an environment. ErrHelp and ErrVersion come alone.
func LoadFrontend(args, environ []string) (*Frontend, []Warning, error) {
	f := declareFrontend()
	warnings, err := f.table.load(args, environ)
	if err != nil {
		return nil, warnings, err
	}
	more, err := f.resolve()
	warnings = append(warnings, more...)
	if err != nil {
		return nil, warnings, err
	}
	return f, warnings, nil
}

// Origin tells where a setting's value came from, by its key in the configuration dump.
func (f *Frontend) Origin(name string) (Origin, bool) { return f.table.originOf(name) }

// redacted stands for a secret in messages and dumps.
const redacted = "<redacted>"

// allTables returns the tables of every command, for what must know all variables.
func allTables() []*table { return []*table{declareFrontend().table, declareWorker().table} }
