package passthrough

import (
	"signalbox/inference"
	"signalbox/internal/jsonbody"
	"signalbox/pipeline"
)

// bodyOf is the request in the shape of OpenAI's API, with those members alone that the client has set. It always asks for a stream:
// whole answers are gathered here.
func bodyOf(model string, job *pipeline.Job) ([]byte, error) {
	r := job.Request
	b := jsonbody.New(1024)
	b.Str("model", model)
	chat := job.Prompt.Chat
	switch {
	case r.TokenIDs != nil:
		b.IDs("prompt", r.TokenIDs)
		chat = nil
	case chat != nil && chat.UseRawPrompt:
		return nil, &pipeline.PromptError{Param: "nvext.use_raw_prompt", Message: "nvext.use_raw_prompt needs a tokenizer here; this model's worker renders prompts itself"}
	case chat != nil:
		appendChat(b, job, chat)
	case job.Prompt.Text != nil:
		b.Str("prompt", *job.Prompt.Text)
	default:
		return nil, &pipeline.PromptError{Param: "prompt", Message: "the request has no prompt"}
	}
	b.Truth("stream", true)
	b.Raw("stream_options", []byte(`{"include_usage":true}`))
	appendSampling(b, r)
	if n := r.Output.Logprobs; n != nil && chat != nil {
		b.Truth("logprobs", true)
		b.Integer("top_logprobs", int64(*n))
	} else if n != nil {
		b.Integer("logprobs", int64(*n))
	}
	appendGuided(b, r.Sampling.Guided, chat)
	return b.Done(), nil
}

// appendChat writes what only conversations have.
func appendChat(b *jsonbody.Body, job *pipeline.Job, chat *pipeline.Chat) {
	b.Raw("messages", chat.Messages)
	raw := func(name string, value []byte) {
		if value != nil {
			b.Raw(name, value)
		}
	}
	truth := func(name string, value *bool) {
		if value != nil {
			b.Truth(name, *value)
		}
	}
	raw("tools", chat.Tools)
	switch {
	case job.Parsing.ToolChoice == pipeline.ToolChoiceNamed:
		function := jsonbody.New(64)
		function.Str("name", job.Parsing.ToolName)
		choice := jsonbody.New(96)
		choice.Str("type", "function")
		choice.Raw("function", function.Done())
		b.Raw("tool_choice", choice.Done())
	case chat.ToolChoice != "":
		b.Str("tool_choice", chat.ToolChoice)
	}
	truth("parallel_tool_calls", job.Parsing.ParallelToolCalls)
	raw("response_format", chat.ResponseFormat)
	raw("chat_template_kwargs", chat.TemplateArguments)
	if chat.ReasoningEffort != "" {
		b.Str("reasoning_effort", chat.ReasoningEffort)
	}
	raw("thinking", chat.Thinking)
	truth("add_generation_prompt", chat.AddGenerationPrompt)
	truth("continue_final_message", chat.ContinueFinalMessage)
	raw("mm_processor_kwargs", job.Request.MMProcessorArgs)
	raw("media_io_kwargs", job.Request.MediaIOArgs)
}

// appendSampling writes how tokens are drawn and when the answer ends. A limit of its own is the client's alone: the worker knows what is
// left of its context.
func appendSampling(b *jsonbody.Body, r *inference.Request) {
	o, stop := &r.Sampling, &r.Stop
	b.Float("temperature", o.Temperature)
	b.Float("top_p", o.TopP)
	b.Float("min_p", o.MinP)
	b.Float("presence_penalty", o.PresencePenalty)
	b.Float("frequency_penalty", o.FrequencyPenalty)
	b.Float("repetition_penalty", o.RepetitionPenalty)
	integer := func(name string, value *uint32) {
		if value != nil {
			b.Integer(name, int64(*value))
		}
	}
	integer("max_tokens", stop.MaxTokens)
	integer("min_tokens", stop.MinTokens)
	if o.TopK != nil {
		b.Integer("top_k", int64(*o.TopK))
	}
	if o.N != nil {
		b.Integer("n", int64(*o.N))
	}
	if o.Seed != nil {
		b.Integer("seed", *o.Seed)
	}
	b.Bias("logit_bias", o.LogitBias)
	if len(stop.Strings) > 0 {
		b.Strs("stop", stop.Strings)
	}
	if len(stop.TokenIDs) > 0 {
		b.IDs("stop_token_ids", stop.TokenIDs)
	}
	if stop.IgnoreEOS != nil {
		b.Truth("ignore_eos", *stop.IgnoreEOS)
	}
	if o.IncludeStopString != nil {
		b.Truth("include_stop_str_in_output", *o.IncludeStopString)
	}
	if skip := r.Output.SkipSpecialTokens; skip != nil {
		b.Truth("skip_special_tokens", *skip)
	}
	if salt := r.Routing.CacheSalt; salt != "" {
		b.Str("cache_salt", salt)
	}
}

// appendGuided writes what constrains the answer, unless response_format says it already. Schemas are told as OpenAI's API has them, the
// rest as vLLM has it.
func appendGuided(b *jsonbody.Body, g *inference.GuidedDecoding, chat *pipeline.Chat) {
	if g == nil || chat != nil && chat.ResponseFormat != nil {
		return
	}
	inner := jsonbody.New(256)
	switch {
	case g.JSON != nil:
		schema := jsonbody.New(32 + len(g.JSON))
		schema.Str("name", "answer")
		schema.Raw("schema", g.JSON)
		inner.Str("type", "json_schema")
		inner.Raw("json_schema", schema.Done())
		b.Raw("response_format", inner.Done())
		return
	case g.Regex != "":
		inner.Str("regex", g.Regex)
	case len(g.Choice) > 0:
		inner.Strs("choice", g.Choice)
	case g.Grammar != "":
		inner.Str("grammar", g.Grammar)
	case g.StructuralTag != nil:
		inner.Str("structural_tag", string(g.StructuralTag))
	default:
		return
	}
	b.Raw("structured_outputs", inner.Done())
}
