package toolcall

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/jsontape"
)

// schemaObject is a JSON object whose members keep their order. Values are nil, bool, json.Number, string, []any and *schemaObject.
type schemaObject struct {
	keys   []string
	values map[string]any
}

func newSchemaObject() *schemaObject { return &schemaObject{values: map[string]any{}} }

func (o *schemaObject) get(key string) any {
	if o == nil {
		return nil
	}
	return o.values[key]
}

func (o *schemaObject) has(key string) bool {
	if o == nil {
		return false
	}
	_, ok := o.values[key]
	return ok
}

func (o *schemaObject) set(key string, value any) {
	if !o.has(key) {
		o.keys = append(o.keys, key)
	}
	o.values[key] = value
}

// without is a copy that lacks some members.
func (o *schemaObject) without(names ...string) *schemaObject {
	copied := newSchemaObject()
	for _, key := range o.keys {
		if !slices.Contains(names, key) {
			copied.set(key, o.values[key])
		}
	}
	return copied
}

// MarshalJSON implements json.Marshaler.
func (o *schemaObject) MarshalJSON() ([]byte, error) {
	n := make(node, len(o.keys))
	for i, key := range o.keys {
		n[i] = nodeMember{key, o.values[key]}
	}
	return n.MarshalJSON()
}

// readSchema reads a JSON schema.
func readSchema(text []byte) (any, error) {
	document, err := jsontape.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the schema of its parameters: %w", err)
	}
	return schemaValue(document.Root()), nil
}

func schemaValue(n jsontape.Node) any {
	switch n.Kind() {
	case jsontape.True, jsontape.False:
		return n.Kind() == jsontape.True
	case jsontape.Number:
		return json.Number(n.Raw())
	case jsontape.String:
		return n.Text()
	case jsontape.Array:
		list := make([]any, 0, n.Len())
		for _, element := range n.Elements {
			list = append(list, schemaValue(element))
		}
		return list
	case jsontape.Object:
		o := newSchemaObject()
		for key, value := range n.Members {
			o.set(key, schemaValue(value))
		}
		return o
	}
	return nil
}

// isSchema tells whether a value can be a schema at all.
func isSchema(value any) bool {
	switch value.(type) {
	case bool, *schemaObject:
		return true
	}
	return false
}

// texts reads a list of texts; nothing is an empty one.
func texts(value any) (list []string, ok bool) {
	if value == nil {
		return nil, true
	}
	elements, ok := value.([]any)
	if !ok {
		return nil, false
	}
	for _, element := range elements {
		text, ok := element.(string)
		if !ok {
			return nil, false
		}
		list = append(list, text)
	}
	return list, true
}

func whole(value any) (uint64, bool) {
	number, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(string(number), 10, 64)
	return n, err == nil
}

// same tells whether two values say the same.
func same(a, b any) bool {
	switch x := a.(type) {
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, same)
	case *schemaObject:
		y, ok := b.(*schemaObject)
		if !ok || len(x.keys) != len(y.keys) {
			return false
		}
		for _, key := range x.keys {
			if !y.has(key) || !same(x.values[key], y.values[key]) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case []any, *schemaObject:
		return false
	}
	return a == b
}

// isClosedEmpty tells whether a schema says no more than that its value is an object without members.
func isClosedEmpty(schema any) bool {
	text, ok := schema.(rawJSON)
	if !ok {
		return false
	}
	value, err := readSchema(text)
	if err != nil {
		return false
	}
	o, _ := value.(*schemaObject)
	properties, _ := o.get("properties").(*schemaObject)
	if o.get("type") != "object" || properties == nil || len(properties.keys) > 0 || o.get("additionalProperties") != false {
		return false
	}
	if o.has("required") {
		if required, ok := o.get("required").([]any); !ok || len(required) > 0 {
			return false
		}
	}
	for _, key := range o.keys {
		if !slices.Contains([]string{"type", "properties", "required", "additionalProperties"}, key) {
			return false
		}
	}
	return true
}

// jsonType is a type of JSON Schema; the order is that in which types are listed.
type jsonType uint8

const (
	typeString jsonType = iota
	typeNumber
	typeInteger
	typeBoolean
	typeArray
	typeObject
	typeNull
	typeCount
)

var typeNames = [typeCount]string{"string", "number", "integer", "boolean", "array", "object", "null"}

func allTypes() []jsonType {
	list := make([]jsonType, typeCount)
	for i := range list {
		list[i] = jsonType(i)
	}
	return list
}

// written is the type's name in markup, which knows no integers.
func (t jsonType) written() string {
	if t == typeInteger {
		t = typeNumber
	}
	return typeNames[t]
}

func typeOf(value any) jsonType {
	switch v := value.(type) {
	case bool:
		return typeBoolean
	case json.Number:
		if isWhole(v) {
			return typeInteger
		}
		return typeNumber
	case string:
		return typeString
	case []any:
		return typeArray
	case *schemaObject:
		return typeObject
	}
	return typeNull
}

func isWhole(n json.Number) bool {
	f, err := strconv.ParseFloat(string(n), 64)
	return err == nil && f == math.Trunc(f)
}

// accepts tells whether a value is of one of the types.
func accepts(types []jsonType, value any) bool {
	t := typeOf(value)
	return slices.Contains(types, t) || t == typeInteger && slices.Contains(types, typeNumber)
}

// mergeAllOf joins schemas that all have to hold into one, as far as their members do not contradict each other. A schema without
// allOf is returned as it is.
func mergeAllOf(schema *schemaObject) (*schemaObject, error) {
	if !schema.has("allOf") {
		return schema, nil
	}
	options, ok := schema.get("allOf").([]any)
	if !ok {
		return nil, errors.New("allOf is not a list")
	}
	merged := schema.without("allOf")
	for _, option := range options {
		if option == true {
			continue
		}
		object, ok := option.(*schemaObject)
		if !ok {
			return nil, errors.New("allOf has an element that is not an object")
		}
		object, err := mergeAllOf(object)
		if err != nil {
			return nil, err
		}
		for _, key := range object.keys {
			if !merged.has(key) {
				merged.set(key, object.get(key))
				continue
			}
			both, err := intersect(key, merged.get(key), object.get(key))
			if err != nil {
				return nil, err
			}
			merged.set(key, both)
		}
	}
	return merged, nil
}

// intersect is what a keyword says when two schemas that both hold have it.
func intersect(key string, a, b any) (any, error) {
	if same(a, b) {
		return a, nil
	}
	switch key {
	case "enum":
		left, ok1 := texts(a)
		right, ok2 := texts(b)
		if !ok1 || !ok2 {
			break
		}
		both := []any{}
		for _, value := range left {
			if slices.Contains(right, value) {
				both = append(both, value)
			}
		}
		return both, nil
	case "minLength", "maxLength":
		left, ok1 := whole(a)
		right, ok2 := whole(b)
		if !ok1 || !ok2 {
			break
		}
		if (left > right) == (key == "minLength") {
			return a, nil
		}
		return b, nil
	}
	return nil, fmt.Errorf("two schemas of allOf differ in %s", strings.TrimSpace(key))
}
