package toolcall

import (
	"bytes"
	"encoding/json"
)

// node is one object of a structural tag, its members in the order in which they are written.
type node []nodeMember

type nodeMember struct {
	name  string
	value any
}

// rawJSON is JSON text that is written as it is.
type rawJSON []byte

// MarshalJSON implements json.Marshaler.
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

// MarshalJSON implements json.Marshaler.
func (n node) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, plainJSON(m.name)...), ':')
		b = append(b, plainJSON(m.value)...)
	}
	return append(b, '}'), nil
}

// plainJSON writes a value without the escapes that only HTML needs.
func plainJSON(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return []byte("null") // not reached: nodes hold texts, lists of them and JSON that was read before
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func structuralTag(format node) []byte {
	return plainJSON(node{{"type", "structural_tag"}, {"format", format}})
}

func tag(begin string, content node, end string) node {
	return node{{"type", "tag"}, {"begin", begin}, {"content", content}, {"end", end}}
}

func sequence(elements ...node) node {
	return node{{"type", "sequence"}, {"elements", elements}}
}

func constant(text string) node { return node{{"type", "const_string"}, {"value", text}} }

func pattern(expression string) node { return node{{"type", "regex"}, {"pattern", expression}} }

// anyText is text without any of the excluded ones.
func anyText(excluded ...string) node {
	if excluded == nil {
		excluded = []string{}
	}
	return node{{"type", "any_text"}, {"excludes", excluded}}
}

func jsonSchema(schema any, style string) node {
	return node{{"type", "json_schema"}, {"json_schema", schema}, {"style", style}}
}

func optional(content node) node { return node{{"type", "optional"}, {"content", content}} }

// repeated is any number of times the content, none included.
func repeated(content node) node { return node{{"type", "star"}, {"content", content}} }

// oneOf is one of the elements.
func oneOf(elements []node) node {
	if len(elements) == 1 {
		return elements[0]
	}
	return node{{"type", "or"}, {"elements", elements}}
}

// separated is one tag or more, with nothing between.
func separated(tags []node, firstOnly bool) node {
	return node{{"type", "tags_with_separator"}, {"tags", tags}, {"separator", ""}, {"at_least_one", true}, {"stop_after_first", firstOnly}}
}
