package toolcall

// secondStructured is a format for which the second generation of parsers makes tags of its own: they say more of what free text may not
// hold, and one function that is demanded is the whole answer.
type secondStructured struct {
	trigger string
	// call makes the tag of one tool's call, with calls around the tags of several.
	call  func(tool Tool, o StructureOptions) node
	calls func(tags []node, firstOnly bool) node
	// only makes a demanded answer of calls, whose first text is prefix; separator stands between calls.
	prefix, separator string
	// excluded is what text beside calls may not hold, banned what no text may hold where calls are forbidden.
	excluded, banned []string
	// gap follows the end of reasoning.
	gap string
}

var secondFormats = map[string]secondStructured{
	"qwen3_coder": {trigger: "<tool_call>\n<function=", excluded: []string{"<function="}, banned: []string{"<tool_call>", "<function="}, separator: "\n", gap: "\n\n",
		call: func(tool Tool, o StructureOptions) node {
			schema := tagSchema(tool, o.Strict)
			content := o.schema(schema, "qwen_xml")
			if isClosedEmpty(schema) {
				content = constant("")
			}
			return tag("<tool_call>\n<function="+tool.Name+">\n", content, "\n</function>\n</tool_call>")
		}},
	"glm47": {trigger: "<tool_call>", excluded: append([]string{"</tool_call>"}, glmMarkers...), banned: append([]string{"<tool_call>", "</tool_call>"}, glmMarkers...),
		call: func(tool Tool, o StructureOptions) node {
			schema := tagSchema(tool, o.Strict)
			if text, ok := schema.(rawJSON); ok {
				if inlined, err := glmSchema(text); err == nil {
					schema = inlined
				}
			}
			return tag("<tool_call>"+tool.Name, o.schema(schema, "glm_xml"), "</tool_call>")
		}},
	"deepseek_v4": dsmlSecond,
	"deepseek-v4": dsmlSecond,
	"deepseekv4":  dsmlSecond,
}

const (
	dsmlBlock  = "<｜DSML｜tool_calls>"
	dsmlInvoke = "<｜DSML｜invoke name="
)

var dsmlSecond = secondStructured{trigger: dsmlBlock, excluded: []string{dsmlInvoke}, banned: []string{dsmlBlock, dsmlInvoke}, prefix: "\n\n",
	call: func(tool Tool, o StructureOptions) node {
		return tag(dsmlInvoke+`"`+tool.Name+"\">\n", o.schema(tagSchema(tool, o.Strict), "deepseek_xml"), "</｜DSML｜invoke>\n")
	},
	calls: func(tags []node, firstOnly bool) node {
		return tag(dsmlBlock+"\n", separated(tags, firstOnly), "</｜DSML｜tool_calls>")
	}}

// schema is the node of a call's arguments.
func (o *StructureOptions) schema(schema any, style string) node {
	n := jsonSchema(schema, style)
	if o.AnyOrder {
		n = append(n, nodeMember{"any_order", true})
	}
	return n
}

// structure is Structure of the second generation.
func (s secondStructured) structure(tools []Tool, o StructureOptions) node {
	tags := make([]node, len(tools))
	for i, tool := range tools {
		tags[i] = s.call(tool, o)
	}
	if s.calls != nil {
		tags = []node{s.calls(tags, o.FirstCallOnly || o.Function != "")}
	}
	var content node
	switch {
	case o.Function != "":
		content = s.prefixed(tags[0])
	case o.Answer != nil && !o.Forced:
		content = oneOf([]node{s.only(tags, o.FirstCallOnly), jsonSchema(rawJSON(o.Answer), "json")})
	default:
		content = node{{"type", "triggered_tags"}, {"triggers", []string{s.trigger}}, {"tags", tags}}
		if !o.AnySpecial {
			content = append(content, nodeMember{"excludes", append([]string{thinkBegin, thinkEnd}, s.excluded...)})
		}
		content = append(content, nodeMember{"at_least_one", o.Forced}, nodeMember{"stop_after_first", o.FirstCallOnly})
		if o.Forced && s.prefix != "" {
			content = sequence(constant(s.prefix), content)
		}
	}
	if !o.InReasoning {
		return content
	}
	text := anyText(s.banned...)
	if o.AnySpecial {
		text = anyText()
	}
	elements := []node{tag("", text, thinkEnd)}
	if s.gap != "" {
		elements = append(elements, constant(s.gap))
	}
	return sequence(append(elements, content)...)
}

// only is calls and nothing else.
func (s secondStructured) only(tags []node, firstOnly bool) node {
	if s.calls != nil {
		return s.prefixed(tags[0])
	}
	calls := separated(tags, firstOnly)
	for i := range calls {
		if calls[i].name == "separator" {
			calls[i].value = s.separator
		}
	}
	return calls
}

// prefixed is a tag that begins with the format's first text.
func (s secondStructured) prefixed(call node) node {
	for i := range call {
		if begin, ok := call[i].value.(string); ok && call[i].name == "begin" {
			call[i].value = s.prefix + begin
		}
	}
	return call
}
