package frontend

import (
	"slices"

	"signalbox/inference"
	"signalbox/model/card"
	"signalbox/pipeline"
	"signalbox/postprocess"
	"signalbox/postprocess/toolcall"
	"signalbox/preprocess/prompt"
)

// parsers shows a card's output parsers to the pipeline.
type parsers struct {
	names   postprocess.Parsers
	options prompt.Options
	tags    postprocess.TagPolicy
}

// parsersOf returns the output parsers that a card names.
func (l *FileLoader) parsersOf(c *card.Card, options prompt.Options) *parsers {
	p := &parsers{options: options,
		names: postprocess.Parsers{Tool: deref(c.Runtime.ToolCallParser), Reasoning: deref(c.Runtime.ReasoningParser), Version: toolcall.Version1}}
	if l.SecondParsers {
		p.names.Version = toolcall.Version2
	}
	p.tags = l.tagPolicy(c)
	if l.Warn != nil {
		for _, problem := range p.names.Unknown() {
			l.Warn("model " + c.DisplayName + ": " + problem)
		}
	}
	return p
}

// NeedsSpecialTokens implements pipeline.TextStages.
func (p *parsers) NeedsSpecialTokens() bool { return p.names.NeedsSpecialTokens() }

// CountsReasoning implements pipeline.TextStages.
func (p *parsers) CountsReasoning() bool { return p.names.Reasoning != "" }

// New implements pipeline.TextStages.
func (p *parsers) New(job *pipeline.Job, text string) (pipeline.TextStage, error) {
	parsing := &job.Parsing
	if p.names.Tool == "" && p.names.Reasoning == "" && parsing.ToolChoice < pipeline.ToolChoiceRequired {
		return nil, nil
	}
	request := p.request(job, text)
	stage := postprocess.New(p.names, request)
	if stage == nil {
		return nil, nil
	}
	s := &textStage{stage: stage}
	s.take = s.pass
	return s, nil
}

// request is what a job says about its answer.
func (p *parsers) request(job *pipeline.Job, text string) postprocess.Request {
	parsing := &job.Parsing
	request := postprocess.Request{Choice: choices[parsing.ToolChoice], Function: parsing.ToolName, JSON: parsing.JSONConstrained, Prompt: text, Whole: !job.Streaming,
		FirstCallOnly: parsing.ParallelToolCalls != nil && !*parsing.ParallelToolCalls, NativeCalls: parsing.NativeCalls, Answer: parsing.AnswerSchema}
	request.Tools = toolsOf(parsing)
	if chat := job.Prompt.Chat; chat != nil && p.names.Reasoning != "" {
		wish := p.options.Thinking(promptRequest(chat))
		request.Thinking = postprocess.Thinking{On: wish.On, Mode: wish.Mode, Effort: wish.Effort}
		request.FillContent = wish.ForceContent
	}
	return request
}

// ReasoningArguments implements pipeline.CallGrammar.
func (p *parsers) ReasoningArguments(job *pipeline.Job, text string) map[string][]byte {
	chat := job.Prompt.Chat
	if chat == nil || p.names.Reasoning == "" {
		return nil
	}
	members := map[string][]byte{}
	if arguments := p.options.ArgumentsJSON(promptRequest(chat)); arguments != nil {
		members["reasoning_parser_kwargs"] = slices.Concat([]byte(`{"chat_template_kwargs":`), arguments, []byte("}"))
	}
	if p.names.BegunReasoning(p.request(job, text)) {
		members["reasoning_ended"] = []byte("false")
	}
	return members
}

func toolsOf(parsing *pipeline.Parsing) []toolcall.Tool {
	var tools []toolcall.Tool
	for _, tool := range parsing.Tools {
		tools = append(tools, toolcall.Tool{Name: tool.Name, Parameters: tool.Parameters, Strict: tool.Strict})
	}
	return tools
}

// CallGrammar implements pipeline.CallGrammar.
func (p *parsers) CallGrammar(job *pipeline.Job, text string) (tag []byte, native bool, err error) {
	tag, native, err = p.names.CallTag(p.tags, p.request(job, text))
	if err != nil {
		err = &pipeline.PromptError{Param: "tools", Message: err.Error()}
	}
	return tag, native, err
}

// RequiresReasoning implements pipeline.CallGrammar.
func (p *parsers) RequiresReasoning(job *pipeline.Job) bool {
	return p.names.RequiresReasoning(p.request(job, ""))
}

var choices = [...]postprocess.Choice{pipeline.ToolChoiceAuto: postprocess.Auto, pipeline.ToolChoiceNone: postprocess.None,
	pipeline.ToolChoiceRequired: postprocess.Required, pipeline.ToolChoiceNamed: postprocess.Named}

// textStage shows a stage to the pipeline.
type textStage struct {
	stage *postprocess.Stage
	emit  func(pipeline.Piece)
	take  func(postprocess.Piece) // pass, made once
}

func (s *textStage) pass(piece postprocess.Piece) {
	shown := pipeline.Piece{Content: piece.Content, Reasoning: piece.Reasoning}
	for _, call := range piece.Calls {
		shown.ToolCalls = append(shown.ToolCalls, pipeline.ToolCallDelta{Index: call.Index, ID: call.ID, Name: call.Name, Arguments: call.Arguments})
	}
	s.emit(shown)
}

// Feed implements pipeline.TextStage.
func (s *textStage) Feed(text string, emit func(pipeline.Piece)) {
	s.emit = emit
	s.stage.Feed(text, s.take)
}

// HoldsCall implements pipeline.CallHolder.
func (s *textStage) HoldsCall() bool { return s.stage.HoldsCall() }

// Finish implements pipeline.TextStage.
func (s *textStage) Finish(reason inference.FinishReason, emit func(pipeline.Piece)) inference.FinishReason {
	s.emit = emit
	finish := s.stage.Finish(s.take)
	switch reason {
	case inference.FinishNone, inference.FinishStop, inference.FinishEOS:
		switch finish {
		case postprocess.ToolCalls:
			return inference.FinishToolCalls
		case postprocess.Length:
			return inference.FinishLength
		}
	}
	return reason
}
