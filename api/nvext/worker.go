package nvext

import (
	"encoding/json"
	"slices"

	"signalbox/internal/jsontape"
)

// WorkerArguments are the parts of the extension that the worker answers, as it finds them under extra_args.nvext; nil when there are
// none. node is the extension as the client wrote it; also are fields that the API needs for itself.
func (e *Extension) WorkerArguments(node jsontape.Node, also ...string) map[string]any {
	own := make(map[string]any)
	fields := slices.Clone(e.ExtraFields)
	for _, name := range also {
		if !slices.Contains(fields, name) {
			fields = append(fields, name)
		}
	}
	if len(fields) > 0 {
		own["extra_fields"] = fields
	}
	if upload := node.Get("metadata_upload"); upload.Present() {
		own["metadata_upload"] = json.RawMessage(upload.Raw())
	}
	if e.HasTokens {
		own["token_in"] = true
	}
	if len(own) == 0 {
		return nil
	}
	return own
}

// ExtraArguments is extra_args with these parts alone, nil when there are none.
func (e *Extension) ExtraArguments(node jsontape.Node, also ...string) []byte {
	own := e.WorkerArguments(node, also...)
	if own == nil {
		return nil
	}
	text, err := json.Marshal(map[string]any{"nvext": own})
	if err != nil { // made of JSON
		return nil
	}
	return text
}
