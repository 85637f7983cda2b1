package pipeline

import (
	"context"
	"fmt"
	"time"

	"signalbox/internal/jsontape"
	"signalbox/preprocess/piece"
)

// prepared is a request whose prompt is ready.
type prepared struct {
	text string // the rendered prompt; "" when the client sent tokens
}

// prepare renders and tokenises the prompt and completes the request's limits.
func (p *Pipeline) prepare(ctx context.Context, job *Job) (prepared, error) {
	start := time.Now()
	defer p.enter("preprocess", "")()
	if err := p.Limiter.acquire(ctx); err != nil {
		return prepared{}, err
	}
	ready, err := p.promptTokens(ctx, job)
	p.Limiter.release()
	if err != nil {
		return prepared{}, err
	}
	r := job.Request
	r.Model = p.Model.Name
	r.CardChecksum = p.Model.Checksum
	p.applyStops(job)
	if err := p.constrainToolChoice(job, ready.text); err != nil {
		return prepared{}, err
	}
	completeExtraArgs(job, ready.text)
	if r.Output.SkipSpecialTokens == nil && !job.Parsing.Off && p.Model.Stages != nil && p.Model.Stages.NeedsSpecialTokens() {
		show := false
		r.Output.SkipSpecialTokens = &show
	}
	if err := p.applyLength(job); err != nil {
		return prepared{}, err
	}
	p.Observer.Stage("preprocess", "", time.Since(start).Seconds())
	return ready, nil
}

func (p *Pipeline) promptTokens(ctx context.Context, job *Job) (ready prepared, err error) {
	r := job.Request
	if r.TokenIDs != nil {
		return ready, p.checkTokens(r.TokenIDs)
	}
	var text piece.Prompt
	switch {
	case job.Prompt.Chat != nil && job.Prompt.Chat.UseRawPrompt:
		text.Text = lastMessageText(job.Prompt.Chat.Messages)
	case job.Prompt.Chat != nil:
		if p.Model.Renderer == nil {
			return ready, &PromptError{Param: "messages", Message: "model " + p.Model.Name + " has no chat template"}
		}
		start := time.Now()
		rendered, err := p.Model.Renderer.Render(ctx, job.Prompt.Chat)
		if err != nil {
			return ready, err
		}
		p.Observer.Rendered(time.Since(start).Seconds())
		text = rendered
	case job.Prompt.Text != nil:
		text.Text = *job.Prompt.Text
	default:
		return ready, nil
	}
	start := time.Now()
	r.TokenIDs = p.Model.Tokenizer.EncodePieces(nil, text)
	p.Observer.Tokenized(time.Since(start).Seconds(), len(r.TokenIDs))
	ready.text = text.Text
	return ready, nil
}

// checkTokens refuses ids that the model does not have: a worker would crash on them.
func (p *Pipeline) checkTokens(ids []uint32) error {
	limit := uint32(p.Model.Tokenizer.VocabSize())
	for i, id := range ids {
		if id >= limit {
			return &PromptError{Param: "prompt", Message: fmt.Sprintf("Invalid request: token id %d at position %d is outside the vocabulary of %d tokens", id, i, limit)}
		}
	}
	return nil
}

func lastMessageText(messages []byte) string {
	document, err := jsontape.Parse(messages)
	if err != nil {
		return ""
	}
	text := ""
	for _, message := range document.Root().Elements {
		content := message.Get("content")
		if content.Kind() == jsontape.String {
			text = content.Text()
			continue
		}
		text = ""
		for _, part := range content.Elements {
			text += part.Get("text").Text()
		}
	}
	return text
}

// applyStops sets the end-of-sequence ids and the ids that end the stream without being shown.
func (p *Pipeline) applyStops(job *Job) {
	r := job.Request
	if r.Stop.IgnoreEOS != nil && *r.Stop.IgnoreEOS {
		r.Stop.Strings, r.Stop.TokenIDs, r.Stop.VisibleTokenIDs, r.Stop.HiddenTokenIDs = nil, nil, nil, nil
		r.EOSTokenIDs = nil
		return
	}
	r.EOSTokenIDs = p.Model.EOSTokenIDs
	r.Stop.HiddenTokenIDs = append(append([]uint32(nil), r.Stop.TokenIDs...), p.Model.EOSTokenIDs...)
}

// applyLength sets the default output length, what is left of the context, and refuses what cannot fit where the worker wants
// that. A Responses request that sets no length leaves it to the worker, and so does one with media, of which nobody knows here how
// many tokens they are.
func (p *Pipeline) applyLength(job *Job) error {
	r := job.Request
	limit := p.Model.ContextLength
	if limit <= 0 {
		return nil
	}
	prompt := len(r.TokenIDs)
	if prompt >= limit && p.Model.RejectPromptOverflow {
		return &ContextLengthError{Limit: limit, Prompt: prompt}
	}
	if r.Stop.MaxTokens == nil {
		if prompt < limit && job.Endpoint != "responses" && len(r.MultiModal) == 0 {
			left := uint32(limit - prompt)
			r.Stop.MaxTokens = &left
		}
		return nil
	}
	if total := prompt + int(*r.Stop.MaxTokens); total > limit && p.Model.RejectTotalOverflow {
		asked := int(*r.Stop.MaxTokens)
		return &ContextLengthError{Limit: limit, Prompt: prompt, MaxTokens: &asked}
	}
	return nil
}
