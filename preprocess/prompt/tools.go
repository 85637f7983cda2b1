package prompt

import "signalbox/preprocess/chattemplate"

// normaliseTools fills in what many templates read without asking: a description, and the parameters' type and properties.
func normaliseTools(tools chattemplate.Value) chattemplate.Value {
	if tools.Kind() != chattemplate.KindList {
		return tools
	}
	list := make([]chattemplate.Value, 0, tools.Len())
	for _, tool := range tools.Items() {
		tool = knownTool(tool)
		if function, ok := tool.Get("function"); ok {
			tool = with(tool, "function", normaliseFunction(function))
		}
		list = append(list, tool)
	}
	return chattemplate.List(list)
}

func normaliseFunction(function chattemplate.Value) chattemplate.Value {
	if description, _ := function.Get("description"); description.Kind() != chattemplate.KindString {
		function = with(function, "description", chattemplate.String(""))
	}
	parameters, _ := function.Get("parameters")
	if parameters.Kind() != chattemplate.KindDict {
		return function
	}
	_, hasType := parameters.Get("type")
	_, hasProperties := parameters.Get("properties")
	if !hasType {
		parameters = with(parameters, "type", chattemplate.String("object"))
	}
	if !hasProperties {
		parameters = with(parameters, "properties", chattemplate.NewDict(0).Value())
	}
	if hasType && hasProperties {
		return function
	}
	return with(function, "parameters", parameters)
}
