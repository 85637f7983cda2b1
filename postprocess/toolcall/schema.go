package toolcall

import (
	"math"
	"strconv"
	"strings"
)

const (
	maxSchemaDepth = 16
	maxSchemaWork  = 1024
)

// schemas are the argument types of the request's tools, read when a call needs them.
type schemas struct {
	root  string // the function's whole schema
	props map[string]string
	work  int
}

// schemaOf returns the argument types of a function; the zero value for an unknown one.
func schemaOf(tools []Tool, function string) *schemas {
	s := &schemas{work: maxSchemaWork}
	for i := range tools {
		if tools[i].Name != function {
			continue
		}
		s.root = strings.TrimSpace(string(tools[i].Parameters))
		if !validJSON(s.root) {
			s.root = ""
			return s
		}
		properties := s.root
		if p, ok := get(s.root, "properties"); ok && p[0] == '{' {
			properties = p
		}
		s.props = make(map[string]string)
		eachMember(properties, func(m member) { s.props[m.key] = m.value })
		return s
	}
	return s
}

// get returns a member of an object.
func get(object, key string) (value string, ok bool) {
	eachMember(object, func(m member) {
		if m.key == key {
			value, ok = m.value, true
		}
	})
	return value, ok
}

func eachMember(text string, yield func(member)) {
	if text != "" && text[0] == '{' {
		r := jsonReader{text: text}
		r.members(yield)
	}
}

func eachItem(text string, yield func(string)) {
	if text != "" && text[0] == '[' {
		r := jsonReader{text: text}
		r.items(yield)
	}
}

func stringOf(value string) string {
	if value == "" || value[0] != '"' {
		return ""
	}
	r := jsonReader{text: value}
	text, _ := r.stringText(true)
	return text
}

// resolve follows a reference within the function's schema.
func (s *schemas) resolve(schema string) string {
	for range maxSchemaDepth {
		reference, ok := get(schema, "$ref")
		if !ok || s.work <= 0 {
			return schema
		}
		s.work--
		path, ok := strings.CutPrefix(stringOf(reference), "#")
		if !ok {
			return schema
		}
		target := s.root
		for _, part := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
			if part == "" {
				continue
			}
			part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
			if target, ok = get(target, part); !ok {
				return schema
			}
		}
		schema = target
	}
	return schema
}

// allows tells whether a value of the type may stand where the schema is: by "type", a list of types or any of alternatives.
func (s *schemas) allows(schema, want string) bool { return s.allowsAt(schema, want, 0) }

func (s *schemas) allowsAt(schema, want string, depth int) bool {
	if s.work--; s.work < 0 || depth > maxSchemaDepth {
		return false
	}
	schema = s.resolve(schema)
	allowed := false
	eachMember(schema, func(m member) {
		switch m.key {
		case "type":
			if m.value[0] == '"' {
				allowed = allowed || stringOf(m.value) == want
			}
			eachItem(m.value, func(item string) { allowed = allowed || stringOf(item) == want })
		case "nullable":
			allowed = allowed || want == "null" && m.value == "true"
		case "anyOf", "oneOf":
			eachItem(m.value, func(item string) { allowed = allowed || s.allowsAt(item, want, depth+1) })
		case "enum":
			eachItem(m.value, func(item string) { allowed = allowed || want == "null" && item == "null" })
		}
	})
	return allowed
}

// child returns the schema of an object's member.
func (s *schemas) child(schema, key string) (string, bool) {
	schema = s.resolve(schema)
	if properties, ok := get(schema, "properties"); ok {
		if child, ok := get(properties, key); ok {
			return child, true
		}
	}
	if additional, ok := get(schema, "additionalProperties"); ok && additional[0] == '{' {
		return additional, true
	}
	return s.alternative(schema, func(option string) (string, bool) { return s.child(option, key) })
}

// item returns the schema of an array's elements.
func (s *schemas) item(schema string) (string, bool) {
	schema = s.resolve(schema)
	if items, ok := get(schema, "items"); ok {
		return items, true
	}
	return s.alternative(schema, s.item)
}

func (s *schemas) alternative(schema string, find func(string) (string, bool)) (result string, ok bool) {
	if s.work--; s.work < 0 {
		return "", false
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		options, _ := get(schema, key)
		eachItem(options, func(option string) {
			if !ok && option[0] == '{' {
				result, ok = find(option)
			}
		})
	}
	return result, ok
}

// The conversions of a parameter's text into JSON.

// isInteger tells whether the text is an integer in plain digits.
func isInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" {
		return false
	}
	for i := 0; i < len(digits); i++ {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	return true
}

// integer returns the JSON of an integer; one with leading zeros is written anew when it fits 64 bits.
func integer(text string) (string, bool) {
	if !isInteger(text) {
		return "", false
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return strconv.FormatInt(n, 10), true
	}
	return text, validJSON(text)
}

// fraction returns the JSON of any number; whole ones without a fraction when whole is set.
func fraction(text string, whole bool) (string, bool) {
	if n, ok := integer(text); ok {
		return n, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return "", false
	}
	if whole && f == float64(int64(f)) && f < 1<<62 && f > -(1<<62) {
		return strconv.FormatInt(int64(f), 10), true
	}
	return string(appendFloat(nil, f)), true
}

// literal reads JSON, or a Python literal whose only difference is quotes and the names of constants.
func literal(text string) (string, bool) {
	if value, ok := compactString(text); ok {
		return value, true
	}
	return compactString(pythonToJSON.Replace(text))
}

var pythonToJSON = strings.NewReplacer("'", `"`, "True", "true", "False", "false", "None", "null")

// unescapeHTML replaces the entities that models write.
func unescapeHTML(text string) string {
	if !strings.Contains(text, "&") {
		return text
	}
	for _, pair := range [][2]string{{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}, {"&quot;", `"`}, {"&#x27;", "'"}, {"&#39;", "'"}} {
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text
}
