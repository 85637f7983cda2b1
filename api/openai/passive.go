package openai

import (
	"slices"
	"strings"

	"signalbox/api/body"
	"signalbox/internal/jsontape"
)

// passiveField is a member of a request that is taken and has no effect here, or none that its type must be known for. A value
// of another type is a mistake all the same: the client would learn of it elsewhere.
type passiveField struct {
	name string
	kind jsontape.Kind
	// words are the only ones for a string, or for the strings of an array; nil for any.
	words []string
}

var passiveFields = []passiveField{
	{name: "store", kind: jsontape.True},
	{name: "metadata", kind: jsontape.Object},
	{name: "service_tier", kind: jsontape.String, words: []string{"auto", "default", "flex", "scale", "priority"}},
	{name: "modalities", kind: jsontape.Array, words: []string{"text", "audio"}},
	{name: "prediction", kind: jsontape.Object},
	{name: "audio", kind: jsontape.Object},
	{name: "web_search_options", kind: jsontape.Object},
	{name: "verbosity", kind: jsontape.String, words: []string{"low", "medium", "high"}},
	{name: "safety_identifier", kind: jsontape.String},
	{name: "prompt_cache_key", kind: jsontape.String},
	{name: "prompt_cache_retention", kind: jsontape.String},
	{name: "chat_template_args", kind: jsontape.Object},
	{name: "chat_template_kwargs", kind: jsontape.Object},
}

// passiveResponses are those of the Responses API; tools, formats and efforts are judged further where they are read.
var passiveResponses = []passiveField{
	{name: "store", kind: jsontape.True},
	{name: "metadata", kind: jsontape.Object},
	{name: "service_tier", kind: jsontape.String, words: []string{"auto", "default", "flex", "scale", "priority"}},
	{name: "truncation", kind: jsontape.String, words: []string{"auto", "disabled"}},
	{name: "include", kind: jsontape.Array},
	{name: "reasoning", kind: jsontape.Object},
	{name: "text", kind: jsontape.Object},
	{name: "user", kind: jsontape.String},
	{name: "safety_identifier", kind: jsontape.String},
	{name: "prompt_cache_key", kind: jsontape.String},
	{name: "prompt_cache_retention", kind: jsontape.String},
}

// checkPassive judges the passive members.
func checkPassive(f *body.Fields, fields []passiveField) {
	for _, field := range fields {
		switch field.kind {
		case jsontape.True:
			f.Bool(field.name)
		case jsontape.String:
			if text := f.String(field.name); text != nil {
				checkWord(f, field, *text)
			}
		case jsontape.Array:
			for _, text := range f.Strings(field.name) {
				checkWord(f, field, text)
			}
		case jsontape.Object:
			if node := f.Node(field.name); node.Exists() && node.Kind() != jsontape.Object {
				f.Fail(field.name, "invalid type: %s, expected a map", node.Kind())
			}
		}
	}
}

func checkWord(f *body.Fields, field passiveField, text string) {
	if field.words != nil && !slices.Contains(field.words, text) {
		f.Fail(field.name, "unknown variant `%s`, expected one of `%s`", text, strings.Join(field.words, "`, `"))
	}
}

// checkGuidedTypes judges the types of what constrains the output; readGuided judges later how they go together.
func checkGuidedTypes(f *body.Fields) {
	for _, name := range []string{"guided_regex", "guided_grammar", "guided_decoding_backend", "guided_whitespace_pattern"} {
		f.String(name)
	}
	f.Strings("guided_choice")
}
