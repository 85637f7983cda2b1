package toolcall

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const k3Open, k3Close = "<|open|>", "<|close|>"

// k3Character is one character of a raw text argument: it cannot be the beginning of a mark.
const k3Character = `(?:[^<]|<[^|])`

// kimiK3Tags makes the tags of Kimi K3's channels: the response, which is empty where one function has to be called, then the calls.
func kimiK3Tags(tools []Tool, o StructureOptions) (node, error) {
	calls := make([]node, len(tools))
	for i, tool := range tools {
		arguments, err := k3ArgumentTags(tool, o)
		if err != nil {
			return nil, fmt.Errorf("tool %q: %w", tool.Name, err)
		}
		calls[i] = tag(k3Call+` tool="`+k3Attribute(tool.Name)+`" index="`, sequence(pattern("[1-9][0-9]*"), constant(`"`+k3Sep), arguments), k3CallEnd)
	}
	if !o.Forced {
		content := separated(calls, false)
		if o.FirstCallOnly {
			content = oneOf(calls)
		}
		free := anyText(k3Tools, k3Open+"think"+k3Sep, k3Close+"think"+k3Sep, k3Call)
		return sequence(free, optional(tag(k3Tools, content, k3ToolsEnd))), nil
	}
	response := anyText(k3Open, k3Close)
	if o.Function != "" {
		response = constant("")
	}
	return sequence(optional(constant(k3Open+"response"+k3Sep)), response, optional(constant(k3Close+"response"+k3Sep)),
		tag(k3Tools, separated(calls, o.FirstCallOnly), k3ToolsEnd), optional(constant(k3MsgEnd))), nil
}

func k3Attribute(value string) string {
	return strings.NewReplacer("&", "&amp;", `"`, "&quot;").Replace(value)
}

// k3AnyArguments are arguments that no schema holds.
func k3AnyArguments() node {
	return repeated(tag(k3Argument+" ", sequence(pattern(`[^<]*<\|sep\|>`), anyText(k3Close)), k3ArgEnd))
}

// k3ArgumentTags are the arguments of a call: those that must be there, in the order in which the schema lists them, then any of the rest.
func k3ArgumentTags(tool Tool, o StructureOptions) (node, error) {
	if tool.Parameters == nil || !heldToSchema(tool, o.Strict) {
		return k3AnyArguments(), nil
	}
	root, err := readSchema(tool.Parameters)
	if err != nil {
		return nil, err
	}
	parameters, err := wholeParameters(root)
	if err != nil {
		return nil, err
	}
	object, _ := parameters.(*schemaObject)
	properties, _ := object.get("properties").(*schemaObject)
	required, known := texts(object.get("required"))
	if properties == nil || !known {
		return k3AnyArguments(), nil
	}
	in := &schemaReader{root: root}
	var rest []node
	for _, key := range properties.keys {
		if slices.Contains(required, key) || !isSchema(properties.get(key)) {
			continue
		}
		argument, err := k3ArgumentTag(key, properties.get(key), in)
		if err != nil {
			return nil, err
		}
		if argument != nil {
			rest = append(rest, argument)
		}
	}
	var elements []node
	for _, key := range required {
		if !isSchema(properties.get(key)) {
			return k3AnyArguments(), nil
		}
		argument, err := k3ArgumentTag(key, properties.get(key), in)
		switch {
		case err != nil:
			return nil, err
		case argument == nil:
			return nil, fmt.Errorf("argument %q is required, but no value fits its schema", key)
		}
		elements = append(elements, argument)
	}
	if len(required) == 0 {
		if rest == nil {
			return constant(""), nil
		}
		return repeated(oneOf(rest)), nil
	}
	if rest != nil {
		elements = append(elements, repeated(oneOf(rest)))
	}
	return sequence(elements...), nil
}

// wholeParameters resolves what stands for the parameters themselves: a reference, or several schemas that all hold.
func wholeParameters(root any) (any, error) {
	object, ok := root.(*schemaObject)
	if !ok || !object.has("$ref") && !object.has("allOf") {
		return root, nil
	}
	in := &schemaReader{root: root}
	resolved, ok := in.resolve(root)
	if !ok {
		return nil, errors.New("the references of its parameters cannot be followed")
	}
	if object, ok = resolved.(*schemaObject); !ok {
		return resolved, nil
	}
	return mergeAllOf(object)
}

// k3ArgumentTag is one argument: of each type that its schema lets through, a tag of its own. It is nil when no value can be written.
func k3ArgumentTag(key string, schema any, in *schemaReader) (node, error) {
	var alternatives []node
	var done []string
	for _, kind := range in.types(schema) {
		name := kind.written()
		if slices.Contains(done, name) {
			continue
		}
		done = append(done, name)
		narrowed, err := in.ofType(schema, name)
		if err != nil {
			return nil, fmt.Errorf("argument %q: %w", key, err)
		}
		if narrowed == nil {
			continue
		}
		content := jsonSchema(narrowed, "json")
		if name == "string" {
			if content, err = k3Text(narrowed); err != nil {
				return nil, fmt.Errorf("argument %q: %w", key, err)
			}
			if content == nil {
				continue
			}
		}
		alternatives = append(alternatives, tag(k3Argument+` key="`+k3Attribute(key)+`" type="`+name+`"`+k3Sep, content, k3ArgEnd))
	}
	if alternatives == nil {
		return nil, nil
	}
	return oneOf(alternatives), nil
}

// k3Text is an argument of type string, which is written as it is and not as JSON: its constraints become a choice of texts or an
// expression. It is nil when no text fits.
func k3Text(schema *schemaObject) (node, error) {
	root := schema
	merged, err := mergeAllOf(schema)
	if err != nil {
		return nil, err
	}
	schema = merged
	least, hasLeast := whole(schema.get("minLength"))
	most, hasMost := whole(schema.get("maxLength"))
	if hasLeast && hasMost && least > most {
		return nil, nil
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if options, ok := schema.get(keyword).([]any); ok {
			return k3TextUnion(schema.without(keyword), options, root)
		}
	}
	if choice, found := k3Choice(schema, least, hasLeast, most, hasMost); found {
		if choice == nil {
			return nil, nil
		}
		return oneOf(choice), nil
	}
	if expression, ok := schema.get("pattern").(string); ok {
		return pattern(k3Pattern(expression)), nil
	}
	badLength := schema.has("minLength") && !hasLeast || schema.has("maxLength") && !hasMost || least > k3MaxLength || hasMost && most > k3MaxLength
	switch {
	case badLength:
	case hasMost:
		return pattern(fmt.Sprintf("%s{%d,%d}", k3Character, least, most)), nil
	case hasLeast:
		return pattern(fmt.Sprintf("%s{%d,}", k3Character, least)), nil
	}
	return anyText(k3Close), nil
}

// k3MaxLength bounds the lengths that become an expression; k3MaxChoice the values that become a choice.
const (
	k3MaxLength = 4096
	k3MaxChoice = 256
)

// k3TextUnion is a text of one of several schemas, each of them together with what stands beside.
func k3TextUnion(common *schemaObject, options []any, root *schemaObject) (node, error) {
	var forms []node
	for _, option := range options {
		in := &schemaReader{root: root}
		if !slices.Contains(in.types(option), typeString) {
			continue
		}
		both := newSchemaObject()
		both.set("allOf", []any{common, option})
		form, err := k3Text(both)
		if err != nil {
			return nil, err
		}
		if form != nil {
			forms = append(forms, form)
		}
	}
	if forms == nil {
		return nil, nil
	}
	return oneOf(forms), nil
}

// k3Choice lists the texts that a schema spells out, those that fit its other constraints. found is false when it spells out none, or
// more than a tag should hold.
func k3Choice(schema *schemaObject, least uint64, hasLeast bool, most uint64, hasMost bool) (choice []node, found bool) {
	constantText, isConstant := schema.get("const").(string)
	values, ok := texts(schema.get("enum"))
	switch {
	case !schema.has("enum") && isConstant:
		values = []string{constantText}
	case !schema.has("enum") || !ok || len(values) > k3MaxChoice:
		return nil, false
	}
	var expression *regexp.Regexp
	if text, ok := schema.get("pattern").(string); ok {
		compiled, err := regexp.Compile(text)
		if err != nil && len(values) > 0 {
			return nil, false
		}
		expression = compiled
	}
	for _, value := range values {
		length := uint64(utf8.RuneCountInString(value))
		if strings.Contains(value, "<|") || hasLeast && length < least || hasMost && length > most ||
			isConstant && value != constantText || expression != nil && !expression.MatchString(value) {
			continue
		}
		choice = append(choice, constant(value))
	}
	return choice, true
}

// k3Pattern makes an expression that has to match somewhere in a text one that has to match all of it.
func k3Pattern(expression string) string {
	inner, atStart := strings.CutPrefix(expression, "^")
	before, after := k3Character+"*", k3Character+"*"
	if atStart {
		before = ""
	}
	if body, ok := strings.CutSuffix(inner, "$"); ok {
		if (len(body)-len(strings.TrimRight(body, `\`)))%2 == 0 { // the dollar is not escaped
			inner, after = body, ""
		}
	}
	return before + "(?:" + inner + ")" + after
}
