package prompt

import (
	"strings"

	"signalbox/preprocess/chattemplate"
)

// form is a compiled template with what probing it found out: how it wants messages to look.
type form struct {
	template *chattemplate.Template
	// partsOnly templates read content as a list of parts and drop a plain string.
	partsOnly bool
	// stringArguments templates print the arguments of past calls as the text that they came as.
	stringArguments bool
	// oneSystem templates refuse a system turn that does not lead; alternating ones two user turns in a row.
	oneSystem, alternating bool
	reasoning              reasoningUse
	media                  mediaUse
}

// reasoningUse is how a template reads the reasoning of past turns.
type reasoningUse uint8

const (
	reasoningUnread reasoningUse = iota
	reasoningString
	reasoningAny
)

// mediaUse is how a template takes images and other media.
type mediaUse uint8

const (
	mediaParts mediaUse = iota
	mediaNumbered
	mediaTagged
	mediaDropped
)

func (t *form) mediaMark(number int) string {
	switch t.media {
	case mediaNumbered:
		return imageMark(number)
	case mediaTagged:
		return "<image>"
	}
	return ""
}

func (t *form) mediaJoin() string { return "\n" }

const probeText = "template_test"

func (f *Formatter) compile(source string) (*form, error) {
	options := chattemplate.Options{Now: f.options.Now, LenientLength: true}
	compiled, err := chattemplate.Compile(source, options)
	if err != nil {
		return nil, err
	}
	t := &form{template: compiled}
	asText := f.probe(t, `[{"role":"user","content":"`+probeText+`"}]`)
	asParts := f.probe(t, `[{"role":"user","content":[{"type":"text","text":"`+probeText+`"}]}]`)
	t.partsOnly = strings.Contains(asParts, probeText) && !strings.Contains(asText, probeText)
	if strings.Contains(source, "arguments is string") {
		call := f.probe(t, `[{"role":"user","content":"x"},{"role":"assistant","content":"","tool_calls":[{"id":"callabc12","type":"function","function":{"name":"f","arguments":"{\"`+probeText+`\": 1}"}}]}]`)
		t.stringArguments = strings.Contains(call, `{"`+probeText+`": 1}`)
	}
	plain := f.renders(t, `[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]`)
	t.oneSystem = plain && !f.renders(t, `[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"system","content":"s"},{"role":"user","content":"c"}]`)
	t.alternating = plain && !f.renders(t, `[{"role":"user","content":"a"},{"role":"user","content":"b"}]`)
	switch {
	case !strings.Contains(source, "reasoning_content"):
		t.reasoning = reasoningUnread
	case strings.Contains(source, "reasoning_content is string"):
		t.reasoning = reasoningString
	default:
		t.reasoning = reasoningAny
	}
	switch {
	case strings.Contains(source, "<|end|>") && strings.Contains(source, "<|assistant|>"):
		t.media = mediaNumbered
	case strings.Contains(source, "USER:") && strings.Contains(source, "ASSISTANT:"):
		t.media = mediaTagged
	}
	return t, nil
}

func (f *Formatter) probe(t *form, messages string) string {
	text, _ := f.try(t, messages)
	return text
}

func (f *Formatter) renders(t *form, messages string) bool {
	_, err := f.try(t, messages)
	return err == nil
}

func (f *Formatter) try(t *form, messages string) (string, error) {
	value, err := chattemplate.ParseJSONString(messages)
	if err != nil {
		return "", err
	}
	variables := chattemplate.NewDict(6)
	variables.Set("messages", value)
	variables.Set("tools", chattemplate.None)
	for name, token := range f.tokens {
		variables.Set(name, token)
	}
	variables.Set("add_generation_prompt", chattemplate.False)
	return t.template.Render(variables.Value())
}
