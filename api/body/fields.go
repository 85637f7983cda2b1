package body

import (
	"fmt"
	"math"
	"strconv"

	"signalbox/api/problem"
	"signalbox/internal/jsontape"
)

// Fields reads typed members of one JSON object and keeps the first mistake. Readers of optional members return nil for an
// absent or null member.
type Fields struct {
	object jsontape.Node
	path   string // of the object, "" for the body itself
	// Problem is the first mistake; reading goes on harmlessly after it.
	Problem *problem.Problem
}

// NewFields reads the object; anything else than an object is the first mistake.
func NewFields(object jsontape.Node, path string) *Fields {
	f := &Fields{object: object, path: path}
	if object.Kind() != jsontape.Object {
		f.mistake("", object, "invalid type: %s, expected a map", describe(object))
	}
	return f
}

// Object returns the object's node.
func (f *Fields) Object() jsontape.Node { return f.object }

// Node returns the member, absent when it is null.
func (f *Fields) Node(name string) jsontape.Node {
	node := f.object.Get(name)
	if !node.Present() {
		return jsontape.Node{}
	}
	return node
}

func (f *Fields) name(member string) string {
	switch {
	case f.path == "":
		return member
	case member == "":
		return f.path
	}
	return f.path + "." + member
}

func (f *Fields) mistake(member string, node jsontape.Node, format string, args ...any) {
	if f.Problem != nil {
		return
	}
	line, column := node.Position()
	f.Problem = problem.Invalid(f.name(member), DeserializePrefix+"%s at line %d column %d", fmt.Sprintf(format, args...), line, column)
}

// Fail records a mistake of a member in the words given.
func (f *Fields) Fail(member string, format string, args ...any) {
	f.mistake(member, f.object.Get(member), format, args...)
}

// Missing records that a required member is not there.
func (f *Fields) Missing(member string) {
	f.mistake(member, f.object, "missing field `%s`", member)
}

// describe words a value the way the parser's messages do.
func describe(node jsontape.Node) string {
	switch node.Kind() {
	case jsontape.String:
		return "string " + strconv.Quote(node.Text())
	case jsontape.Number:
		if _, ok := node.Int(); ok {
			return "integer `" + string(node.Raw()) + "`"
		}
		return "floating point `" + string(node.Raw()) + "`"
	case jsontape.True, jsontape.False:
		return "boolean `" + string(node.Raw()) + "`"
	case jsontape.Null, jsontape.Invalid:
		return "null"
	}
	return node.Kind().String()
}

// String reads an optional string.
func (f *Fields) String(name string) *string {
	node := f.Node(name)
	if !node.Exists() {
		return nil
	}
	if node.Kind() != jsontape.String {
		f.mistake(name, node, "invalid type: %s, expected a string", describe(node))
		return nil
	}
	text := node.Text()
	return &text
}

// RequiredString reads a string that must be there.
func (f *Fields) RequiredString(name string) string {
	node := f.object.Get(name)
	if !node.Exists() {
		f.Missing(name)
		return ""
	}
	if node.Kind() != jsontape.String {
		f.mistake(name, node, "invalid type: %s, expected a string", describe(node))
		return ""
	}
	return node.Text()
}

// Bool reads an optional boolean.
func (f *Fields) Bool(name string) *bool {
	node := f.Node(name)
	if !node.Exists() {
		return nil
	}
	value, ok := node.Bool()
	if !ok {
		f.mistake(name, node, "invalid type: %s, expected a boolean", describe(node))
		return nil
	}
	return &value
}

func unsigned[T uint8 | uint16 | uint32 | uint64](f *Fields, name string, limit uint64, word string) *T {
	node := f.Node(name)
	if !node.Exists() {
		return nil
	}
	value, ok := node.Uint()
	if !ok || value > limit {
		problemWord := "type"
		if _, integer := node.Int(); integer || ok {
			problemWord = "value"
		}
		f.mistake(name, node, "invalid %s: %s, expected %s", problemWord, describe(node), word)
		return nil
	}
	converted := T(value)
	return &converted
}

// Uint8 reads an optional u8.
func (f *Fields) Uint8(name string) *uint8 { return unsigned[uint8](f, name, math.MaxUint8, "u8") }

// Uint32 reads an optional u32.
func (f *Fields) Uint32(name string) *uint32 {
	return unsigned[uint32](f, name, math.MaxUint32, "u32")
}

// Uint64 reads an optional u64.
func (f *Fields) Uint64(name string) *uint64 {
	return unsigned[uint64](f, name, math.MaxUint64, "u64")
}

// Int64 reads an optional i64.
func (f *Fields) Int64(name string) *int64 {
	node := f.Node(name)
	if !node.Exists() {
		return nil
	}
	value, ok := node.Int()
	if !ok {
		f.mistake(name, node, "invalid type: %s, expected i64", describe(node))
		return nil
	}
	return &value
}

// Int32 reads an optional i32.
func (f *Fields) Int32(name string) *int32 {
	value := f.Int64(name)
	if value == nil {
		return nil
	}
	if *value < math.MinInt32 || *value > math.MaxInt32 {
		f.mistake(name, f.Node(name), "invalid value: integer `%d`, expected i32", *value)
		return nil
	}
	converted := int32(*value)
	return &converted
}

// Float64 reads an optional number.
func (f *Fields) Float64(name string) *float64 {
	node := f.Node(name)
	if !node.Exists() {
		return nil
	}
	value, ok := node.Float()
	if !ok {
		f.mistake(name, node, "invalid type: %s, expected f64", describe(node))
		return nil
	}
	return &value
}

// Float32 reads an optional number of single precision.
func (f *Fields) Float32(name string) *float32 {
	node := f.Node(name)
	if !node.Exists() {
		return nil
	}
	value, ok := node.Float()
	if !ok {
		f.mistake(name, node, "invalid type: %s, expected f32", describe(node))
		return nil
	}
	converted := float32(value)
	return &converted
}

// Strings reads an optional array of strings.
func (f *Fields) Strings(name string) []string {
	node := f.Node(name)
	if !node.Exists() {
		return nil
	}
	if node.Kind() != jsontape.Array {
		f.mistake(name, node, "invalid type: %s, expected a sequence", describe(node))
		return nil
	}
	list := make([]string, 0, node.Len())
	for _, element := range node.Elements {
		if element.Kind() != jsontape.String {
			f.mistake(name, element, "invalid type: %s, expected a string", describe(element))
			return nil
		}
		list = append(list, element.Text())
	}
	return list
}

// TokenIDs reads an optional array of token ids.
func (f *Fields) TokenIDs(name string) []uint32 {
	node := f.Node(name)
	if !node.Exists() {
		return nil
	}
	ids, bad := TokenIDs(node)
	if bad.Exists() {
		f.mistake(name, bad, "invalid type: %s, expected u32", describe(bad))
		return nil
	}
	return ids
}

// TokenIDs reads an array of u32; bad is the element, or the value itself, that is none.
func TokenIDs(node jsontape.Node) (ids []uint32, bad jsontape.Node) {
	if node.Kind() != jsontape.Array {
		return nil, node
	}
	ids = make([]uint32, 0, node.Len())
	for _, element := range node.Elements {
		value, ok := element.Uint()
		if !ok || value > math.MaxUint32 {
			return nil, element
		}
		ids = append(ids, uint32(value))
	}
	return ids, jsontape.Node{}
}

// Raw reads any optional member as its own text.
func (f *Fields) Raw(name string) []byte { return f.Node(name).Raw() }
