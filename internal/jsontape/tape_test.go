package jsontape

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func toAny(n Node) any {
	switch n.Kind() {
	case Null:
		return nil
	case True, False:
		value, _ := n.Bool()
		return value
	case Number:
		return json.Number(n.Raw())
	case String:
		return n.Text()
	case Array:
		list := make([]any, 0, n.Len())
		for _, element := range n.Elements {
			list = append(list, toAny(element))
		}
		return list
	}
	object := make(map[string]any, n.Len())
	for key, value := range n.Members {
		object[key] = toAny(value)
	}
	return object
}

func reference(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return value, err
}

func TestRawTextAndOrderSurvive(t *testing.T) {
	document, err := Parse([]byte(` {"b": 1.0, "a": [1e-6, 12345678901234567890], "s\u0041": "x\ud83d\ude00\n"} `))
	if err != nil {
		t.Fatal(err)
	}
	root := document.Root()
	var keys []string
	for key := range root.Members {
		keys = append(keys, key)
	}
	if diff := cmp.Diff([]string{"b", "a", "sA"}, keys); diff != "" {
		t.Error(diff)
	}
	if got := string(root.Get("a").Raw()); got != "[1e-6, 12345678901234567890]" {
		t.Errorf("raw = %s", got)
	}
	if got := root.Get("sA").Text(); got != "x😀\n" {
		t.Errorf("text = %q", got)
	}
	if root.Get("missing").Exists() {
		t.Error("a member that is not there exists")
	}
}

func TestRefused(t *testing.T) {
	for _, text := range []string{"", "{", `{"a":1,"a":2}`, `{"a":1} x`, `"\ud83d"`, "\"\x01\"", "\"\xff\"", `[1,]`, `{"a" 1}`, `01`, `1.`, `tru`, `{a:1}`} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("Parse(%q) succeeded", text)
		}
	}
	deep := bytes.Repeat([]byte("["), MaxDepth+1)
	if _, err := Parse(deep); err == nil {
		t.Error("nesting beyond the limit was accepted")
	}
}

func TestRepairs(t *testing.T) {
	document, err := ParseLenient([]byte("{\"a\":\"line\nbreak \xff\"}"))
	if err != nil {
		t.Fatal(err)
	}
	if got := document.Root().Get("a").Text(); got != "line\nbreak \uFFFD" {
		t.Errorf("repaired text = %q", got)
	}
}

func TestManyKeysStillFindDuplicates(t *testing.T) {
	var text bytes.Buffer
	text.WriteByte('{')
	for i := range 100 {
		text.WriteString(`"k` + string(rune('a'+i%26)) + string(rune('a'+i/26)) + `":0,`)
	}
	if _, err := Parse(append(bytes.Clone(text.Bytes()), `"last":1}`...)); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(append(text.Bytes(), `"kab":1}`...)); err == nil {
		t.Error("a duplicate among many keys was accepted")
	}
}

func BenchmarkParse(b *testing.B) {
	text := append([]byte(`{"model":"m","messages":[{"role":"user","content":"`), bytes.Repeat([]byte("lorem ipsum dolor "), 1000)...)
	text = append(text, `"}],"max_tokens":4,"stream":true}`...)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

func TestKeysMayRepeatWhereModelsWroteThem(t *testing.T) {
	const text = `{"a":{"b":1,"b":[2]},"a":3}`
	if _, err := Parse([]byte(text)); err == nil {
		t.Errorf("%s is taken", text)
	}
	document, err := ParseRepeating([]byte(text))
	if err != nil || document.Root().Kind() != Object {
		t.Errorf("%s: %v", text, err)
	}
	if _, err := ParseRepeating([]byte(`{"a":1,"a":}`)); err == nil {
		t.Error("a key without a value is taken")
	}
}
