package passthrough

import (
	"errors"
	"fmt"

	"signalbox/inference"
	"signalbox/internal/jsontape"
	"signalbox/pipeline"
)

// chunkReader reads the chunks of chat completions and of completions, or a whole answer of either.
type chunkReader struct {
	deltas       []pipeline.Delta
	usage        pipeline.Usage
	opened, done []bool // per choice
	ended        int
	// expected is how many choices there will be; early is what was told of tokens before all of them had ended, by servers that count
	// each choice by itself.
	expected, early int
}

// maxChoices bounds the index of a choice.
const maxChoices = 128

// finished tells whether all choices that were opened have ended.
func (c *chunkReader) finished() bool { return len(c.opened) > 0 && c.ended >= len(c.opened) }

// read appends what a chunk brings to the deltas.
func (c *chunkReader) read(text []byte) error {
	document, err := jsontape.Parse(text)
	if err != nil {
		return err
	}
	root := document.Root()
	if root.Kind() != jsontape.Object {
		return errors.New("a chunk that is no object")
	}
	choices, before := root.Get("choices"), c.ended
	for _, choice := range choices.Elements {
		if err := c.choice(choice); err != nil {
			return err
		}
	}
	if usage := root.Get("usage"); usage.Present() {
		c.readUsage(usage)
		switch ends := choices.Len() == 0 || c.ended > before; {
		case ends && c.ended < c.expected:
			c.early += c.usage.CompletionTokens
		case ends:
			c.usage.CompletionTokens += c.early
		}
	}
	return nil
}

func (c *chunkReader) choice(choice jsontape.Node) error {
	index, _ := choice.Get("index").Uint()
	if index >= maxChoices {
		return fmt.Errorf("choice %d; at most %d are possible", index, maxChoices)
	}
	for int(index) >= len(c.opened) {
		c.opened, c.done = append(c.opened, false), append(c.done, false)
	}
	d := pipeline.Delta{Index: uint32(index), OpensChoice: !c.opened[index]}
	c.opened[index] = true
	said := choice.Get("delta")
	if !said.Present() {
		said = choice.Get("message")
	}
	d.Content = said.Get("content").Text()
	d.Reasoning = said.Get("reasoning_content").Text()
	if d.Reasoning == "" {
		d.Reasoning = said.Get("reasoning").Text()
	}
	if text := choice.Get("text"); text.Exists() {
		d.Content = text.Text()
	}
	for at, call := range said.Get("tool_calls").Elements {
		function := call.Get("function")
		delta := pipeline.ToolCallDelta{Index: at, ID: call.Get("id").Text(), Name: function.Get("name").Text(), Arguments: function.Get("arguments").Text()}
		if number, ok := call.Get("index").Uint(); ok && number < 1<<16 {
			delta.Index = int(number)
		}
		d.ToolCalls = append(d.ToolCalls, delta)
	}
	d.Logprobs = readLogprobs(choice.Get("logprobs"))
	if reason := choice.Get("finish_reason").Text(); reason != "" {
		d.Finish = finishOf(reason)
		if stop := choice.Get("stop_reason"); stop.Kind() == jsontape.String {
			d.StopReason = inference.StopReason{Text: stop.Text()}
		} else if id, ok := stop.Uint(); ok {
			d.StopReason = inference.StopReason{TokenID: uint32(id), IsToken: true}
		}
		if !c.done[index] {
			c.done[index] = true
			c.ended++
		}
	}
	if !d.OpensChoice && d.Content == "" && d.Reasoning == "" && d.ToolCalls == nil && d.Logprobs == nil && d.Finish == inference.FinishNone {
		return nil
	}
	c.deltas = append(c.deltas, d)
	return nil
}

func finishOf(reason string) inference.FinishReason {
	switch reason {
	case "length":
		return inference.FinishLength
	case "tool_calls", "function_call":
		return inference.FinishToolCalls
	case "content_filter":
		return inference.FinishContentFilter
	}
	return inference.FinishStop
}

// readLogprobs reads either shape: a list of tokens with their alternatives, or parallel lists.
func readLogprobs(node jsontape.Node) []pipeline.TokenLogprob {
	var list []pipeline.TokenLogprob
	for _, entry := range node.Get("content").Elements {
		token := entry.Get("token").Text()
		value, _ := entry.Get("logprob").Float()
		one := pipeline.TokenLogprob{Token: token, Bytes: []byte(token), Logprob: value}
		for _, other := range entry.Get("top_logprobs").Elements {
			text := other.Get("token").Text()
			value, _ := other.Get("logprob").Float()
			one.Top = append(one.Top, pipeline.TopLogprob{Token: text, Bytes: []byte(text), Logprob: value})
		}
		list = append(list, one)
	}
	if list != nil {
		return list
	}
	for _, token := range node.Get("tokens").Elements {
		list = append(list, pipeline.TokenLogprob{Token: token.Text(), Bytes: []byte(token.Text())})
	}
	for i, value := range node.Get("token_logprobs").Elements {
		if i < len(list) {
			list[i].Logprob, _ = value.Float()
		}
	}
	for i, alternatives := range node.Get("top_logprobs").Elements {
		if i >= len(list) || alternatives.Kind() != jsontape.Object {
			continue
		}
		for token, value := range alternatives.Members {
			number, _ := value.Float()
			list[i].Top = append(list[i].Top, pipeline.TopLogprob{Token: token, Bytes: []byte(token), Logprob: number})
		}
	}
	return list
}

func (c *chunkReader) readUsage(node jsontape.Node) {
	count := func(name string) int {
		value, _ := node.Get(name).Uint()
		return int(min(value, 1<<40))
	}
	c.usage.PromptTokens, c.usage.CompletionTokens = count("prompt_tokens"), count("completion_tokens")
	if cached, ok := node.Get("prompt_tokens_details").Get("cached_tokens").Uint(); ok {
		value := int(min(cached, 1<<40))
		c.usage.CachedTokens = &value
	}
	if details := node.Get("completion_tokens_details"); details.Kind() == jsontape.Object {
		c.usage.CompletionDetails = append([]byte(nil), details.Raw()...)
	}
}
