package pipeline

import (
	"errors"
	"fmt"
)

// PromptError is a mistake in the request's prompt: a template that refuses the conversation, a token id outside the
// vocabulary. Message may be shown to the client.
type PromptError struct {
	// Param is the field of the request that is wrong, e.g. "messages".
	Param   string
	Message string
}

// Error implements error.
func (e *PromptError) Error() string { return e.Message }

// ContextLengthError is a prompt, or a prompt with its requested output, that does not fit the model.
type ContextLengthError struct {
	Limit, Prompt int
	// MaxTokens is the output asked for; nil when the prompt alone is too long.
	MaxTokens *int
}

// Error implements error.
func (e *ContextLengthError) Error() string {
	return contextLengthMessage(e.Limit, e.Prompt, e.MaxTokens)
}

// ErrNoWorkers means that the model is known but nobody can serve it now.
var ErrNoWorkers = errors.New("no worker can serve the model now")

func contextLengthMessage(limit, prompt int, maxTokens *int) string {
	if maxTokens == nil {
		return fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", limit, prompt)
	}
	return fmt.Sprintf("This model configuration accepts at most %d combined input and output tokens. However, your request has %d input tokens and asks for %d output tokens (%d tokens total). Please reduce the input length or requested output length.",
		limit, prompt, *maxTokens, prompt+*maxTokens)
}
