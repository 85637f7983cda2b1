package pipeline

import (
	"encoding/json"

	"signalbox/inference"
	"signalbox/internal/jsontape"
)

// CallGrammar is TextStages that know how a model's own markup of calls is enforced, and when its engine has to let it reason first.
type CallGrammar interface {
	// CallGrammar returns a structural tag, nil for none. native tells that calls which the client demands are to be in the model's own
	// markup; else they are JSON. The error, a *PromptError, tells what in the tools cannot be demanded.
	CallGrammar(job *Job, prompt string) (tag []byte, native bool, err error)
	// RequiresReasoning tells whether a constrained answer comes after reasoning, which the constraint must let pass.
	RequiresReasoning(job *Job) bool
	// ReasoningArguments are raw members of extra_args from which engines see how far reasoning has come; nil for none.
	ReasoningArguments(job *Job, prompt string) map[string][]byte
}

// constrainToolChoice makes the worker write calls when the client demands some, in the place of a response format, and holds those that
// it may write to their form where the worker asks for that.
func (p *Pipeline) constrainToolChoice(job *Job, prompt string) error {
	parsing, sampling := &job.Parsing, &job.Request.Sampling
	forced := parsing.ToolChoice >= ToolChoiceRequired
	grammar, ok := p.Model.Stages.(CallGrammar)
	if ok && !parsing.Off {
		job.Request.RequireReasoning = grammar.RequiresReasoning(job)
		job.addExtraArguments(grammar.ReasoningArguments(job, prompt))
	}
	answers := sampling.Guided != nil && parsing.AnswerSchema != nil && parsing.ToolChoice == ToolChoiceAuto && len(parsing.Tools) > 0
	if ok && !parsing.Off && (forced || sampling.Guided == nil || answers) {
		tag, native, err := grammar.CallGrammar(job, prompt)
		if err != nil {
			return err
		}
		parsing.NativeCalls = native
		if tag != nil {
			sampling.Guided = &inference.GuidedDecoding{StructuralTag: tag}
			return nil
		}
		if native {
			sampling.Guided = nil // the prompt demands the calls
			return nil
		}
	}
	switch parsing.ToolChoice {
	case ToolChoiceRequired:
		schema, err := anyCall(parsing)
		if err != nil {
			return err
		}
		sampling.Guided = &inference.GuidedDecoding{JSON: schema}
	case ToolChoiceNamed:
		for _, tool := range parsing.Tools {
			if tool.Name == parsing.ToolName {
				sampling.Guided = &inference.GuidedDecoding{JSON: parametersOf(tool)}
			}
		}
	}
	return nil
}

// anyCall is the schema of one call or more of any tool. Definitions that tools bring along stand at its top, where references to them
// look for them.
func anyCall(parsing *Parsing) ([]byte, error) {
	schema := []byte(`{"type":"array","minItems":1,"items":{"type":"object","anyOf":[`)
	definitions := map[string]string{}
	var shared []byte
	for i, tool := range parsing.Tools {
		if i > 0 {
			schema = append(schema, ',')
		}
		parameters := parametersOf(tool)
		document, err := jsontape.Parse(parameters)
		if err != nil {
			return nil, &PromptError{Param: "tools", Message: "the parameters of tool " + tool.Name + " are no JSON: " + err.Error()}
		}
		if own := document.Root().Get("$defs"); own.Exists() {
			if own.Kind() != jsontape.Object {
				return nil, &PromptError{Param: "tools", Message: "$defs of tool " + tool.Name + " must be an object"}
			}
			parameters = withoutMember(document.Root(), "$defs")
			for name, definition := range own.Members {
				if known, ok := definitions[name]; ok {
					if known != string(definition.Raw()) {
						return nil, &PromptError{Param: "tools", Message: "tools define " + name + " in $defs differently; use names of their own"}
					}
					continue
				}
				definitions[name] = string(definition.Raw())
				if shared != nil {
					shared = append(shared, ',')
				}
				shared = append(shared, quoted(name)...)
				shared = append(append(shared, ':'), definition.Raw()...)
			}
		}
		schema = append(schema, `{"properties":{"name":{"type":"string","enum":["`...)
		schema = append(schema, tool.Name...) // names hold only letters, digits, underscores and dashes
		schema = append(schema, `"]},"parameters":`...)
		schema = append(schema, parameters...)
		schema = append(schema, `},"required":["name","parameters"]}`...)
	}
	schema = append(schema, "]}"...)
	if shared != nil {
		schema = append(append(append(schema, `,"$defs":{`...), shared...), '}')
	}
	if only := parsing.ParallelToolCalls; only != nil && !*only {
		schema = append(schema, `,"maxItems":1`...)
	}
	return append(schema, '}'), nil
}

// withoutMember is the text of an object that lacks one member.
func withoutMember(object jsontape.Node, name string) []byte {
	text := []byte{'{'}
	for key, value := range object.Members {
		if key == name {
			continue
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(text, quoted(key)...)
		text = append(append(text, ':'), value.Raw()...)
	}
	return append(text, '}')
}

func parametersOf(tool Tool) []byte {
	if tool.Parameters == nil {
		return []byte(`{"type":"object","properties":{}}`)
	}
	return tool.Parameters
}

func quoted(text string) []byte {
	raw, _ := json.Marshal(text) // a text can always be written
	return raw
}

// addExtraArguments adds raw members to extra_args.
func (job *Job) addExtraArguments(members map[string][]byte) {
	if len(members) == 0 {
		return
	}
	all := make(map[string]json.RawMessage)
	if job.Request.ExtraArgs != nil {
		_ = json.Unmarshal(job.Request.ExtraArgs, &all) // the API wrote an object
	}
	for name, raw := range members {
		all[name] = raw
	}
	if raw, err := json.Marshal(all); err == nil {
		job.Request.ExtraArgs = raw
	}
}
