// Package pipeline is one request's life: render and tokenise the prompt, place the request on a worker, send it, and turn the
// tokens that come back into text, reasoning and tool calls. It joins rooms (preprocess, router, transport, postprocess) by
// their interfaces and knows neither HTTP nor any wire format.
package pipeline

import (
	"time"

	"signalbox/inference"
	"signalbox/internal/jsontape"
)

// Job is one generation as an API understood it.
type Job struct {
	// Request holds everything but the prompt's tokens. With TokenIDs set, the prompt is used as it is and neither rendered
	// nor tokenised.
	Request *inference.Request
	Prompt  Prompt
	Parsing Parsing
	// Received is when the request reached the frontend.
	Received time.Time
	// Streaming tells whether the client reads a stream; for metrics and timing only.
	Streaming bool
	// Endpoint is the API's metric label, e.g. "chat_completions".
	Endpoint string
	// Verbatim sends the request as it is, with its own tokens, limits and options, and returns what the worker sends item by item,
	// unread: its tokens, log probabilities and engine data.
	Verbatim bool
	// Extras name what the client wants disclosed in nvext; they decide which bookkeeping is done.
	Extras Extras
}

// Extras are the response fields that cost bookkeeping and are kept only when asked for.
type Extras struct {
	CompletionTokenIDs bool
	PromptTokenIDs     bool
	WorkerID           bool
	Timing             bool
	StopReason         bool
	EngineData         bool
}

// Prompt is what the model is asked, before templating. Exactly one of Chat and Text is set unless the request has token ids.
type Prompt struct {
	Chat *Chat
	Text *string
}

// Chat is a conversation. The members are raw JSON as the client wrote them, nil when absent, so that key order and number
// spelling reach the template.
type Chat struct {
	Messages []byte
	Tools    []byte
	// ToolChoice is "", "auto", "none", "required" or the name of a function with ToolChoiceNamed.
	ToolChoice string
	// TemplateArguments are chat_template_args; they override every other template variable.
	TemplateArguments    []byte
	ReasoningEffort      string
	Thinking             []byte // the thinking object: {"type": "enabled" | "disabled" | "adaptive"}
	AddGenerationPrompt  *bool
	ContinueFinalMessage *bool
	// ResponseFormat is response_format, which the prompts of some models mention; JSONConstrained tells that it constrains the
	// output.
	ResponseFormat  []byte
	JSONConstrained bool
	// UseRawPrompt skips the template and takes the last message's text as the prompt.
	UseRawPrompt bool
}

// ToolChoice says whether and how the model may call tools.
type ToolChoice uint8

const (
	// ToolChoiceAuto leaves it to the model.
	ToolChoiceAuto ToolChoice = iota
	// ToolChoiceNone forbids calls: markup stays text.
	ToolChoiceNone
	// ToolChoiceRequired demands at least one call.
	ToolChoiceRequired
	// ToolChoiceNamed demands a call of one function.
	ToolChoiceNamed
)

// Tool is one function that the model may call.
type Tool struct {
	Name string
	// Parameters is the JSON schema of the arguments, raw; nil when absent.
	Parameters []byte
	// Strict is whether calls must follow the schema; nil when the client does not say.
	Strict *bool
}

// Parsing says how the output text is to be read.
type Parsing struct {
	Tools             []Tool
	ToolChoice        ToolChoice
	ToolName          string // with ToolChoiceNamed
	ParallelToolCalls *bool
	// NativeCalls tells that calls which the client demands come in the model's own markup; the pipeline sets it.
	NativeCalls bool
	// AnswerSchema is the schema of response_format, raw, when that alone constrains the answer; nil otherwise.
	AnswerSchema []byte
	// JSONConstrained tells that the answer itself is a JSON document (response_format), which reasoning parsing may skip.
	JSONConstrained bool
	// Off leaves the text alone: completions have neither tools nor reasoning.
	Off bool
}

// Delta is what one choice gained. The receiver may keep it until it asks for the next one.
type Delta struct {
	Index     uint32
	Content   string
	Reasoning string
	// OpensChoice tells that this is the choice's first delta even if a parser still holds its text back.
	OpensChoice bool
	// ToolCalls are whole calls or, while a call is streamed in pieces, parts of one.
	ToolCalls []ToolCallDelta

	TokenIDs []uint32
	Logprobs []TokenLogprob

	Finish     inference.FinishReason
	StopReason inference.StopReason

	// EngineData is the worker's raw JSON for nvext.engine_data; nil when absent.
	EngineData []byte
	// Transfer is the worker's raw JSON about where its KV cache can be had; of verbatim jobs only.
	Transfer []byte

	// Event and Comments carry a worker's annotation; the other members are then empty.
	Event    string
	Comments []string
}

// ToolCallDelta is a part of one tool call. ID and Name come with the first part only.
type ToolCallDelta struct {
	Index     int
	ID        string
	Name      string
	Arguments string
}

// TokenLogprob is one generated token with its alternatives.
type TokenLogprob struct {
	Token   string
	TokenID uint32
	Bytes   []byte
	Logprob float64
	Top     []TopLogprob
}

// TopLogprob is one alternative at a position.
type TopLogprob struct {
	Token   string
	TokenID uint32
	Bytes   []byte
	Logprob float64
}

// Usage counts tokens for the client.
type Usage struct {
	PromptTokens     int
	CompletionTokens int
	// CachedTokens are prompt tokens that the worker found in its cache; nil when it did not say.
	CachedTokens *int
	// ReasoningTokens is nil for a model without a reasoning parser.
	ReasoningTokens *int
	// CompletionDetails is the worker's own completion_tokens_details, raw JSON; nil when absent.
	CompletionDetails []byte
}

// WorkerReport tells which workers served a request; nil members are not known.
type WorkerReport struct {
	PrefillWorkerID, DecodeWorkerID *uint64
	PrefillRank, DecodeRank         *uint32
}

// Timing tells how long a request's parts took; nil members are not known.
type Timing struct {
	Received                 time.Time
	PrefillWait, PrefillTime *time.Duration
	TTFT, Total              *time.Duration
	KVHitRate                *float64
	RouterQueueDepth         *int
}

// ThinkingType returns "enabled", "disabled", "adaptive" or "".
func (c *Chat) ThinkingType() string {
	if c.Thinking == nil {
		return ""
	}
	document, err := jsontape.Parse(c.Thinking)
	if err != nil {
		return ""
	}
	return document.Root().Get("type").Text()
}
