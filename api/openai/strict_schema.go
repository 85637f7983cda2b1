package openai

import (
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/jsontape"
)

// unsupportedInStrict are keywords that a strict schema may not use: no engine could hold the answer to them.
var unsupportedInStrict = []string{"allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas"}

// strictSchemaMistake tells what is wrong with the parameters of a strict function, and where; "" when nothing is. Absent parameters
// are fine. The rules are those of OpenAI's strict mode: objects are closed and all their properties are required.
func strictSchemaMistake(schema jsontape.Node) (context, mistake string) {
	if !schema.Present() {
		return "", ""
	}
	if !schema.Get("$ref").Exists() {
		kinds := typeNames(schema.Get("type"))
		switch {
		case len(kinds) == 0:
			return "#", "unsupported root representation: an object-only type or a local reference is required"
		case !slices.Equal(kinds, []string{"object"}):
			return "#", "root must have object-only type"
		}
	}
	return (&strictChecker{root: schema}).check("#", schema)
}

type strictChecker struct{ root jsontape.Node }

// typeNames lists what the type keyword allows.
func typeNames(node jsontape.Node) []string {
	if node.Kind() == jsontape.String {
		return []string{node.Text()}
	}
	var names []string
	for _, element := range node.Elements {
		names = append(names, element.Text())
	}
	return names
}

func (c *strictChecker) check(context string, schema jsontape.Node) (string, string) {
	if schema.Kind() != jsontape.Object {
		return "", "" // true and false say nothing of objects
	}
	for _, keyword := range unsupportedInStrict {
		if schema.Get(keyword).Exists() {
			return context + "/" + keyword, "keyword is not supported in strict schemas"
		}
	}
	if reference := schema.Get("$ref"); reference.Exists() && !c.resolves(reference.Text()) {
		return context + "/$ref", "reference target does not exist"
	}
	if slices.Contains(typeNames(schema.Get("type")), "object") {
		if where, mistake := checkClosed(context, schema); mistake != "" {
			return where, mistake
		}
	}
	return c.checkInner(context, schema)
}

// checkClosed judges one object schema.
func checkClosed(context string, schema jsontape.Node) (string, string) {
	if extra, ok := schema.Get("additionalProperties").Bool(); !ok || extra {
		return context, "object schemas require additionalProperties: false"
	}
	properties := schema.Get("properties")
	required := typeNames(schema.Get("required"))
	for name := range properties.Members {
		if !slices.Contains(required, name) {
			return context + "/required", "must include property '" + name + "'"
		}
	}
	for _, name := range required {
		if !properties.Get(name).Exists() {
			return context + "/required", "unknown property '" + name + "' in a closed object"
		}
	}
	return "", ""
}

// checkInner judges the schemas inside a schema.
func (c *strictChecker) checkInner(context string, schema jsontape.Node) (string, string) {
	for _, keyword := range []string{"properties", "$defs", "definitions"} {
		for name, inner := range schema.Get(keyword).Members {
			if where, mistake := c.check(context+"/"+keyword+"/"+name, inner); mistake != "" {
				return where, mistake
			}
		}
	}
	for i, inner := range schema.Get("anyOf").Elements {
		if where, mistake := c.check(context+"/anyOf/"+strconv.Itoa(i), inner); mistake != "" {
			return where, mistake
		}
	}
	return c.check(context+"/items", schema.Get("items"))
}

// resolves tells whether a local reference leads somewhere.
func (c *strictChecker) resolves(reference string) bool {
	rest, local := strings.CutPrefix(reference, "#")
	if !local {
		return false
	}
	node := c.root
	for _, step := range strings.Split(strings.TrimPrefix(rest, "/"), "/") {
		if step == "" {
			continue
		}
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		if node.Kind() == jsontape.Array {
			index, err := strconv.Atoi(step)
			found := jsontape.Node{}
			for i, element := range node.Elements {
				if err == nil && i == index {
					found = element
				}
			}
			node = found
		} else {
			node = node.Get(step)
		}
		if !node.Exists() {
			return false
		}
	}
	return true
}
