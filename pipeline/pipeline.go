package pipeline

import (
	"context"
	"sync/atomic"

	"signalbox/inference"
	"signalbox/preprocess/piece"
	"signalbox/router"
)

// Renderer turns a conversation into a prompt.
type Renderer interface {
	// Render returns the prompt. A *PromptError says what in the conversation the template refuses.
	Render(ctx context.Context, chat *Chat) (piece.Prompt, error)
}

// Tokenizer is what the pipeline needs of a model's tokenizer. It is safe for concurrent use.
type Tokenizer interface {
	// Encode appends the text's token ids to dst. addSpecial adds what the model puts around a text.
	Encode(dst []uint32, text string, addSpecial bool) []uint32
	// EncodePieces appends a prompt's token ids to dst, piece by piece, or as one text where it has no pieces.
	EncodePieces(dst []uint32, prompt piece.Prompt) []uint32
	// VocabSize is one more than the largest token id.
	VocabSize() int
	// Token returns the text of one token alone, as log probabilities show it.
	Token(id uint32) string
	// NewDecoder returns a decoder for one choice that follows the prompt.
	NewDecoder(prompt []uint32, skipSpecial bool) Decoder
}

// Decoder turns the tokens of one choice into text, never half a character.
type Decoder interface {
	// Step returns the text that the token completes; "" while a character is incomplete.
	Step(id uint32) string
	// Flush returns what is left when the tokens end, incomplete characters replaced.
	Flush() string
}

// TextStage reads the text of one choice: reasoning and tool calls.
type TextStage interface {
	// Feed adds text; emit is called for each piece that is now certain.
	Feed(text string, emit func(Piece))
	// Finish ends the text and returns the choice's finish reason, given the engine's.
	Finish(reason inference.FinishReason, emit func(Piece)) inference.FinishReason
}

// CallHolder is a TextStage that tells why it shows nothing yet.
type CallHolder interface {
	// HoldsCall tells whether text waits that may be a tool call.
	HoldsCall() bool
}

// Piece is one thing that a text stage found; exactly one kind is set.
type Piece struct {
	Content   string
	Reasoning string
	ToolCalls []ToolCallDelta
}

// TextStages makes text stages for a model.
type TextStages interface {
	// New returns the stage of one choice; nil leaves the text alone.
	New(job *Job, prompt string) (TextStage, error)
	// NeedsSpecialTokens tells whether the parsers need special tokens to show in the text.
	NeedsSpecialTokens() bool
	// CountsReasoning tells whether usage reports reasoning tokens.
	CountsReasoning() bool
}

// Hop is one pool of workers: how one is chosen, where it is, how it is reached.
type Hop struct {
	Router router.Router
	Sender inference.Sender
	// Target returns a worker's address; false when discovery no longer knows it.
	Target func(workerID uint64) (inference.Target, bool)
	// Bootstrap returns where a prefill worker awaits decode workers, and its data-parallel size; false when it does not.
	Bootstrap func(workerID uint64) (host string, port uint16, ranks uint32, ok bool)
	// Constrain adds the transfer topology of the chosen prefill worker to the decode request; nil when there is none.
	Constrain func(prefillWorkerID uint64, decode *inference.Request) error
}

// Model is what the pipeline must know about the model that it serves.
type Model struct {
	Name     string
	Checksum string
	// EOSTokenIDs end a generation.
	EOSTokenIDs []uint32
	// ContextLength is in tokens; 0 when unknown.
	ContextLength int
	// RejectPromptOverflow and RejectTotalOverflow say that the worker wants requests refused that cannot fit.
	RejectPromptOverflow, RejectTotalOverflow bool
	Renderer                                  Renderer
	Tokenizer                                 Tokenizer
	Stages                                    TextStages
	// ToolParser tells whether the card names a tool-call parser.
	ToolParser bool
}

// Observer is told what requests go through. Implementations must be quick.
type Observer interface {
	// Stage reports how long a stage took: "preprocess", "route", "dispatch", with the phase of the hop or "".
	Stage(stage, phase string, seconds float64)
	// Rendered and Tokenized report the parts of preprocessing.
	Rendered(seconds float64)
	Tokenized(seconds float64, tokens int)
	// Migrated reports that a request moved to another worker: kind "new_request" before its first token, else "ongoing_request".
	Migrated(model, kind string)
	// MigrationExceeded reports a request that became too long to move.
	MigrationExceeded(model string)
	// Placed reports a placement once it is made.
	Placed(phase string, placement *router.Placement)
	// FirstToken and Ended report a worker's own view of a request, for its gauges.
	FirstToken(phase string, placement *router.Placement, seconds float64, inputTokens int)
	InterToken(phase string, placement *router.Placement, seconds float64)
}

// StageCounter is implemented by observers that count who is in a stage now.
type StageCounter interface {
	Entered(stage, phase string)
	Left(stage, phase string)
}

// enter tells an observer that counts that a request is in the stage until left is called.
func (p *Pipeline) enter(stage, phase string) (left func()) {
	counter, ok := p.Observer.(StageCounter)
	if !ok {
		return func() {}
	}
	counter.Entered(stage, phase)
	return func() { counter.Left(stage, phase) }
}

// Pipeline serves one worker set.
type Pipeline struct {
	Model  Model
	Decode Hop
	// Prefill is the prefill pool; nil while there is none.
	Prefill atomic.Pointer[Hop]
	// NeedsPrefill tells that the decode workers count on a prefill pool; DecodeFallback lets them work without.
	NeedsPrefill, DecodeFallback bool
	// MigrationLimit is how often a stream may move after its first token; MigrationMaxLength is the sequence length beyond
	// which it no longer may, 0 for none.
	MigrationLimit     int
	MigrationMaxLength int
	// Disaggregate decides whether a request skips the prefill pool; nil never does.
	Disaggregate func(ctx context.Context, request *inference.Request) *router.Pin
	Observer     Observer
	// Limiter bounds how many prompts are prepared at once.
	Limiter *Limiter
	// OpaqueJSON returns the JSON form of a value that an engine wrote in another encoding; nil when all is JSON.
	OpaqueJSON func(value inference.Opaque) ([]byte, error)
	// OnDecision, when set, is given the record of every placement.
	OnDecision func(request *inference.Request, decision *router.Decision)
	// Warn is told once per request about what was asked for and cannot be had.
	Warn func(message string)
}

// Limiter bounds the preparation of prompts, so that tokenising long ones never starves running streams.
type Limiter struct{ slots chan struct{} }

// NewLimiter allows count preparations at once; at least one.
func NewLimiter(count int) *Limiter { return &Limiter{slots: make(chan struct{}, max(count, 1))} }

func (l *Limiter) acquire(ctx context.Context) error {
	if l == nil {
		return nil
	}
	select {
	case l.slots <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Limiter) release() {
	if l != nil {
		<-l.slots
	}
}
