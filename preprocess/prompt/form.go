package prompt

import (
	"strings"

	"signalbox/preprocess/chattemplate"
)

// form is a compiled template with what probing it found out: how it wants messages to look.
type form struct {
	template *chattemplate.Template
	// stringArguments templates print the arguments of past calls as the text that they came as.
	stringArguments bool
	// oneSystem templates refuse a system turn that does not lead; alternating ones two user turns in a row.
	oneSystem, alternating bool
	// needsContent templates fail on past tool calls without content.
	needsContent bool
	reasoning    reasoningUse
}

// reasoningUse is how a template reads the reasoning of past turns.
type reasoningUse uint8

const (
	reasoningUnread reasoningUse = iota
	reasoningString
	reasoningAny
)

// contentUse is how the model's templates take content that is a list of parts.
type contentUse struct {
	// partsOnly templates read content as a list of parts and drop a plain string.
	partsOnly bool
	media     mediaUse
}

// mediaUse is how a template takes images and other media.
type mediaUse uint8

const (
	mediaParts    mediaUse = iota // as parts of a list
	mediaNumbered                 // as <|image_1|> in a text
	mediaTagged                   // as <image> in a text
	mediaDropped                  // not at all: the text goes through the template as it is
)

const (
	probeText      = "template_test"
	probeArguments = `{"probe": "value"}`
	probeTool      = `[{"type":"function","function":{"name":"probe","description":"","parameters":{"type":"object","properties":{}}}}]`
)

// compile compiles a template.
func (f *Formatter) compile(source string, limits chattemplate.Limits) (*chattemplate.Template, error) {
	return chattemplate.Compile(adapt(source), chattemplate.Options{
		Now: f.options.Now, Limits: limits, Dialect: chattemplate.MiniJinja, Filters: filters,
	})
}

// probeLimits are far above what a template does with a few words, and far below what a hostile one could make of a dozen
// probes otherwise.
var probeLimits = chattemplate.Limits{Steps: 200_000, OutputBytes: 1 << 20, AllocatedBytes: 16 << 20, Depth: 100}

// filters are what published templates use beyond Jinja's own filters.
var filters = map[string]func(chattemplate.Value, []chattemplate.Value) (chattemplate.Value, error){
	"fromjson": fromJSON, "from_json": fromJSON,
}

// fromJSON reads a JSON text; any other value is what it is.
func fromJSON(value chattemplate.Value, _ []chattemplate.Value) (chattemplate.Value, error) {
	if value.Kind() != chattemplate.KindString {
		return value, nil
	}
	return parseJSONText(value.Str())
}

// examine finds out how a template wants messages to look, by rendering probe, the same template with other limits. tools is
// what it is probed with: null, or a list of tools.
func (f *Formatter) examine(template, probe *chattemplate.Template, tools string) *form {
	t := &form{template: template}
	source := template.Source()
	p := f.prober(probe, tools)
	if strings.Contains(source, "arguments is string") {
		text, ok := p.render(callProbe(`""`, `"`+strings.ReplaceAll(probeArguments, `"`, `\"`)+`"`))
		t.stringArguments = ok && strings.Contains(text, probeArguments)
	}
	// A template that cannot render this much does not refuse a form, it is broken.
	if p.accepts(turns("system", "user")) {
		t.oneSystem = !p.accepts(turns("system", "user", "system")) ||
			!p.accepts(turns("system", "user", "assistant", "system", "user"))
		t.alternating = !p.accepts(turns("system", "user", "user"))
	}
	call := callProbe("null", t.probeArguments())
	t.needsContent = !p.accepts(strings.Replace(call, `"content":"",`, "", 1)) && p.accepts(call)
	t.reasoning = f.examineReasoning(t, p)
	return t
}

// examineReasoning finds out whether a template shows reasoning, and whether it takes it in segments.
func (f *Formatter) examineReasoning(t *form, p prober) reasoningUse {
	const first, last = "\x01reasoning_first\x01", "\x01reasoning_last\x01"
	const firstJSON, lastJSON = `"\u0001reasoning_first\u0001"`, `"\u0001reasoning_last\u0001"`
	if !strings.Contains(t.template.Source(), "reasoning_content") {
		return reasoningUnread
	}
	arguments := t.probeArguments()
	if text, _ := p.render(callProbe(firstJSON, arguments)); !strings.Contains(text, first) {
		return reasoningAny
	}
	text, _ := p.render(callProbe("["+firstJSON+","+lastJSON+"]", arguments))
	if strings.Contains(text, first) || strings.Contains(text, last) {
		return reasoningAny
	}
	return reasoningString
}

// probeArguments are arguments in the form that the template is given them.
func (t *form) probeArguments() string {
	if t.stringArguments {
		return `"{}"`
	}
	return `{}`
}

// examineContent finds out how templates take parts; it asks the default template, without telling it anything else.
func (f *Formatter) examineContent(template *chattemplate.Template) contentUse {
	variables := chattemplate.NewDict(1)
	variables.Set("add_generation_prompt", chattemplate.False)
	p := prober{template, variables.Value().Entries()}
	asText, _ := p.render(`[{"role":"user","content":"` + probeText + `"}]`)
	asParts, _ := p.render(`[{"role":"user","content":[{"type":"text","text":"` + probeText + `"}]}]`)
	source := template.Source()
	switch {
	case strings.Contains(asParts, probeText) && !strings.Contains(asText, probeText):
		return contentUse{partsOnly: true}
	case strings.Contains(source, "<|end|>") && strings.Contains(source, "<|assistant|>"):
		return contentUse{media: mediaNumbered}
	case strings.Contains(source, "USER:") && strings.Contains(source, "ASSISTANT:"):
		return contentUse{media: mediaTagged}
	}
	if strings.TrimSpace(asText) == probeText {
		mixed, _ := p.render(`[{"role":"user","content":[{"type":"text","text":"` + probeText + `"},{"type":"image"}]}]`)
		if strings.Contains(mixed, "[") && strings.Contains(mixed, "type") {
			return contentUse{media: mediaDropped}
		}
	}
	return contentUse{}
}

// prober renders small conversations to see what a template does with them.
type prober struct {
	template *chattemplate.Template
	// variables are what the template is told besides the messages.
	variables []chattemplate.Entry
}

func (f *Formatter) prober(template *chattemplate.Template, tools string) prober {
	value, err := chattemplate.ParseJSONString(tools)
	if err != nil {
		value = chattemplate.None
	}
	variables := chattemplate.NewDict(6)
	variables.Set("tools", value)
	f.setTokens(variables)
	variables.Set("add_generation_prompt", chattemplate.False)
	return prober{template, variables.Value().Entries()}
}

func (p prober) render(messages string) (text string, ok bool) {
	value, err := chattemplate.ParseJSONString(messages)
	if err != nil {
		return "", false
	}
	variables := chattemplate.NewDict(len(p.variables) + 1)
	variables.Set("messages", value)
	for _, entry := range p.variables {
		variables.Set(entry.Key.Str(), entry.Value)
	}
	text, err = p.template.Render(variables.Value())
	return text, err == nil
}

func (p prober) accepts(messages string) bool {
	_, ok := p.render(messages)
	return ok
}

// turns is a conversation of one-letter messages in the given roles.
func turns(roles ...string) string {
	messages := make([]string, len(roles))
	for i, role := range roles {
		messages[i] = `{"role":"` + role + `","content":"` + role[:1] + `"}`
	}
	return "[" + strings.Join(messages, ",") + "]"
}

// callProbe is a conversation with a past tool call, whose reasoning and arguments are given as JSON.
func callProbe(reasoning, arguments string) string {
	return `[{"role":"user","content":"u"},{"role":"assistant","content":"","reasoning_content":` + reasoning +
		`,"tool_calls":[{"id":"call_probe","type":"function","function":{"name":"probe","arguments":` + arguments + `}}]},` +
		`{"role":"tool","tool_call_id":"call_probe","content":"r"}]`
}
