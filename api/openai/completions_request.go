package openai

import (
	"encoding/base64"
	"io"
	"strings"
	"time"

	"signalbox/api/body"
	"signalbox/api/nvext"
	"signalbox/api/problem"
	"signalbox/inference"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

var completionFields = fieldSet(`model prompt suffix max_tokens temperature top_p n stream stream_options logprobs echo stop
	presence_penalty frequency_penalty best_of logit_bias user seed metadata prompt_embeds
	ignore_eos min_tokens top_k min_p repetition_penalty include_stop_str_in_output skip_special_tokens prompt_logprobs
	guided_json guided_regex guided_grammar guided_choice guided_decoding_backend guided_whitespace_pattern
	return_tokens_as_token_ids nvext cache_salt stop_token_ids allowed_token_ids logprob_token_ids bad_words_token_ids detokenize
	response_format media_io_kwargs mm_processor_kwargs`)

const (
	maxSuffixCharacters = 10000
	maxTotalChoices     = 128
)

// completionPrompt is one prompt of a completions request.
type completionPrompt struct {
	text   string
	tokens []uint32
}

// completionRequest is a parsed and judged completions body.
type completionRequest struct {
	jobs      []*pipeline.Job
	extension *nvext.Extension
	stream    bool
	options   streamOptions
	echo      bool
	choices   int // per prompt
	model     string
}

// readCompletion parses the body of a completions request; template is the request that headers began.
func (a *API) readCompletion(document *jsontape.Document, template *inference.Request) (*completionRequest, *problem.Problem) {
	root := document.Root()
	f := body.NewFields(root, "")
	if f.Problem != nil {
		return nil, f.Problem
	}
	c := &completionRequest{choices: 1}
	r := template
	r.Model = f.RequiredString("model")
	c.model = r.Model
	prompts := readPrompts(f)
	readSampling(f, r)
	readStop(f, r)
	if stream := f.Bool("stream"); stream != nil {
		c.stream = *stream
	}
	c.options = readStreamOptions(f)
	r.Sampling.BestOf = f.Uint8("best_of")
	logprobs := f.Uint8("logprobs")
	if echo := f.Bool("echo"); echo != nil {
		c.echo = *echo
	}
	if c.echo && r.Output.PromptLogprobs == nil {
		one := uint32(1) // what engines understand of echo
		r.Output.PromptLogprobs = &one
	}
	suffix := f.String("suffix")
	user := f.String("user")
	if embeds := f.String("prompt_embeds"); embeds != nil {
		r.PromptEmbeds = *embeds
	}
	checkGuidedTypes(f)
	checkPassive(f, passiveFields)
	extension, p := nvext.Parse(f.Node("nvext"), r, a.options.DisableExtensions)
	if f.Problem != nil {
		return nil, f.Problem
	}
	if p != nil {
		return nil, p
	}
	c.extension = extension
	if f.Node("stream_options").Exists() && !c.stream {
		return nil, invalid("stream_options", "The 'stream_options' field is only allowed when 'stream' is set to true.")
	}
	if p := a.checkUnknownFields(root, completionFields); p != nil {
		return nil, p
	}
	if r.PromptEmbeds != "" {
		// They are the prompt: what stands beside them is not read.
		if p := checkPromptEmbeds(r.PromptEmbeds); p != nil {
			return nil, p
		}
		prompts = []completionPrompt{{}}
	} else if p := checkPrompts(f.Node("prompt"), prompts); p != nil {
		return nil, p
	}
	if p := c.checkSampling(f, r, logprobs, suffix, user); p != nil {
		return nil, p
	}
	if p := readLoose(f, r); p != nil {
		return nil, p
	}
	r.ExtraArgs = extraArguments(f, extension, a.options.DisableExtensions)
	format, p := readResponseFormat(f)
	if p == nil {
		p = f.Problem
	}
	if p != nil {
		return nil, p
	}
	if r.Sampling.Guided, p = readGuided(f, format, pipeline.ToolChoiceAuto); p != nil {
		return nil, p
	}
	if r.Sampling.N != nil {
		c.choices = int(*r.Sampling.N)
	}
	if total := len(prompts) * c.choices; total > maxTotalChoices {
		return nil, invalid("prompt", "Total choices (batch_size × n = %d × %d = %d) exceeds maximum of %d", len(prompts), c.choices, total, maxTotalChoices)
	}
	if extension.Wants("completion_token_ids") && len(prompts)*c.choices > 1 {
		return nil, invalid("nvext.extra_fields", "`nvext.extra_fields=[\"completion_token_ids\"]` requires exactly one generated choice")
	}
	c.makeJobs(r, prompts)
	return c, nil
}

// CompletionJob judges a completions body of one prompt for a protocol that has its own way in and out. request is what is known of
// it already.
func (a *API) CompletionJob(text []byte, request *inference.Request) (*pipeline.Job, *problem.Problem) {
	document, err := jsontape.Parse(text)
	if err != nil {
		return nil, problem.Invalid("", body.DeserializePrefix+"%v", err)
	}
	c, p := a.readCompletion(document, request)
	if p != nil {
		return nil, p
	}
	return c.jobs[0], nil
}

func (c *completionRequest) makeJobs(r *inference.Request, prompts []completionPrompt) {
	now := time.Now()
	for i := range prompts {
		request := r
		if len(prompts) > 1 {
			request = r.Clone()
		}
		job := &pipeline.Job{Request: request, Received: now, Endpoint: "completions", Streaming: c.stream,
			Parsing: pipeline.Parsing{Off: true}, Extras: c.extension.Extras()}
		switch {
		case c.extension.HasTokens:
			request.TokenIDs = c.extension.TokenData
		case prompts[i].tokens != nil:
			request.TokenIDs = prompts[i].tokens
		default:
			job.Prompt.Text = &prompts[i].text
		}
		c.jobs = append(c.jobs, job)
	}
}

// readPrompts reads prompt: a string, strings, token ids, or arrays of token ids.
func readPrompts(f *body.Fields) []completionPrompt {
	node := f.Object().Get("prompt")
	switch node.Kind() {
	case jsontape.Invalid:
		f.Missing("prompt")
		return []completionPrompt{{}}
	case jsontape.String:
		return []completionPrompt{{text: node.Text()}}
	case jsontape.Array:
		if node.Len() == 0 {
			return nil
		}
		if ids, bad := body.TokenIDs(node); !bad.Exists() {
			return []completionPrompt{{tokens: ids}}
		}
		prompts := make([]completionPrompt, 0, node.Len())
		kind := jsontape.Invalid // texts or token ids, not both
		for i, element := range node.Elements {
			if i == 0 {
				kind = element.Kind()
			}
			switch {
			case element.Kind() != kind:
			case kind == jsontape.String:
				prompts = append(prompts, completionPrompt{text: element.Text()})
				continue
			case kind == jsontape.Array:
				if ids, bad := body.TokenIDs(element); !bad.Exists() {
					prompts = append(prompts, completionPrompt{tokens: ids})
					continue
				}
			}
			f.Fail("prompt", "data did not match any variant of untagged enum Prompt")
			return nil
		}
		return prompts
	}
	f.Fail("prompt", "data did not match any variant of untagged enum Prompt")
	return nil
}

// minEmbedBytes is the least that a tensor file takes.
const minEmbedBytes = 100

func checkPromptEmbeds(text string) *problem.Problem {
	size := base64.StdEncoding.DecodedLen(len(text)) - strings.Count(text[max(0, len(text)-2):], "=")
	if _, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, strings.NewReader(text))); err != nil {
		return invalid("prompt_embeds", "prompt_embeds must be valid base64-encoded data")
	}
	if size < minEmbedBytes {
		return invalid("prompt_embeds", "prompt_embeds decoded data must be at least %d bytes, got %d bytes", minEmbedBytes, size)
	}
	return nil
}

func checkPrompts(node jsontape.Node, prompts []completionPrompt) *problem.Problem {
	switch {
	case node.Kind() == jsontape.String && prompts[0].text == "":
		return invalid("prompt", "Prompt string cannot be empty")
	case node.Kind() == jsontape.Array && len(prompts) == 0:
		return invalid("prompt", "Prompt string array cannot be empty")
	}
	if node.Kind() == jsontape.Array {
		for i, prompt := range prompts {
			if prompt.text == "" && len(prompt.tokens) == 0 {
				return invalid("prompt", "Prompt string at index %d cannot be empty", i)
			}
		}
	}
	return nil
}

func (c *completionRequest) checkSampling(f *body.Fields, r *inference.Request, logprobs *uint8, suffix, user *string) *problem.Problem {
	s := &r.Sampling
	if strings.TrimSpace(r.Model) == "" {
		return invalid("model", "Model cannot be empty")
	}
	if suffix != nil && len([]rune(*suffix)) > maxSuffixCharacters {
		return invalid("suffix", "Suffix is too long, maximum %d characters", maxSuffixCharacters)
	}
	if p := checkMaxTokens("max_tokens", "Max tokens", r.Stop.MaxTokens); p != nil {
		return p
	}
	if p := checkTemperatureAndTopP(s); p != nil {
		return p
	}
	if p := checkN(s); p != nil {
		return p
	}
	if logprobs != nil {
		if *logprobs > 5 {
			return invalid("logprobs", "Logprobs must be between 0 and 5, got %d", *logprobs)
		}
		count := uint32(*logprobs)
		r.Output.Logprobs = &count
	}
	if p := checkStop(f, r); p != nil {
		return p
	}
	if p := checkPenalties(s); p != nil {
		return p
	}
	if s.BestOf != nil {
		if *s.BestOf > 20 {
			return invalid("best_of", "Best_of must be between 0 and 20, got %d", *s.BestOf)
		}
		if s.N != nil && *s.BestOf < *s.N {
			return invalid("best_of", "Best_of must be greater than or equal to n, got best_of=%d and n=%d", *s.BestOf, *s.N)
		}
	}
	if p := readLogitBias(f.Node("logit_bias"), s); p != nil {
		return p
	}
	if user != nil && strings.TrimSpace(*user) == "" {
		return invalid("user", "User ID cannot be empty")
	}
	return checkRest(s)
}
