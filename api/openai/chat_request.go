package openai

import (
	"slices"
	"strings"
	"time"

	"signalbox/api/body"
	"signalbox/api/nvext"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// chatFields are the top-level names that a chat request may have.
var chatFields = fieldSet(`model messages max_tokens max_completion_tokens temperature top_p n stream stream_options stop
	presence_penalty frequency_penalty logit_bias logprobs top_logprobs user seed tools tool_choice parallel_tool_calls
	response_format reasoning_effort service_tier store metadata modalities prediction audio functions function_call
	ignore_eos min_tokens top_k min_p repetition_penalty include_stop_str_in_output skip_special_tokens prompt_logprobs
	guided_json guided_regex guided_grammar guided_choice guided_decoding_backend guided_whitespace_pattern
	chat_template_args chat_template_kwargs thinking media_io_kwargs mm_processor_kwargs return_tokens_as_token_ids nvext cache_salt
	stop_token_ids allowed_token_ids logprob_token_ids bad_words_token_ids detokenize add_generation_prompt
	continue_final_message web_search_options verbosity safety_identifier prompt_cache_key prompt_cache_retention`)

func fieldSet(names string) map[string]bool {
	set := make(map[string]bool)
	for _, name := range strings.Fields(names) {
		set[name] = true
	}
	return set
}

// streamOptions is stream_options.
type streamOptions struct {
	includeUsage    bool
	continuousUsage bool
}

// chatRequest is a parsed and judged chat body.
type chatRequest struct {
	job       *pipeline.Job
	extension *nvext.Extension
	stream    bool
	options   streamOptions
	logprobs  bool
}

// readChat parses the body of a chat request. The checks come in the order in which the Dynamo frontend makes them, so that a
// body with two mistakes is answered with the same one.
func (a *API) readChat(document *jsontape.Document, r *inference.Request) (*chatRequest, *problem.Problem) {
	root := document.Root()
	f := body.NewFields(root, "")
	chat := &pipeline.Chat{}
	c := &chatRequest{job: &pipeline.Job{Request: r, Prompt: pipeline.Prompt{Chat: chat}, Received: time.Now(), Endpoint: "chat_completions"}}
	if f.Problem != nil {
		return nil, f.Problem
	}

	// Types first: all of this is one parse for the peer.
	r.Model = f.RequiredString("model")
	messages := root.Get("messages")
	if !messages.Exists() {
		f.Missing("messages")
	}
	readSampling(f, r)
	readStop(f, r)
	if stream := f.Bool("stream"); stream != nil {
		c.stream = *stream
	}
	c.options = readStreamOptions(f)
	maxCompletion := f.Uint32("max_completion_tokens")
	logprobs := f.Bool("logprobs")
	topLogprobs := f.Uint8("top_logprobs")
	c.job.Parsing.ParallelToolCalls = f.Bool("parallel_tool_calls")
	user := f.String("user")
	chat.AddGenerationPrompt = f.Bool("add_generation_prompt")
	chat.ContinueFinalMessage = f.Bool("continue_final_message")
	if f.Node("chat_template_args").Exists() && f.Node("chat_template_kwargs").Exists() {
		f.Fail("chat_template_args", "duplicate field `chat_template_args`")
	}
	readReasoningEffort(f, chat)
	checkGuidedTypes(f)
	checkPassive(f, passiveFields)
	checkMessageShapes(f, messages)
	format, formatProblem := readResponseFormat(f)
	extension, p := nvext.Parse(f.Node("nvext"), r, a.options.DisableExtensions)
	if f.Problem != nil {
		return nil, f.Problem
	}
	if p != nil {
		return nil, p
	}
	c.extension = extension

	if p := checkThinking(f, chat); p != nil {
		return nil, p
	}
	for _, name := range []string{"functions", "function_call"} {
		if f.Node(name).Exists() {
			instead := "tools"
			if name == "function_call" {
				instead = "tool_choice"
			}
			return nil, problem.Unsupported(name, "Validation: `%s` is deprecated. Please migrate to use `%s` instead.", name, instead)
		}
	}
	if messages.Len() == 0 {
		return nil, invalid("messages", "The 'messages' field cannot be empty. At least one message is required.")
	}
	if goOn := chat.ContinueFinalMessage; goOn != nil && *goOn && (chat.AddGenerationPrompt == nil || *chat.AddGenerationPrompt) {
		return nil, invalid("continue_final_message", "Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
	}
	if f.Node("stream_options").Exists() && !c.stream {
		return nil, invalid("stream_options", "The 'stream_options' field is only allowed when 'stream' is set to true.")
	}
	if p := a.checkUnknownFields(root, chatFields); p != nil {
		return nil, p
	}
	if p := checkToolCallArguments(messages); p != nil {
		return nil, p
	}
	if strings.TrimSpace(r.Model) == "" {
		return nil, invalid("model", "Model cannot be empty")
	}
	if p := c.checkSampling(f, r, maxCompletion, logprobs, topLogprobs); p != nil {
		return nil, p
	}
	if p := c.readTools(f, chat); p != nil {
		return nil, p
	}
	if user != nil && strings.TrimSpace(*user) == "" {
		return nil, invalid("user", "User ID cannot be empty")
	}
	if p := checkRest(&r.Sampling); p != nil {
		return nil, p
	}
	if formatProblem != nil {
		return nil, formatProblem
	}
	if p := readLoose(f, r); p != nil {
		return nil, p
	}
	r.ExtraArgs = extraArguments(f, extension, a.options.DisableExtensions)
	guided, p := readGuided(f, format, c.job.Parsing.ToolChoice)
	if p != nil {
		return nil, p
	}
	r.Sampling.Guided = guided
	if format != nil && guided != nil && !f.Node("guided_json").Exists() {
		c.job.Parsing.AnswerSchema = format
	}
	c.job.Parsing.JSONConstrained = format != nil
	chat.JSONConstrained = format != nil
	chat.ResponseFormat = f.Raw("response_format")
	if extension.Wants("completion_token_ids") && r.Sampling.N != nil && *r.Sampling.N > 1 {
		return nil, invalid("nvext.extra_fields", "`nvext.extra_fields=[\"completion_token_ids\"]` requires exactly one generated choice")
	}

	chat.Messages = withArgumentTexts(messages)
	chat.TemplateArguments = f.Raw("chat_template_args")
	if chat.TemplateArguments == nil {
		chat.TemplateArguments = f.Raw("chat_template_kwargs")
	}
	chat.UseRawPrompt = extension.UseRaw
	if extension.HasTokens {
		r.TokenIDs = extension.TokenData
	}
	if p := readMedia(messages, r); p != nil {
		return nil, p
	}
	r.MediaIOArgs = f.Raw("media_io_kwargs")
	r.MMProcessorArgs = f.Raw("mm_processor_kwargs")
	c.job.Extras = extension.Extras()
	c.job.Streaming = c.stream
	return c, nil
}

func readStreamOptions(f *body.Fields) streamOptions {
	node := f.Node("stream_options")
	if !node.Exists() {
		return streamOptions{}
	}
	options := body.NewFields(node, "stream_options")
	var result streamOptions
	if include := options.Bool("include_usage"); include != nil {
		result.includeUsage = *include
	}
	if continuous := options.Bool("continuous_usage_stats"); continuous != nil {
		result.continuousUsage = *continuous
	}
	if options.Problem != nil && f.Problem == nil {
		f.Problem = options.Problem
	}
	return result
}

func (a *API) checkUnknownFields(root jsontape.Node, known map[string]bool) *problem.Problem {
	if a.options.IgnoreUnknownFields {
		return nil
	}
	var unknown []string
	for name := range root.Members {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	if unknown == nil {
		return nil
	}
	return invalid(unknown[0], "Unsupported parameter(s): `%s`", strings.Join(unknown, "`, `"))
}

var reasoningEfforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

func readReasoningEffort(f *body.Fields, chat *pipeline.Chat) {
	effort := f.String("reasoning_effort")
	if effort == nil {
		return
	}
	if !slices.Contains(reasoningEfforts, *effort) {
		f.Fail("reasoning_effort", "unknown variant `%s`, expected one of `%s`", *effort, strings.Join(reasoningEfforts, "`, `"))
	}
	chat.ReasoningEffort = *effort
}

func checkThinking(f *body.Fields, chat *pipeline.Chat) *problem.Problem {
	thinking := f.Node("thinking")
	if !thinking.Exists() {
		return nil
	}
	if on, ok := thinking.Bool(); ok {
		chat.Thinking = []byte(`{"type":"disabled"}`)
		if on {
			chat.Thinking = []byte(`{"type":"enabled"}`)
		}
		return nil
	}
	if thinking.Kind() != jsontape.Object {
		return invalid("thinking", "`thinking` must be a boolean or an object with `type` set to `enabled`, `disabled`, or `adaptive`")
	}
	switch thinking.Get("type").Text() {
	case "enabled", "disabled", "adaptive":
		chat.Thinking = thinking.Raw()
		return nil
	}
	return invalid("thinking", "`thinking.type` must be `enabled`, `disabled`, or `adaptive`")
}

func (c *chatRequest) checkSampling(f *body.Fields, r *inference.Request, maxCompletion *uint32, logprobs *bool, topLogprobs *uint8) *problem.Problem {
	s := &r.Sampling
	if p := checkPenalties(s); p != nil {
		return p
	}
	if p := readLogitBias(f.Node("logit_bias"), s); p != nil {
		return p
	}
	if topLogprobs != nil && *topLogprobs > 20 {
		return invalid("top_logprobs", "Top_logprobs must be between 0 and 20, got %d", *topLogprobs)
	}
	if p := checkMaxTokens("max_tokens", "Max tokens", r.Stop.MaxTokens); p != nil {
		return p
	}
	if p := checkMaxTokens("max_completion_tokens", "Max completion tokens", maxCompletion); p != nil {
		return p
	}
	if maxCompletion != nil {
		r.Stop.MaxTokens = maxCompletion
	}
	if p := checkN(s); p != nil {
		return p
	}
	if p := checkStop(f, r); p != nil {
		return p
	}
	if p := checkTemperatureAndTopP(s); p != nil {
		return p
	}
	if topLogprobs != nil {
		n := uint32(*topLogprobs)
		r.Output.Logprobs = &n
	} else if logprobs != nil && *logprobs {
		var none uint32
		r.Output.Logprobs = &none
	}
	c.logprobs = r.Output.Logprobs != nil
	return nil
}
