package toolcall

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestUnknownNamesListTheKnown(t *testing.T) {
	_, err := New("nonesuch", Options{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range append(Names(), `"nonesuch"`) {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q is not in %q", name, err)
		}
	}
	if !Known("hermes") || Known("nonesuch") {
		t.Error("Known is wrong")
	}
}

// fixedID makes ids that tests can compare.
func fixedID() string { return "01234567-89ab-4cde-8f01-23456789abcd" }

func parsed(t *testing.T, name, text string, options Options) string {
	t.Helper()
	content, calls, _, err := Parse(name, text, options)
	if err != nil {
		t.Fatal(err)
	}
	return render(content, calls)
}

func render(content string, calls []Call) string {
	b := fmt.Sprintf("%q", content)
	for _, c := range calls {
		b += " " + c.Name + c.Arguments
	}
	return b
}

func TestIDs(t *testing.T) {
	for name, want := range map[string][2]string{
		"hermes":        {`<tool_call>{"name":"f","arguments":{}}</tool_call>`, "call-" + fixedID()},
		"glm47":         {`<tool_call>f</tool_call>`, fixedID()},
		"deepseek_v3_2": {`<｜DSML｜invoke name="f"></｜DSML｜invoke>`, "call_0123456789ab4cde8f012345"},
		"kimi_k2":       {`<|tool_call_begin|>functions.f:12<|tool_call_argument_begin|>{}<|tool_call_end|>`, "functions.f:12"},
		"pythonic":      {`[f(), g()]`, "call-1"},
	} {
		_, calls, _, err := Parse(name, want[0], Options{NewID: fixedID})
		if err != nil || len(calls) == 0 || calls[0].ID != want[1] || calls[0].Name != "f" {
			t.Errorf("%s: %v, %+v; want id %s", name, err, calls, want[1])
		}
	}
	if a, b := newUUID(), newUUID(); a == b || len(a) != 36 || a[14] != '4' {
		t.Errorf("UUIDs %s, %s", a, b)
	}
}

// typed is a tool whose parameters have one of each type.
var typed = []Tool{{Name: "f", Parameters: []byte(`{"type":"object","$defs":{"count":{"type":"integer"},"loop":{"$ref":"#/$defs/loop"}},"properties":{
	"text":{"type":"string"},"int":{"type":"integer"},"num":{"type":"number"},"yes":{"type":"boolean"},"list":{"type":"array","items":{"type":"integer"}},
	"map":{"type":"object","properties":{"deep":{"type":"integer"},"more":{"type":"array","items":{"type":"number"}}}},
	"maybe":{"anyOf":[{"type":"integer"},{"type":"null"}]},"named":{"$ref":"#/$defs/count"},"loop":{"$ref":"#/$defs/loop"}}}`)}}

func TestValuesTakeTheirTypes(t *testing.T) {
	qwen := func(key, value string) string {
		return "<tool_call><function=f><parameter=" + key + ">" + value + "</parameter></function></tool_call>"
	}
	glm := func(key, value string) string {
		return "<tool_call>f<arg_key>" + key + "</arg_key><arg_value>" + value + "</arg_value></tool_call>"
	}
	m3 := func(key, value string) string {
		return strings.ReplaceAll("<tool_call><invoke name=\"f\"><"+key+">"+value+"</"+key+"></invoke></tool_call>", "<", m3Space+"<")
	}
	for _, c := range []struct {
		format string
		text   string
		want   string
	}{
		{"qwen3_coder", qwen("text", "12"), `{"text":"12"}`},
		{"qwen3_coder", qwen("int", "12"), `{"int":12}`},
		{"qwen3_coder", qwen("int", "twelve"), `{"int":"twelve"}`},
		{"qwen3_coder", qwen("num", "12345678901234567890123"), `{"num":12345678901234567890123}`},
		{"qwen3_coder", qwen("num", "2.50"), `{"num":2.5}`},
		{"qwen3_coder", qwen("num", "3.0"), `{"num":3}`},
		{"qwen3_coder", qwen("yes", "TRUE"), `{"yes":true}`},
		{"qwen3_coder", qwen("yes", "perhaps"), `{"yes":false}`},
		{"qwen3_coder", qwen("list", "[1, 2 ]"), `{"list":[1,2]}`},
		{"qwen3_coder", qwen("map", "{'a': True, 'b': None}"), `{"map":{"a":true,"b":null}}`},
		{"qwen3_coder", qwen("text", "null"), `{"text":null}`},
		{"qwen3_coder", qwen("other", "a &lt; b &amp;&amp; c"), `{"other":"a < b && c"}`},
		{"glm47", glm("text", " 12 "), `{"text":" 12 "}`},
		{"glm47", glm("int", " 12 "), `{"int":12}`},
		{"glm47", glm("int", "007"), `{"int":7}`},
		{"glm47", glm("num", "1e3"), `{"num":1000.0}`},
		{"glm47", glm("yes", "no"), `{"yes":false}`},
		{"glm47", glm("list", "a, b"), `{"list":["a","b"]}`},
		{"glm47", glm("maybe", "null"), `{"maybe":null}`},
		{"glm47", glm("int", "null"), `{"int":"null"}`},
		{"glm47", glm("named", "4"), `{"named":4}`},
		{"glm47", glm("loop", "4"), `{"loop":"4"}`},
		{"minimax_m3", m3("int", "5"), `{"int":5}`},
		{"minimax_m3", m3("yes", "1"), `{"yes":true}`},
		{"minimax_m3", m3("map", "<deep>5</deep><more><item>1</item><item>2.5</item></more>"), `{"map":{"deep":5,"more":[1,2.5]}}`},
		{"minimax_m3", m3("list", "<item>1</item><item>2</item>"), `{"list":[1,2]}`},
		{"minimax_m3", m3("unknown", "<a>1</a><a>2</a><b>3</b>"), `{"unknown":{"a":["1","2"],"b":"3"}}`},
		{"minimax_m3", m3("maybe", "null"), `{"maybe":null}`},
		{"gemma4", `<|tool_call>call:f{a:{b:[1,-2.5,<|"|>x<tool_call|>{<|"|>]},c:true,d:none,e:}<tool_call|>`, `{"a":{"b":[1,-2.5,"x<tool_call|>{"]},"c":true,"d":null,"e":""}`},
		{"pythonic", `[f(a=[1, 2.0, 'x"y'], b={'k': (1), 'l': False}, c=-1, d="a" 'b', e=1_000)]`, `{"a":[1,2.0,"x\"y"],"d":"ab","e":1000}`},
		{"deepseek_v4", `<｜DSML｜tool_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="a" string="false">{"x": 1.50}</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>`, `{"a":{"x":1.5}}`},
		{"kimi_k3", `<|open|>call tool="f" index="1"<|sep|><|open|>argument key="a&quot;" type="object"<|sep|>{"b": 1}<|close|>argument<|sep|><|close|>call<|sep|>`, `{"a\"":{"b":1}}`},
	} {
		if got := parsed(t, c.format, c.text, Options{Tools: typed}); got != `"" f`+c.want {
			t.Errorf("%s %s: have %s; want f%s", c.format, c.text, got, c.want)
		}
	}
}

func TestRecovery(t *testing.T) {
	for _, c := range []struct{ format, text, want string }{
		// What is complete counts although what surrounds it is not.
		{"hermes", `<tool_call>{"name": "f", "arguments": {"a": [1, {"b": "x\`, `"" f{"a": [1, {"b": "x\\"}]}`},
		{"hermes", `<tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>{"name": "g", "arguments": {"a": 1`, `"" f{} g{"a": 1}`},
		{"hermes", `<tool_call>broken</tool_call> sorry`, `" sorry"`},
		{"hermes", `<tool_call>[{"name": "f"}, 5, {"name": "g", "parameters": {}}]</tool_call>`, `"" f{} g{}`},
		{"mistral", `[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "argum`, `"" f{}`},
		{"mistral", `[TOOL_CALLS][{"name": "f", "arguments": {}}][/TOOL_CALLS][/TOOL_CALLS] ok`, `" ok" f{}`},
		{"llama3_json", `<|python_tag|>{"name": "f", "parameters": {"q": "a;b"}}; {"name": "g", "parameters": {}} and`, `"" f{"q": "a;b"} g{}`},
		{"minimax_m2", `<minimax:tool_call><invoke name="f"><parameter name="a">1</parameter></invoke><invoke name="g"><para`, `"" f{"a":"1"}`},
		{"kimi_k2", `<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "<|tool_call_end|>"}<|tool_call_end|>`, `"" f{"a":"<|tool_call_end|>"}`},
		{"harmony", `<|channel|>commentary to=functions.f<|message|>not json<|call|>`, `"" fnot json`},
		// JSON that only looks like a call is an answer.
		{"hermes", `{"name": "Ada"}`, `"{\"name\": \"Ada\"}"`},
		{"hermes", `{"a": [1, {"b": 2}]} is it`, `"{\"a\": [1, {\"b\": 2}]} is it"`},
		{"hermes", `{ x = 1 }`, `"{ x = 1 }"`},
		{"hermes", `[1, 2] {"name": "f", "arguments": {}}`, `"[1, 2] {\"name\": \"f\", \"arguments\": {}}"`},
		{"phi4", `use functools.partial`, `"use functools.partial"`},
		{"pythonic", `see [1] and [f](url) or [f(1)]`, `"see [1] and [f](url) or [f(1)]"`},
	} {
		if got := parsed(t, c.format, c.text, Options{}); got != c.want {
			t.Errorf("%s %s: have %s; want %s", c.format, c.text, got, c.want)
		}
	}
}

func TestFirstCallOnly(t *testing.T) {
	two := `<tool_call>{"name":"f","arguments":{}}</tool_call><tool_call>{"name":"g","arguments":{}}</tool_call>`
	if got := parsed(t, "hermes", two, Options{FirstCallOnly: true}); got != `"" f{}` {
		t.Error(got)
	}
	p := NewForced("", "", false, Options{FirstCallOnly: true})
	var calls []Call
	take := func(piece Piece) { calls = append(calls, piece.Calls...) }
	p.Feed(`[{"name":"f","parameters":{}},{"name":"g","parameters":{}}]`, take)
	p.Finish(take)
	if len(calls) != 1 || calls[0].Name != "f" {
		t.Errorf("calls %+v", calls)
	}
}

// A call beyond the limit is shown and the rest of the answer with it: memory stays bounded.
func TestLimits(t *testing.T) {
	long := strings.Repeat("x", maxBlock+10)
	for _, format := range []string{"hermes", "llama3_json", "gemma4", "pythonic", "mistral"} {
		text := map[string]string{"hermes": "<tool_call>", "llama3_json": "<|python_tag|>{\"a\":\"", "gemma4": "<|tool_call>", "pythonic": "[f(a='", "mistral": "[TOOL_CALLS][\""}[format] + long
		if got, calls, _, err := Parse(format, text, Options{}); err != nil || got != text || calls != nil {
			t.Errorf("%s: %d of %d bytes are shown, %v, %v", format, len(got), len(text), calls, err)
		}
	}
	deep := "<tool_call>{\"name\":\"f\",\"arguments\":" + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + "}</tool_call>"
	if got := parsed(t, "hermes", deep, Options{}); got != `""` {
		t.Errorf("a call with deep arguments: %.100s", got)
	}
}

// A token of plain text passes without any allocation.
func TestPlainTextIsNotCopied(t *testing.T) {
	for _, name := range Names() {
		if name == "jamba" {
			continue
		}
		p, _ := New(name, Options{})
		count := 0
		take := func(Piece) { count++ }
		p.Feed("The", take)
		if allocs := testing.AllocsPerRun(100, func() { p.Feed(" answer", take) }); allocs > 0 || count < 100 {
			t.Errorf("%s: %v allocations per token, %d pieces", name, allocs, count)
		}
	}
}

// The scanner and the reader agree about what is JSON, and the compact form means the same.
func TestCompactJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune(`{}[]":,\u0041 tfn1-.eE+é`+"\n")), 0, 20, -1).Draw(t, "text")
		one, ok := compactString(text)
		if !ok {
			return
		}
		two, ok := compactString(one)
		if !ok || one != two {
			t.Fatalf("%q became %q, that %q", text, one, two)
		}
		if at := leadingSpace(text); text[at] == '{' || text[at] == '[' {
			var s jsonScanner
			if end, done, bad := s.scan(text, at); !done || bad || leadingSpace(text[end:]) != len(text[end:]) {
				t.Fatalf("%q: the scanner stops at %d", text, end)
			}
		}
	})
	for text, want := range map[string]string{
		`{"a": 1, "b": [ true, null ], "a": 2}`:  `{"a":2,"b":[true,null]}`,
		`"\u00e9\ud83d\ude00\/\n\u0001"`:         `"é😀/\n\u0001"`,
		`[1.50, 1e2, 1e-7, 1e16, -0, 1e15, 0.1]`: `[1.5,100.0,1e-7,1e16,-0.0,1000000000000000.0,0.1]`,
	} {
		if got, _ := compactString(text); got != want {
			t.Errorf("%s: have %s; want %s", text, got, want)
		}
	}
	for _, bad := range []string{`{"a":}`, `[1,]`, `"\ud800"`, `01`, `{"a" 1}`, "\"\x01\"", `nul`, `1 2`, ``} {
		if got, ok := compactString(bad); ok {
			t.Errorf("%s is taken for %s", bad, got)
		}
	}
}

func BenchmarkTokens(b *testing.B) {
	for _, name := range []string{"hermes", "qwen3_coder", "harmony", "kimi_k3"} {
		b.Run(name, func(b *testing.B) {
			p, _ := New(name, Options{})
			take := func(Piece) {}
			b.ReportAllocs()
			for b.Loop() {
				p.Feed(" answer", take)
			}
		})
	}
}

// TestBareJSON has answers as the real frontend of 1.6.1 splits them, but for the white space around its calls, which it trims
// after text that has been seen.
func TestBareJSON(t *testing.T) {
	const f, g = `{"name": "f", "arguments": {"a": 2}}`, `{"name": "g", "arguments": {"b": "x"}}`
	const calls = ` f{"a": 2} g{"b": "x"}`
	for _, c := range []struct{ text, want string }{
		{f, `"" f{"a": 2}`},
		{f + " tail", `" tail" f{"a": 2}`},
		{f + "\n\n" + g + "\n", `""` + calls},
		{"[" + f + ", " + g + "]", `""` + calls},
		{f + " tail " + g + " end", `" tail  end"` + calls},
		{f + ` and {"a": 1} end`, `" and {\"a\": 1} end" f{"a": 2}`},
		{f + " mid <tool_call>" + g + "</tool_call> tail", `" mid  tail"` + calls},
		{"<tool_call>" + f + "</tool_call> mid " + g + " tail", `" mid  tail"` + calls},
		{`say {"a": 1} and ` + f + " end", render(`say {"a": 1} and `+f+" end", nil)},
		{`{"name": "f", "parameters": {}}`, `"" f{}`},
		{`{"name": "f", "parameters": {}} tail`, render(`{"name": "f", "parameters": {}} tail`, nil)},
		{`{"name": "Bob"} tail`, render(`{"name": "Bob"} tail`, nil)},
	} {
		if got := parsed(t, "hermes", c.text, Options{}); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}
