package jsontape

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// stricter are the beginnings of what Parse refuses and the standard library takes.
var stricter = []string{"duplicate field", "invalid unicode code point", "lone leading surrogate", "lone trailing surrogate", "number out of range", "recursion limit exceeded",
	"too many"}

// agree checks Parse against the standard library: the same texts are taken, but for those that Parse is stricter about, and
// they say the same.
func agree(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, text []byte) {
	t.Helper()
	document, err := Parse(text)
	if err != nil {
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Fatalf("error of another kind: %v", err)
		}
		if syntax.Offset < 0 || syntax.Offset > len(text) || syntax.Line < 1 || syntax.Column < 0 {
			t.Fatalf("%+v is no place in %q", syntax, text)
		}
		known := false
		for _, beginning := range stricter {
			known = known || strings.HasPrefix(syntax.Message, beginning)
		}
		if !known && json.Valid(text) {
			t.Fatalf("refused %q: %v", text, err)
		}
		return
	}
	if !json.Valid(text) {
		t.Fatalf("took %q", text)
	}
	want, err := reference(text)
	if err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	if diff := cmp.Diff(want, toAny(document.Root())); diff != "" {
		t.Fatalf("%q (-want +got):\n%s", text, diff)
	}
	walk(t, document.Root())
}

// walk checks what the methods of every node say about each other.
func walk(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, node Node) {
	t.Helper()
	again, err := Parse(node.Raw())
	if err != nil {
		t.Fatalf("the text of a value %q is none: %v", node.Raw(), err)
	}
	if diff := cmp.Diff(toAny(node), toAny(again.Root())); diff != "" {
		t.Fatalf("%q read alone (-whole +alone):\n%s", node.Raw(), diff)
	}
	switch node.Kind() {
	case Number:
		number := json.Number(node.Raw())
		signed, signedErr := strconv.ParseInt(string(number), 10, 64)
		if got, ok := node.Int(); ok != (signedErr == nil) || ok && got != signed {
			t.Fatalf("Int of %s is %d, %v", number, got, ok)
		}
		unsigned, unsignedErr := strconv.ParseUint(string(number), 10, 64)
		if got, ok := node.Uint(); ok != (unsignedErr == nil) || ok && got != unsigned {
			t.Fatalf("Uint of %s is %d, %v", number, got, ok)
		}
		if got, ok := node.Float(); !ok || math.IsInf(got, 0) || math.IsNaN(got) {
			t.Fatalf("Float of %s is %v, %v", number, got, ok)
		}
	case String:
		if node.Text() != string(node.Bytes()) || !utf8.ValidString(node.Text()) {
			t.Fatalf("Text %q, Bytes %q", node.Text(), node.Bytes())
		}
	case Array:
		count := 0
		for i, element := range node.Elements {
			if i != count {
				t.Fatalf("element %d after %d", i, count)
			}
			count++
			walk(t, element)
		}
		if count != node.Len() {
			t.Fatalf("%d elements, Len is %d", count, node.Len())
		}
	case Object:
		count := 0
		for key, value := range node.Members {
			count++
			if got := node.Get(key); string(got.Raw()) != string(value.Raw()) {
				t.Fatalf("Get(%q) is %q, not %q", key, got.Raw(), value.Raw())
			}
			walk(t, value)
		}
		if count != node.Len() {
			t.Fatalf("%d members, Len is %d", count, node.Len())
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2,{"b":null}],"c":"\u00e9\\"}`, `[true,false,-1.5e+3]`, `"\ud83d\ude00"`, ` {"\u0061":0,"a":1}`, `1e309`, `-0.0E-0`,
		"\"\xc3\xa9\"", `{"k":{"k":{}}}`, "[1,\n2,\r3\t]", `18446744073709551616`, `"\/\b\f\n\r\t\""`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		agree(t, text)
		// Repairs never make a good text worse, and what they let through is good JSON.
		lenient, err := ParseLenient(text)
		if strict, strictErr := Parse(text); strictErr == nil {
			if err != nil || string(lenient.Root().Raw()) != string(strict.Root().Raw()) {
				t.Fatalf("a good text was repaired: %v", err)
			}
			return
		}
		if err == nil && !json.Valid(lenient.Root().Raw()) {
			t.Fatalf("repaired to %q", lenient.Root().Raw())
		}
	})
}

// TestGeneratedTextsAgree writes values with random spelling: spaces, escapes, exponents, and damages some of them.
func TestGeneratedTextsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(spell(t, 4))
		if rapid.Bool().Draw(t, "damage") && len(text) > 0 {
			at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				text = append(text[:at:at], text[at+1:]...)
			case 1:
				text[at] = rapid.Byte().Draw(t, "byte")
			default:
				text = text[:at]
			}
		}
		agree(t, text)
	})
}

// spell writes a value that nests at most depth levels.
func spell(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", "", " ", "\n", "\t\r "})
	kinds := 5
	if depth == 0 {
		kinds = 3
	}
	var text string
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		text = rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
	case 1:
		text = rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "number")
	case 2:
		text = spellString(t)
	case 3:
		parts := make([]string, rapid.IntRange(0, 3).Draw(t, "elements"))
		for i := range parts {
			parts[i] = spell(t, depth-1)
		}
		text = "[" + space.Draw(t, "inside") + strings.Join(parts, ",") + "]"
	case 4:
		parts := make([]string, rapid.IntRange(0, 30).Draw(t, "members"))
		for i := range parts {
			parts[i] = spellString(t) + space.Draw(t, "colon") + ":" + spell(t, 0)
		}
		text = "{" + space.Draw(t, "inside") + strings.Join(parts, ",") + "}"
	}
	return space.Draw(t, "before") + text + space.Draw(t, "after")
}

func spellString(t *rapid.T) string {
	parts := rapid.SliceOfN(rapid.OneOf(rapid.StringMatching(`[a-zé😀/ ]{1,3}`),
		rapid.SampledFrom([]string{`\n`, `\"`, `\\`, `\/`, `\u0041`, `\u00E9`, `\ud83d\ude00`, `\uD83D`, `\ude00`, `\u0000`})), 0, 4).Draw(t, "string")
	return `"` + strings.Join(parts, "") + `"`
}

// TestSizesAreBounded: a text that is small may not ask for much memory.
func TestSizesAreBounded(t *testing.T) {
	for text, want := range map[string]string{
		`[0,0,0,0,0,0,0]`:                         "",
		`[0,0,0,0,0,0,0,0]`:                       "too many values",
		`{"a":0,"b":0,"c":0}`:                     "",
		`{"a":0,"b":0,"c":0,"d":0}`:               "too many members",
		`[{"a":0,"b":0,"c":0},{"a":0}]`:           "too many",
		`[[[[[[[[]]]]]]]]`:                        "",
		`[[[[[[[[[]]]]]]]]]`:                      "too many values",
		`{"a":{"b":0},"c":{"d":{"e":{"f":true}}}`: "too many",
	} {
		_, err := parse([]byte(text), 3, 8)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestMistakesNameTheMember says in which member of the outermost object a text goes wrong.
func TestMistakesNameTheMember(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b":tru}`:              "b",
		`{"a":1,"b":[{"c":"\ud83d"}]}`: "b",
		`{"a":1,"b":[{"c":1,"c":2}]}`:  "b",
		`{"a":1,"\u0061":2}`:           "a",
		`{"a":1e999}`:                  "a",
		`{"a":1,"b"`:                   "",
		`{"a":1;"b":2}`:                "",
		`[{"a":tru}]`:                  "",
		`tru`:                          "",
	} {
		_, err := Parse([]byte(text))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Field != want {
			t.Errorf("%s: %+v, want the member %q", text, err, want)
		}
	}
}
