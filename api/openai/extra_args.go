package openai

import (
	"encoding/json"

	"signalbox/api/body"
	"signalbox/api/nvext"
)

// engineArguments are members that only an engine understands. logit_bias is among them: nothing else carries it to the worker.
var engineArguments = []string{"detokenize", "allowed_token_ids", "bad_words_token_ids", "logprob_token_ids", "logit_bias"}

// extraArguments gathers what travels to the worker under extra_args, so that nothing that a client asks for is dropped on the way: the
// engine's own options, and the parts of the extension that the worker answers. nil when there is nothing.
func extraArguments(f *body.Fields, extension *nvext.Extension, disabled bool) []byte {
	engine := make(map[string]json.RawMessage)
	for _, name := range engineArguments {
		if raw := f.Raw(name); raw != nil {
			engine[name] = raw
		}
	}
	var own map[string]any
	if !disabled {
		own = extension.WorkerArguments(f.Node("nvext"))
	}
	all := make(map[string]any)
	if len(engine) > 0 {
		all["sampling_options"] = engine
	}
	if len(own) > 0 {
		all["nvext"] = own
	}
	if len(all) == 0 {
		return nil
	}
	text, err := json.Marshal(all)
	if err != nil { // made of JSON
		return nil
	}
	return text
}
