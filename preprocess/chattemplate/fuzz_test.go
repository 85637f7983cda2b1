package chattemplate

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// snippets are sources that between them use every statement, most operators and the usual filters.
var snippets = []string{
	`{%- for m in messages -%}<|{{ m.role }}|>{{ m['content']|trim }}{% if not loop.last %}, {% endif %}{%- endfor -%}`,
	`{% set ns = namespace(found=false) %}{% for m in messages[::-1] %}{% if m.role == 'user' and not ns.found %}{% set ns.found = true %}{{ loop.index0 }}{% endif %}{% endfor %}`,
	`{% macro show(x, indent=2) %}{% for k, v in x.items() %}{{ k ~ ': ' }}{% if v is mapping %}{{ show(v, indent + 2) }}{% else %}{{ v|tojson(indent=indent) }}{% endif %}{% endfor %}{% endmacro %}{{ show(messages[0]) }}`,
	`{% if tools is defined and tools is not none %}{{ tools|map(attribute='function')|selectattr('name')|list|tojson }}{% endif %}`,
	`{{ raise_exception('no ' + messages[0].role) }}`,
	`{% generation %}{{ messages[-1].content.split('</think>')[-1].lstrip('\n') }}{% endgeneration %}`,
	`{% for m in messages recursive %}{% if m.items is defined %}{{ loop(m.values()) }}{% else %}{{ m }}{% endif %}{% else %}none{% endfor %}`,
	`{% call(x) outer() %}{{ x }}{% endcall %}`,
	`{% filter upper %}{{ bos_token }}{% endfilter %}{% set x %}a{% endset %}{% with y = x * 3 %}{{ y }}{% endwith %}`,
	`{# note #}{% raw %}{{ raw }}{% endraw %}{{ strftime_now('%d %b %Y') }}{% break %}`,
	`{{ '%s %05.2f' % ('x', 1.5) }}{{ '{:>8}{!r}'.format('a', 'b') }}{{ 7 // 2 ** 2 % 3 - 1.5e3 }}{{ 'a' in 'abc' and 1 < 2 <= 3 }}`,
	`{{ 1 in '123' }}{{ none in 'None' }}{{ -1.5 ~ 'x' }}{{ 1 == 2.0 }}{{ 'a' + 'b' }}{{ not none }}`,
	"{{ \"\\u00e9\\x41\\n\" }}{%- if x is divisibleby 3 %}{% elif y %}{% endif -%}\n  {%+ if true %}z{% endif %}",
}

func addTemplates(f *testing.F, add func(source string)) {
	for _, source := range snippets {
		add(source)
	}
	folder := os.Getenv("SIGNALBOX_MODELS")
	if folder == "" {
		folder = filepath.Join("..", "..", ".cache", "models")
	}
	paths, _ := filepath.Glob(filepath.Join(folder, "tpl", "*", "*.jinja"))
	for _, path := range paths {
		if source, err := os.ReadFile(path); err == nil {
			add(string(source))
		}
	}
}

// fixedClock is what strftime_now tells.
func fixedClock() time.Time { return time.Date(2026, 11, 30, 12, 34, 56, 0, time.UTC) }

const someInput = `{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"Hi \"<b>\" é"},
	{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"a":1,"b":[1.5,null,true]}}}]},
	{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"21"}]}],
	"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"items":{"type":"array"}}}}}],
	"bos_token":"<s>","eos_token":"</s>","add_generation_prompt":true,"x":3,"big":123456789012345678901234567890}`

// FuzzLex: any bytes become tokens in the order of their lines, ended by one end; a text without tags is one token.
func FuzzLex(f *testing.F) {
	addTemplates(f, func(source string) { f.Add(source) })
	f.Fuzz(func(t *testing.T, source string) {
		tokens, err := tokenize(source)
		if err != nil {
			return
		}
		line := 1
		for i, token := range tokens {
			if token.line < line {
				t.Fatalf("token %d is on line %d, the one before on line %d", i, token.line, line)
			}
			line = token.line
			if (token.kind == tokenEOF) != (i == len(tokens)-1) {
				t.Fatalf("token %d of %d: the end is elsewhere", i, len(tokens))
			}
		}
		text := strings.TrimSuffix(strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n"), "\n")
		if !strings.Contains(text, "{") && text != "" && (len(tokens) != 2 || tokens[0].text != text) {
			t.Fatalf("%q without tags became %d tokens", text, len(tokens))
		}
	})
}

// FuzzParse: any bytes compile, or are refused with a line that exists.
func FuzzParse(f *testing.F) {
	addTemplates(f, func(source string) { f.Add(source) })
	f.Fuzz(func(t *testing.T, source string) {
		_, err := Compile(source, Options{})
		var syntax *SyntaxError
		if err != nil && !errors.As(err, &syntax) {
			t.Fatalf("%T: %v", err, err)
		}
		if syntax != nil && (syntax.Line < 0 || syntax.Line > strings.Count(source, "\n")+1+strings.Count(source, "\r")) {
			t.Fatalf("line %d of a source of %d lines: %v", syntax.Line, strings.Count(source, "\n")+1, err)
		}
	})
}

// FuzzRender: any template over any input ends with a text or one of the documented errors, within its limits, and a second
// render gives the same.
func FuzzRender(f *testing.F) {
	addTemplates(f, func(source string) { f.Add(source, someInput, true); f.Add(source, `{"messages":[]}`, false) })
	f.Fuzz(func(t *testing.T, source, input string, mini bool) {
		options := Options{Limits: Limits{Steps: 200_000, OutputBytes: 1 << 18, AllocatedBytes: 1 << 21, Depth: 40}, Now: fixedClock}
		if mini {
			options.Dialect = MiniJinja
		}
		template, err := Compile(source, options)
		if err != nil {
			return
		}
		variables, err := ParseJSONString(input)
		if err != nil || variables.Kind() != KindDict {
			return
		}
		text, err := template.Render(variables)
		if err != nil {
			var raised *RaisedError
			var limit *LimitError
			var failed *RenderError
			if !errors.As(err, &raised) && !errors.As(err, &limit) && !errors.As(err, &failed) {
				t.Fatalf("%T: %v", err, err)
			}
		}
		if int64(len(text)) > options.Limits.OutputBytes {
			t.Fatalf("%d bytes of output under a limit of %d", len(text), options.Limits.OutputBytes)
		}
		again, errAgain := template.Render(variables)
		if text != again || (err == nil) != (errAgain == nil) {
			t.Fatalf("two renders differ:\n%q %v\n%q %v", text, err, again, errAgain)
		}
	})
}

// FuzzJSON: what encoding/json takes is taken, and written by tojson as the same value.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{someInput, `[1,-0,0.5,1e-7,1E+30,12345678901234567890]`, `"\ud83d\ude00\u0000\/"`, ` {"a":{"a":[]},"b":""} `, `{"a":1,"a":2}`} {
		f.Add([]byte(text))
	}
	writer, err := Compile(`{{ v|tojson }}`, Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, err := ParseJSON(text)
		if !json.Valid(text) {
			if err == nil && !bytes.ContainsAny(text, "NI") { // NaN and Infinity are Python's
				t.Fatalf("%q is no JSON, but was read", text)
			}
			return
		}
		if err != nil {
			return // too deep, too long a number, or not UTF-8
		}
		variables := NewDict(1)
		variables.Set("v", value)
		written, err := writer.Render(variables.Value())
		if err != nil {
			return
		}
		var want, got any
		if json.Unmarshal(text, &want) != nil {
			return // a number beyond float64
		}
		if err := json.Unmarshal([]byte(written), &got); err != nil {
			t.Fatalf("%q was written as %q: %v", text, written, err)
		}
		if !reflect.DeepEqual(want, got) {
			t.Fatalf("%q was written as %q", text, written)
		}
	})
}

// FuzzPlainEnd: eight bytes at a time find the same place as one at a time.
func FuzzPlainEnd(f *testing.F) {
	for _, text := range []string{"", "abc", "abcdefgh\"", "é\x80\xff1234\\", "12345678\x1f", strings.Repeat("x", 40) + "!\"", "\x7f\x20\x21\x23\x5b\x5d\x5c"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for start := 0; start <= min(len(text), 9); start++ {
			want := start
			for want < len(text) && text[want] != '"' && text[want] != '\\' && text[want] >= ' ' {
				want++
			}
			if got := plainEnd(text, start); got != want {
				t.Fatalf("plainEnd(%q, %d) = %d, want %d", text, start, got, want)
			}
		}
	})
}
