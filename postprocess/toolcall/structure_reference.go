package toolcall

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Keywords whose values are schemas: maps of them, single ones, lists. A $ref anywhere else is data.
var (
	schemaMaps = []string{"$defs", "definitions", "dependentSchemas", "dependencies", "patternProperties", "properties"}
	schemaOnes = []string{"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
		"unevaluatedItems", "unevaluatedProperties"}
	schemaLists = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
)

// Bounds of what is followed in one schema.
const (
	maxReferences  = 16   // one behind another
	maxSchemaNodes = 4096 // visited
)

// schemaReader reads the schemas inside of one document, in which references are looked up.
type schemaReader struct {
	root any
	left int // nodes that may still be visited
}

// lookup finds a reference's target; false for references to other documents and to nothing.
func (in *schemaReader) lookup(reference string) (any, bool) {
	pointer, local := strings.CutPrefix(reference, "#")
	pointer, err := url.PathUnescape(pointer)
	if !local || err != nil || pointer != "" && pointer[0] != '/' {
		return nil, false
	}
	value := in.root
	if pointer != "" {
		for _, step := range strings.Split(pointer[1:], "/") {
			step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
			switch v := value.(type) {
			case *schemaObject:
				if !v.has(step) {
					return nil, false
				}
				value = v.get(step)
			case []any:
				i, err := strconv.Atoi(step)
				if err != nil || i < 0 || i >= len(v) {
					return nil, false
				}
				value = v[i]
			default:
				return nil, false
			}
		}
	}
	return value, isSchema(value)
}

// scoped tells that references below an object need not mean what they say.
func (o *schemaObject) scoped() bool {
	return o.has("$id") || o.has("$dynamicRef") || o.has("$recursiveRef")
}

// types are the types of the values that a schema may let through: all of them when it does not tell.
func (in *schemaReader) types(schema any) []jsonType {
	in.left = maxSchemaNodes
	return in.typesBelow(schema, nil, 0)
}

func (in *schemaReader) typesBelow(schema any, seen []string, depth int) []jsonType {
	if in.left--; in.left < 0 || depth >= maxReferences {
		return allTypes()
	}
	if schema == false {
		return nil
	}
	o, ok := schema.(*schemaObject)
	if !ok {
		return allTypes()
	}
	if reference, ok := o.get("$ref").(string); ok && !o.scoped() && !slices.Contains(seen, reference) {
		if target, ok := in.lookup(reference); ok {
			return in.typesBelow(target, append(slices.Clone(seen), reference), depth+1)
		}
	}
	switch declared := o.get("type").(type) {
	case string:
		if i := slices.Index(typeNames[:], declared); i >= 0 {
			return []jsonType{jsonType(i)}
		}
		return allTypes()
	case []any:
		return filterTypes(func(t jsonType) bool { return slices.Contains(declared, any(typeNames[t])) })
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if options, ok := o.get(keyword).([]any); ok {
			var union []jsonType
			for _, option := range options {
				if isSchema(option) {
					union = append(union, in.typesBelow(option, seen, depth)...)
				}
			}
			return filterTypes(func(t jsonType) bool { return slices.Contains(union, t) })
		}
	}
	if options, ok := o.get("allOf").([]any); ok {
		if types, constrained := in.typesOfAll(options, seen, depth); constrained {
			return types
		}
	}
	if o.has("const") {
		return []jsonType{typeOf(o.get("const"))}
	}
	if values, ok := o.get("enum").([]any); ok {
		return filterTypes(func(t jsonType) bool {
			return slices.ContainsFunc(values, func(value any) bool { return typeOf(value) == t })
		})
	}
	for _, hint := range typeHints {
		if slices.ContainsFunc(hint.keywords, o.has) {
			return []jsonType{hint.of}
		}
	}
	return allTypes()
}

// typeHints tell the type of a schema that does not name it, in the order in which they count.
var typeHints = []struct {
	of       jsonType
	keywords []string
}{
	{typeObject, []string{"additionalProperties", "dependentRequired", "dependentSchemas", "maxProperties", "minProperties", "patternProperties", "properties",
		"propertyNames", "required"}},
	{typeArray, []string{"contains", "items", "maxContains", "maxItems", "minContains", "minItems", "prefixItems", "uniqueItems"}},
	{typeString, []string{"format", "maxLength", "minLength", "pattern"}},
	{typeNumber, []string{"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"}},
}

// typesOfAll are the types that all of the schemas let through; constrained is false when none of them narrows the types.
func (in *schemaReader) typesOfAll(options []any, seen []string, depth int) (types []jsonType, constrained bool) {
	types = allTypes()
	for _, option := range options {
		if !isSchema(option) {
			continue
		}
		of := in.typesBelow(option, seen, depth)
		if len(of) == int(typeCount) {
			continue
		}
		constrained = true
		types = commonTypes(types, of)
	}
	return types, constrained
}

// commonTypes are the types in both lists; an integer is a number, too.
func commonTypes(a, b []jsonType) []jsonType {
	numbers := slices.Contains(a, typeNumber) && slices.Contains(b, typeNumber)
	has := func(list []jsonType, t jsonType) bool {
		return slices.Contains(list, t) || t == typeInteger && slices.Contains(list, typeNumber)
	}
	return filterTypes(func(t jsonType) bool { return has(a, t) && has(b, t) && (t != typeInteger || !numbers) })
}

func filterTypes(keep func(jsonType) bool) []jsonType {
	return slices.DeleteFunc(allTypes(), func(t jsonType) bool { return !keep(t) })
}

// resolve puts the targets in the places of references, except where that would never end; false when a reference leads nowhere.
func (in *schemaReader) resolve(schema any) (any, bool) {
	in.left = maxSchemaNodes
	return in.resolveBelow(schema, nil, 0)
}

func (in *schemaReader) resolveBelow(schema any, seen []string, depth int) (any, bool) {
	if in.left--; in.left < 0 || depth >= maxReferences {
		return nil, false
	}
	switch v := schema.(type) {
	case []any:
		return in.resolveList(v, seen, depth)
	case *schemaObject:
		if v.scoped() {
			return nil, false
		}
		reference, ok := v.get("$ref").(string)
		if !ok {
			return in.resolveMembers(v, seen, depth)
		}
		if slices.Contains(seen, reference) {
			return schema, true
		}
		target, ok := in.lookup(reference)
		if !ok {
			return nil, false
		}
		resolved, ok := in.resolveBelow(target, append(slices.Clone(seen), reference), depth+1)
		if !ok || len(v.keys) == 1 {
			return resolved, ok
		}
		beside, ok := in.resolveMembers(v.without("$ref"), seen, depth)
		both := newSchemaObject()
		both.set("allOf", []any{resolved, beside})
		return both, ok
	}
	return schema, true
}

func (in *schemaReader) resolveList(list []any, seen []string, depth int) (any, bool) {
	out := make([]any, len(list))
	for i, element := range list {
		resolved, ok := in.resolveBelow(element, seen, depth)
		if !ok {
			return nil, false
		}
		out[i] = resolved
	}
	return out, true
}

func (in *schemaReader) resolveMembers(o *schemaObject, seen []string, depth int) (any, bool) {
	out := newSchemaObject()
	for _, key := range o.keys {
		value, ok := o.get(key), true
		switch inner, isObject := value.(*schemaObject); {
		case slices.Contains(schemaMaps, key) && isObject:
			resolved := newSchemaObject()
			for _, name := range inner.keys {
				element, ok := in.resolveBelow(inner.get(name), seen, depth)
				if !ok {
					return nil, false
				}
				resolved.set(name, element)
			}
			value = resolved
		case slices.Contains(schemaOnes, key):
			value, ok = in.resolveBelow(value, seen, depth)
		case slices.Contains(schemaLists, key):
			if list, isList := value.([]any); isList {
				value, ok = in.resolveList(list, seen, depth)
			}
		}
		if !ok {
			return nil, false
		}
		out.set(key, value)
	}
	return out, true
}

// ofType is what a schema says about its values of one type, named as in markup; nil when it has none. What cannot be resolved is left
// to the engine where the type is declared.
func (in *schemaReader) ofType(schema any, name string) (*schemaObject, error) {
	resolved, ok := in.resolve(schema)
	if !ok {
		if name == "string" {
			return nil, fmt.Errorf("the references of its schema cannot be followed")
		}
		o, _ := schema.(*schemaObject)
		declared, _ := o.get("type").(string)
		if i := slices.Index(typeNames[:], declared); o.has("$ref") || i < 0 || jsonType(i).written() != name {
			return nil, nil
		}
		return in.withDefinitions(o.without()), nil
	}
	wanted := filterTypes(func(t jsonType) bool { return t.written() == name })
	narrowed := in.narrow(resolved, commonTypes((&schemaReader{root: resolved}).types(resolved), wanted))
	if narrowed == nil {
		return nil, nil
	}
	return in.rebase(in.withDefinitions(narrowed)), nil
}

// withDefinitions adds the document's definitions.
func (in *schemaReader) withDefinitions(o *schemaObject) *schemaObject {
	root, _ := in.root.(*schemaObject)
	for _, key := range []string{"$defs", "definitions"} {
		if root.has(key) && !o.has(key) {
			o.set(key, root.get(key))
		}
	}
	return o
}

// narrow is a copy of a schema that lets only values of the types through; nil when there are none.
func (in *schemaReader) narrow(schema any, wanted []jsonType) *schemaObject {
	types := commonTypes(in.types(schema), wanted)
	if len(types) == 0 {
		return nil
	}
	out := newSchemaObject()
	if o, ok := schema.(*schemaObject); ok {
		out = o.without()
	} else if schema != true {
		return nil
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		options, ok := out.get(keyword).([]any)
		if !ok {
			continue
		}
		var kept []any
		for _, option := range options {
			if narrowed := in.narrow(option, types); narrowed != nil {
				kept = append(kept, narrowed)
			}
		}
		if kept == nil {
			return nil
		}
		out.set(keyword, kept)
	}
	if values, ok := out.get("enum").([]any); ok {
		kept := slices.DeleteFunc(slices.Clone(values), func(value any) bool { return !accepts(types, value) })
		if len(kept) == 0 {
			return nil
		}
		out.set("enum", kept)
	}
	if out.has("const") && !accepts(types, out.get("const")) {
		return nil
	}
	if len(types) == 1 {
		out.set("type", typeNames[types[0]])
		return out
	}
	var names []any
	for _, t := range types {
		names = append(names, typeNames[t])
	}
	out.set("type", names)
	return out
}

// rebase lets the references that are left, those of schemas that contain themselves, point into a copy of the document which the
// schema carries along.
func (in *schemaReader) rebase(o *schemaObject) *schemaObject {
	if !hasReferences(o) {
		return o
	}
	definitions := newSchemaObject()
	if existing, ok := o.get("$defs").(*schemaObject); ok {
		definitions = existing.without()
	} else if o.has("$defs") {
		return o
	}
	o.set("$defs", definitions)
	name := "__dynamo_root" // engines see it: as the real frontend calls it
	for i := 2; definitions.has(name); i++ {
		name = "__dynamo_root_" + strconv.Itoa(i)
	}
	prefix := "#/$defs/" + name
	moved := pointInto(o, prefix).(*schemaObject)
	moved.get("$defs").(*schemaObject).set(name, pointInto(in.root, prefix))
	return moved
}

// eachSchema visits the schemas directly below an object.
func (o *schemaObject) eachSchema(visit func(schema any)) {
	for _, key := range o.keys {
		switch value := o.get(key).(type) {
		case *schemaObject:
			if slices.Contains(schemaMaps, key) {
				for _, name := range value.keys {
					visit(value.get(name))
				}
			} else if slices.Contains(schemaOnes, key) {
				visit(value)
			}
		case []any:
			if slices.Contains(schemaLists, key) {
				for _, element := range value {
					visit(element)
				}
			}
		}
	}
}

func hasReferences(schema any) bool {
	o, ok := schema.(*schemaObject)
	if !ok {
		return false
	}
	if reference, ok := o.get("$ref").(string); ok && (reference == "#" || strings.HasPrefix(reference, "#/")) {
		return true
	}
	found := false
	o.eachSchema(func(below any) { found = found || hasReferences(below) })
	return found
}

// pointInto is a copy of a schema whose references begin at another place.
func pointInto(schema any, prefix string) any {
	o, ok := schema.(*schemaObject)
	if !ok {
		return schema
	}
	out := o.without()
	if reference, ok := o.get("$ref").(string); ok {
		if rest, local := strings.CutPrefix(reference, "#"); local && (rest == "" || rest[0] == '/') {
			out.set("$ref", prefix+rest)
		}
	}
	for _, key := range o.keys {
		switch value := o.get(key).(type) {
		case *schemaObject:
			switch {
			case slices.Contains(schemaMaps, key):
				moved := newSchemaObject()
				for _, name := range value.keys {
					moved.set(name, pointInto(value.get(name), prefix))
				}
				out.set(key, moved)
			case slices.Contains(schemaOnes, key):
				out.set(key, pointInto(value, prefix))
			}
		case []any:
			if slices.Contains(schemaLists, key) {
				moved := make([]any, len(value))
				for i, element := range value {
					moved[i] = pointInto(element, prefix)
				}
				out.set(key, moved)
			}
		}
	}
	return out
}

// glmNotes are keywords that say nothing about values.
var glmNotes = []string{"title", "description", "default", "examples", "deprecated", "$comment", "$id"}

// glmSchema puts the targets in the places of references that are parameters: engines see only there that a parameter is a text, which
// this markup does not quote. Engines leave out what stands beside a reference; where that would narrow it, the schema is refused.
func glmSchema(text []byte) (any, error) {
	root, err := readSchema(text)
	if err != nil {
		return nil, err
	}
	in := &schemaReader{root: root, left: maxSchemaNodes}
	if err := in.checkBeside(root, map[*schemaObject]bool{}); err != nil {
		return nil, err
	}
	o, _ := root.(*schemaObject)
	properties, ok := o.get("properties").(*schemaObject)
	if !ok {
		return rawJSON(text), nil
	}
	inlined := newSchemaObject()
	for _, name := range properties.keys {
		property := properties.get(name)
		for range 8 { // a circle ends as a reference
			from, _ := property.(*schemaObject)
			reference, isReference := from.get("$ref").(string)
			if !isReference || slices.ContainsFunc(from.keys, func(key string) bool { return key != "$ref" && !slices.Contains(glmNotes, key) }) {
				break
			}
			target, found := in.lookup(reference)
			if !found {
				break
			}
			if to, ok := target.(*schemaObject); ok {
				merged := to.without()
				for _, key := range from.keys {
					if key != "$ref" {
						merged.set(key, from.get(key))
					}
				}
				target = merged
			}
			property = target
		}
		inlined.set(name, property)
	}
	o = o.without()
	o.set("properties", inlined)
	return o, nil
}

// checkBeside looks for references beside which stands more than notes and repetitions of their targets.
func (in *schemaReader) checkBeside(schema any, seen map[*schemaObject]bool) error {
	o, ok := schema.(*schemaObject)
	if !ok || seen[o] {
		return nil
	}
	seen[o] = true
	if in.left--; in.left < 0 {
		return fmt.Errorf("its schema has more than %d parts", maxSchemaNodes)
	}
	if o.has("$ref") {
		target, err := in.targetOf(o, 0)
		if err != nil {
			return err
		}
		if err := in.checkBeside(target, seen); err != nil {
			return err
		}
	}
	var problem error
	o.eachSchema(func(below any) {
		if problem == nil {
			problem = in.checkBeside(below, seen)
		}
	})
	return problem
}

// targetOf follows references to the schema that they mean; nil when they lead nowhere.
func (in *schemaReader) targetOf(o *schemaObject, depth int) (any, error) {
	if !o.has("$ref") {
		return o, nil
	}
	var target any
	if reference, ok := o.get("$ref").(string); ok && depth < maxReferences {
		if found, ok := in.lookup(reference); ok {
			target = found
			if next, ok := found.(*schemaObject); ok {
				var err error
				if target, err = in.targetOf(next, depth+1); err != nil {
					return nil, err
				}
			}
		}
	}
	means, _ := target.(*schemaObject)
	for _, key := range o.keys {
		if key == "$ref" || slices.Contains(glmNotes, key) || means.has(key) && same(means.get(key), o.get(key)) {
			continue
		}
		return nil, fmt.Errorf("%q beside a $ref cannot be enforced", key)
	}
	return target, nil
}
