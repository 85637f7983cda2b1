package prompt

import "signalbox/preprocess/chattemplate"

// parseJSON reads what templates are given. Integers that fit into 64 bits, with or without a sign, stay integers; longer ones
// become floating point numbers, as they do on their way through the fleet's other frontends.
func parseJSON(text []byte) (chattemplate.Value, error) { return parseJSONText(string(text)) }

func parseJSONText(text string) (chattemplate.Value, error) { return chattemplate.ParseJSON64(text) }
