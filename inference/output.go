package inference

import "context"

// Output is one item of a worker's answer: the tokens since the last item and, on the last one, why it ended. It follows the
// Dynamo request plane's LLMEngineOutput. A receiver may keep an Output only until it asks the stream for the next one.
type Output struct {
	// TokenIDs are the new tokens since the last item; may be empty.
	TokenIDs []uint32
	// Text is the delta's text when HasText: the worker detokenised itself and ours is skipped.
	Text    string
	HasText bool
	// Untold counts further new tokens whose ids the worker does not tell; they are part of Text, or of the Text of items before.
	Untold uint32
	// Tokens are the decoded tokens when the worker sends them.
	Tokens []string

	// Index is the choice that the item belongs to (n > 1).
	Index uint32

	CumLogprob  *float64
	Logprobs    []float64    // one per token of this item; nil when not asked for
	TopLogprobs [][]TopToken // per token of this item

	Finish        FinishReason
	FinishMessage string // the text of FinishError
	// StopReason is what matched, when the engine says: a string or a token id.
	StopReason StopReason

	Usage *Usage
	// DisaggregatedParams are the prefill worker's message to the decode worker.
	DisaggregatedParams Opaque

	// EngineData and RoutingData are raw JSON for nvext of the response; nil when absent.
	EngineData  []byte
	RoutingData []byte
	ExtraArgs   []byte
	// EncoderResult is the encode worker's last word, raw JSON.
	EncoderResult []byte

	// Event and Comments carry an annotation that the worker sends to the client: then there is no data.
	Event    string
	Comments []string

	// Body is the raw JSON of an item whose worker answers with protocol chunks of its own (embeddings, text-level
	// workers, images): everything above is then empty.
	Body []byte
}

// TopToken is one alternative at a position.
type TopToken struct {
	Rank    uint32
	TokenID uint32
	Token   string
	HasText bool
	Logprob float64
	Bytes   []byte
}

// FinishReason tells why a choice ended.
type FinishReason uint8

const (
	// FinishNone means that the choice goes on.
	FinishNone FinishReason = iota
	// FinishEOS is the model's own end token.
	FinishEOS
	// FinishLength is the token limit.
	FinishLength
	// FinishStop is a stop string or a stop token.
	FinishStop
	// FinishCancelled is a cancellation that the worker noticed itself.
	FinishCancelled
	// FinishContentFilter is the engine's content filter.
	FinishContentFilter
	// FinishError is an engine failure; its text is in FinishMessage.
	FinishError
	// FinishToolCalls is set by the tool-call parser, never by a worker.
	FinishToolCalls
)

// StopReason is a matched stop string or token id; the zero value means none.
type StopReason struct {
	Text    string
	TokenID uint32
	IsToken bool
}

// IsZero tells whether nothing matched.
func (s StopReason) IsZero() bool { return !s.IsToken && s.Text == "" }

// Usage counts tokens as the worker reports them, cumulative over the stream.
type Usage struct {
	PromptTokens     uint32
	CompletionTokens uint32
	TotalTokens      uint32
	CachedTokens     *uint32
	AudioTokens      *uint32
	// CompletionDetails is raw JSON of completion_tokens_details; nil when absent.
	CompletionDetails []byte
}

// Stream is one answer on its way. It is pulled by one goroutine at a time, so that the token path has no hand-over: the
// goroutine that writes to the client is the one that reads from the worker.
type Stream interface {
	// Next returns the next item; io.EOF after the clean end of the stream; an *Error when the worker or the connection
	// failed. The item belongs to the caller until the following call of Next.
	Next(ctx context.Context) (*Output, error)
	// Buffered tells whether the next item can be had without waiting, so that a writer can flush once for all that is ready.
	Buffered() bool
	// Close ends the stream. Called before the end it cancels the work at the worker. It is safe to call at any time, from any
	// goroutine, more than once.
	Close() error
}
