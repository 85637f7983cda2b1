package pipeline

import (
	"slices"
	"strconv"

	"signalbox/inference"
)

const (
	// maxChoices bounds the choice index that a worker may send.
	maxChoices = 128
	// maxText bounds the text of one choice, in bytes: whole answers are gathered, and a worker that never ends must not fill
	// the memory. The longest answer that a client can ask for has a million tokens.
	maxText = 256 << 20
)

// choice is one of a generation's answers while its tokens arrive.
type choice struct {
	index   uint32
	decoder Decoder
	stops   stopStrings
	stage   TextStage
	show    func(Piece) // what the stage finds, made once

	tokens          int
	bytes           int
	reasoningTokens int
	opened          bool
	done            bool
	// stoppedHere tells that the frontend, not the worker, saw the end.
	stoppedHere bool
	inReasoning bool
}

func (r *Run) choice(index uint32) (*choice, error) {
	if index >= maxChoices {
		return nil, inference.Errorf(inference.ProtocolViolation, "choice index %d; at most %d choices are possible", index, maxChoices)
	}
	for int(index) >= len(r.choices) {
		r.choices = append(r.choices, nil)
	}
	if c := r.choices[index]; c != nil {
		return c, nil
	}
	request := r.job.Request
	c := &choice{index: index}
	skip := request.Output.SkipSpecialTokens == nil || *request.Output.SkipSpecialTokens
	c.decoder = r.pipeline.Model.Tokenizer.NewDecoder(request.TokenIDs[:r.original], skip)
	c.stops = newStopStrings(request.Stop.Strings, request.Sampling.IncludeStopString != nil && *request.Sampling.IncludeStopString)
	if r.pipeline.Model.Stages != nil && !r.job.Parsing.Off {
		stage, err := r.pipeline.Model.Stages.New(r.job, r.prompt)
		if err != nil {
			return nil, err
		}
		c.stage = stage
		c.show = func(piece Piece) { r.piece(c, piece) }
	}
	r.choices[index] = c
	return c, nil
}

// advance turns one item of the choice into deltas.
func (r *Run) advance(c *choice, output *inference.Output) error {
	text, used, reason, stop := r.decode(c, output)
	if reason == inference.FinishNone && output.Finish != inference.FinishNone {
		reason, stop = output.Finish, output.StopReason
		if !output.HasText {
			text += r.flushText(c)
		}
	} else if reason != inference.FinishNone {
		c.stoppedHere = true
	}
	if c.bytes += len(text); c.bytes > maxText {
		return inference.Errorf(inference.ProtocolViolation, "the worker sent more than %d bytes of text for one choice", maxText)
	}
	first := len(r.pending)
	r.say(c, text)
	if c.stage != nil {
		c.countReasoning(r.pending[first:], used)
	}
	if reason != inference.FinishNone {
		r.conclude(c, reason, stop, first)
	}
	r.attach(c, output, used, first)
	return nil
}

// decode detokenises the item up to a stop. It returns the text to show, how many tokens count, and the stop if there is one.
func (r *Run) decode(c *choice, output *inference.Output) (text string, used int, reason inference.FinishReason, stop inference.StopReason) {
	request := r.job.Request
	minTokens := 0
	if request.Stop.MinTokens != nil {
		minTokens = int(*request.Stop.MinTokens)
	}
	if output.HasText {
		c.tokens += len(output.TokenIDs) + int(output.Untold)
		shown, matched, ok := c.stops.feed(output.Text)
		if ok {
			return shown, len(output.TokenIDs), inference.FinishStop, inference.StopReason{Text: matched}
		}
		if output.Finish != inference.FinishNone {
			shown += c.stops.flush()
		}
		return shown, len(output.TokenIDs), inference.FinishNone, inference.StopReason{}
	}
	var joined []byte
	for i, id := range output.TokenIDs {
		c.tokens++
		ends := c.tokens > minTokens
		if slices.Contains(request.Stop.HiddenTokenIDs, id) {
			if !ends {
				continue // an end token that came too early prints nothing
			}
			joined = append(joined, r.flushText(c)...)
			if slices.Contains(request.Stop.TokenIDs, id) {
				stop = inference.StopReason{TokenID: id, IsToken: true}
				return string(joined), i + 1, inference.FinishStop, stop
			}
			return string(joined), i + 1, inference.FinishEOS, stop
		}
		piece := c.decoder.Step(id)
		if !ends {
			c.stops.reset()
			joined = append(joined, piece...)
			continue
		}
		shown, matched, ok := c.stops.feed(piece)
		if len(output.TokenIDs) == 1 && !ok {
			text = shown
		}
		joined = append(joined, shown...)
		if ok {
			return string(joined), i + 1, inference.FinishStop, inference.StopReason{Text: matched}
		}
		if slices.Contains(request.Stop.VisibleTokenIDs, id) {
			joined = append(joined, r.flushText(c)...)
			return string(joined), i + 1, inference.FinishStop, inference.StopReason{TokenID: id, IsToken: true}
		}
	}
	if len(output.TokenIDs) == 1 && len(joined) == len(text) {
		return text, 1, inference.FinishNone, stop // the common case: no copy
	}
	return string(joined), len(output.TokenIDs), inference.FinishNone, stop
}

// flushText returns what decoder and stop strings hold back at an end that is not a stop string.
func (r *Run) flushText(c *choice) string {
	shown, _, _ := c.stops.feed(c.decoder.Flush())
	return shown + c.stops.flush()
}

// say passes text to the stage, or shows it.
func (r *Run) say(c *choice, text string) {
	if text == "" {
		return
	}
	if c.stage == nil {
		r.pending = append(r.pending, Delta{Index: c.index, Content: text})
		return
	}
	c.stage.Feed(text, c.show)
}

func (r *Run) piece(c *choice, piece Piece) {
	if piece.Content == "" && piece.Reasoning == "" && len(piece.ToolCalls) == 0 {
		return
	}
	r.pending = append(r.pending, Delta{Index: c.index, Content: piece.Content, Reasoning: piece.Reasoning, ToolCalls: piece.ToolCalls})
}

// countReasoning counts an item's tokens as reasoning when it shows some, or when it shows nothing after some.
func (c *choice) countReasoning(deltas []Delta, used int) {
	reasoning, visible := false, false
	for i := range deltas {
		reasoning = reasoning || deltas[i].Reasoning != ""
		visible = visible || deltas[i].Content != "" || len(deltas[i].ToolCalls) > 0
	}
	if reasoning || c.inReasoning && !visible {
		c.reasoningTokens += used
	}
	c.inReasoning = reasoning || c.inReasoning && !visible
}

// conclude ends the choice; first is where this item's deltas begin.
func (r *Run) conclude(c *choice, reason inference.FinishReason, stop inference.StopReason, first int) {
	c.done = true
	if c.stage != nil {
		reason = c.stage.Finish(reason, c.show)
	}
	last := len(r.pending) - 1
	if last < first {
		r.pending = append(r.pending, Delta{Index: c.index})
		last++
	}
	r.pending[last].Finish, r.pending[last].StopReason = reason, stop
}

// attach adds the item's tokens, log probabilities and engine data to its first delta.
func (r *Run) attach(c *choice, output *inference.Output, used, first int) {
	if len(r.pending) == first {
		if used == 0 && output.EngineData == nil {
			return
		}
		r.pending = append(r.pending, Delta{Index: c.index})
	}
	d := &r.pending[first]
	if !c.opened && !c.holdsCall(d) {
		c.opened = true
		d.OpensChoice = true
	}
	d.TokenIDs = output.TokenIDs[:min(used, len(output.TokenIDs))]
	if len(output.Logprobs) > 0 {
		d.Logprobs = r.logprobs(output, used)
	}
	if r.job.Extras.EngineData {
		d.EngineData = output.EngineData
	}
}

// holdsCall tells whether the delta shows nothing because what came may be a tool call, which will open the choice itself.
func (c *choice) holdsCall(d *Delta) bool {
	if c.stage == nil || d.Content != "" || d.Reasoning != "" || len(d.ToolCalls) > 0 || d.Finish != inference.FinishNone {
		return false
	}
	holder, ok := c.stage.(CallHolder)
	return ok && holder.HoldsCall()
}

func (r *Run) logprobs(output *inference.Output, used int) []TokenLogprob {
	asIDs := r.job.Request.Output.ReturnTokensAsTokenIDs != nil && *r.job.Request.Output.ReturnTokensAsTokenIDs
	list := make([]TokenLogprob, 0, used)
	for i := 0; i < used && i < len(output.Logprobs) && i < len(output.TokenIDs); i++ {
		id := output.TokenIDs[i]
		text := r.tokenText(id, asIDs, "", false)
		entry := TokenLogprob{Token: text, TokenID: id, Bytes: []byte(text), Logprob: output.Logprobs[i]}
		if i < len(output.TopLogprobs) {
			for _, top := range output.TopLogprobs[i] {
				text := r.tokenText(top.TokenID, asIDs, top.Token, top.HasText)
				alternative := TopLogprob{Token: text, TokenID: top.TokenID, Bytes: []byte(text), Logprob: top.Logprob}
				if top.Bytes != nil && !asIDs {
					alternative.Bytes = top.Bytes
				}
				entry.Top = append(entry.Top, alternative)
			}
		}
		list = append(list, entry)
	}
	return list
}

func (r *Run) tokenText(id uint32, asID bool, given string, has bool) string {
	switch {
	case asID:
		return "token_id:" + strconv.FormatUint(uint64(id), 10)
	case has:
		return given
	}
	return r.pipeline.Model.Tokenizer.Token(id)
}

// flushUnfinished shows what is held back of a choice whose worker ended without a finish reason.
func (r *Run) flushUnfinished(c *choice) {
	first := len(r.pending)
	r.say(c, r.flushText(c))
	if c.stage != nil {
		if reason := c.stage.Finish(inference.FinishNone, c.show); reason != inference.FinishNone {
			// Clients wait for a reason before they act on calls.
			if len(r.pending) == first {
				r.pending = append(r.pending, Delta{Index: c.index})
			}
			r.pending[len(r.pending)-1].Finish = reason
		}
	}
	c.done = true
	if len(r.pending) > first && !c.opened {
		c.opened = true
		r.pending[first].OpensChoice = true
	}
}
