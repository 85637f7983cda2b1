// Package inference holds the neutral types that carry a request through the product: a tokenised Request on its way to a
// worker, the Output items that come back, and the Error kinds that both sides understand. Protocols (OpenAI, Anthropic,
// KServe), transports (TCP, NATS, plain HTTP engines) and the router translate to and from these; nothing else crosses
// rooms. The package knows no wire format, no HTTP and no worker.
package inference

// Request is one tokenised generation request. Optional scalars are pointers: nil means "the client did not say", and the
// engine's own default applies. The names follow the Dynamo request plane's PreprocessedRequest.
type Request struct {
	// ID is the request's own UUID. It names the request to the worker, in logs and in traces; a migrated request keeps it.
	ID string
	// Model is the served name of the model card, never an alias.
	Model string
	// TokenIDs is the prompt after templating and tokenisation (ISL = len). Owners append to it only when a stream migrates.
	TokenIDs []uint32

	Stop     StopConditions
	Sampling SamplingOptions
	Output   OutputOptions

	// EOSTokenIDs are the model's end-of-sequence ids; empty with ignore_eos.
	EOSTokenIDs []uint32
	// CardChecksum is the digest of the model card that the frontend prepared the request for (mdc_sum).
	CardChecksum string
	// Annotations are the client's nvext.annotations plus router markers such as "x-bypass-remote-prefill".
	Annotations []string
	// RouterOverride replaces scoring parameters for this request alone; nil for none.
	RouterOverride *RouterOverride
	Routing        Routing

	// PrefillResult hands a finished prefill to the decode worker; Bootstrap points it at a running one. At most one is set.
	PrefillResult *PrefillResult
	Bootstrap     *Bootstrap

	// MultiModal lists the media of the prompt by kind ("image_url", "video_url", "audio_url").
	MultiModal map[string][]Media
	// MultiModalRouting carries the cache identity of media; for routing only.
	MultiModalRouting *MultiModalRouting
	// PromptEmbeds is a base64 tensor that replaces TokenIDs; "" for none.
	PromptEmbeds string

	// The members below are passed to the worker as they are: raw JSON texts, nil when absent.
	ExtraArgs         []byte
	EncoderResult     []byte
	MediaIOArgs       []byte
	MMProcessorArgs   []byte
	AgentContext      *AgentContext
	RequireReasoning  bool
	TTFTTarget        *float64 // seconds wanted until the first token
	ITLTarget         *float64 // seconds wanted between tokens
	RequestTimestamp  *float64 // milliseconds since the epoch, as the client sent it
	HealthCheck       bool
	Metadata          map[string]string // pass-through metadata headers, prefix removed
	TraceParent       string            // W3C traceparent for the worker; "" when tracing is off
	TraceState        string
	ClientRequestID   string // the client's x-request-id, for the worker's logs
	ExpandedPromptLen int    // prompt length with media expanded; 0 = len(TokenIDs)
}

// StopConditions say when generation ends. Lengths are in tokens.
type StopConditions struct {
	MaxTokens         *uint32
	MinTokens         *uint32
	MaxThinkingTokens *uint32
	// Strings are matched on detokenised text by the frontend; workers may match them too.
	Strings []string
	// TokenIDs are the client's stop_token_ids; the worker receives them with the end-of-sequence ids in HiddenTokenIDs.
	TokenIDs        []uint32
	VisibleTokenIDs []uint32
	HiddenTokenIDs  []uint32
	IgnoreEOS       *bool
}

// SamplingOptions steer how the next token is drawn.
type SamplingOptions struct {
	N                 *uint8
	BestOf            *uint8
	PresencePenalty   *float32
	FrequencyPenalty  *float32
	RepetitionPenalty *float32
	Temperature       *float32
	TopP              *float32
	TopK              *int32
	MinP              *float32
	UseBeamSearch     *bool
	LengthPenalty     *float32
	Seed              *int64
	IncludeStopString *bool
	Guided            *GuidedDecoding
	// LogitBias maps token ids to a bias from -100 to 100.
	LogitBias map[uint32]float32
}

// GuidedDecoding constrains the output's form. Exactly one of JSON, Regex, Choice, Grammar, StructuralTag is set.
type GuidedDecoding struct {
	JSON              []byte // a JSON schema, raw
	Regex             string
	Choice            []string
	Grammar           string
	StructuralTag     []byte // raw JSON
	Backend           string
	WhitespacePattern string
}

// OutputOptions ask for extras beside the tokens.
type OutputOptions struct {
	Logprobs               *uint32 // number of alternatives per position; 0 = only the chosen token's
	PromptLogprobs         *uint32
	SkipSpecialTokens      *bool
	FormattedPrompt        *bool
	ReturnTokensAsTokenIDs *bool
}

// Routing is what the client and the router say about where the request runs.
type Routing struct {
	BackendInstanceID *uint64
	PrefillWorkerID   *uint64
	DecodeWorkerID    *uint64
	DPRank            *uint32
	PrefillDPRank     *uint32
	// ExpectedOutputTokens is the client's guess of the OSL (agent_hints.osl).
	ExpectedOutputTokens *uint32
	LoRAName             string
	CacheSalt            string
	PriorityJump         *float64 // seconds of head start in the queue
	Priority             *int32
	StrictPriority       *uint32
	AllowedWorkerIDs     []uint64
	RequiredTaints       []string
	PreferredTaints      map[string]float32
	// SessionID binds requests of one conversation to one worker; "" for none. It never goes to the worker.
	SessionID string
	// PolicyClass is the client's x-dynamo-meta-policy-class; "" for none.
	PolicyClass string
	// QueryOnly asks for a placement without booking or dispatch (annotation query_instance_id).
	QueryOnly bool
}

// RouterOverride replaces router settings for one request; nil members keep the router's own.
type RouterOverride struct {
	OverlapScoreCredit    *float64
	PrefillLoadScale      *float64
	RouterTemperature     *float64
	AssumeKVReuse         *bool
	TrackPrefillTokens    *bool
	SharedCacheMultiplier *float64
}

// PrefillResult is what a prefill worker returned for the decode worker. The parameters are engine-owned bytes in the
// encoding named by ParamsCodec and are passed on unchanged.
type PrefillResult struct {
	DisaggregatedParams Opaque
	CachedTokens        *uint32 // from prompt_tokens_details
}

// Bootstrap tells both legs of a disaggregated request where to meet.
type Bootstrap struct {
	Host      string
	Port      uint16
	Room      uint64
	HandoffID [16]byte // UUID
}

// Opaque is an engine-owned value kept in the encoding that it arrived in, so that no integer or float is ever rewritten.
type Opaque struct {
	Codec Codec
	Bytes []byte
}

// IsZero tells whether there is no value at all.
func (o Opaque) IsZero() bool { return len(o.Bytes) == 0 }

// Codec names the encoding of a body on the request plane.
type Codec uint8

const (
	// JSON is the encoding of workers that do not say otherwise.
	JSON Codec = iota
	// MessagePack is the compact encoding that current workers ask for.
	MessagePack
)

// String returns the codec's name on the wire.
func (c Codec) String() string {
	if c == MessagePack {
		return "msgpack"
	}
	return "json"
}

// Media is one image, video or audio of the prompt: where it is, the name under which the worker may have it cached, or both.
type Media struct {
	URL  string
	UUID string
}

// MultiModalRouting gives the token ids that stand for media when blocks are hashed, and the media in each block.
type MultiModalRouting struct {
	RoutingTokenIDs   []uint32
	Blocks            [][]MediaSpan // per block; nil = no media in the block
	ExpandedPromptLen int
}

// MediaSpan is one medium's place in a block: token offsets [Start, End) relative to the prompt.
type MediaSpan struct {
	Hash    uint64
	Offsets [][2]int
}

// AgentContext is the session that an agent's request belongs to, from headers.
type AgentContext struct {
	SessionID       string
	ParentSessionID string
	SessionFinal    *bool
}

// Clone returns a copy whose scalars and slices headers can be changed without touching r. The token ids are shared until
// somebody appends: the copy's capacity is clipped.
func (r *Request) Clone() *Request {
	c := *r
	c.TokenIDs = r.TokenIDs[:len(r.TokenIDs):len(r.TokenIDs)]
	c.Annotations = r.Annotations[:len(r.Annotations):len(r.Annotations)]
	return &c
}
