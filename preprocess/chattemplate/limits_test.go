package chattemplate

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// small are limits that hostile templates meet at once.
var small = Limits{Steps: 1_000_000, OutputBytes: 1 << 20, AllocatedBytes: 8 << 20, Depth: 50}

// hostile templates with the limit that stops each; "" where an error of another kind comes first.
var hostile = []struct{ name, source, limit string }{
	{"nested loops", `{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}`, "Steps"},
	{"loop with a filter", `{% for a in range(100000) %}{% for b in range(100000) if b < 0 %}{% endfor %}{% endfor %}`, "Steps"},
	{"doubled text", `{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}`, "OutputBytes"},
	{"added text", `{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`, "AllocatedBytes"},
	{"doubled list", `{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`, "AllocatedBytes"},
	{"repeated text", `{{ 'x' * 1000000000 }}`, "AllocatedBytes"},
	{"repeated list", `{{ [1] * 1000000000 }}`, "AllocatedBytes"},
	{"output", `{% for i in range(100000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}`, "OutputBytes"},
	{"output of a macro", `{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = m(ns.s) %}{% endfor %}`, "OutputBytes"},
	{"captured block", `{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set y %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = y %}{% endfor %}`, "OutputBytes"},
	{"recursive macro", `{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}`, "Depth"},
	{"macros calling each other", `{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}`, "Depth"},
	{"macro calling through caller", `{% macro a() %}{{ caller() }}{% endmacro %}{% macro b() %}{% call a() %}{{ b() }}{% endcall %}{% endmacro %}{{ b() }}`, "Depth"},
	{"recursive loop", `{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}`, "Depth"},
	{"wide recursion", `{% macro m(n) %}{% if n > 0 %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(40) }}`, "Steps"},
	{"percent width", `{{ '%1000000000d' % 1 }}`, ""},
	{"percent precision", `{{ '%.1000000000f' % 1.5 }}`, ""},
	{"percent width of an argument", `{{ '%*d' % (1000000000, 1) }}`, ""},
	{"format width", `{{ '{:>1000000000}'.format(1) }}`, ""},
	{"format precision", `{{ '{:.1000000000f}'.format(1.5) }}`, ""},
	{"format of a width", `{{ '{:{w}}'.format(1, w=1000000000) }}`, ""},
	{"center", `{{ 'x'.center(1000000000) }}`, "AllocatedBytes"},
	{"center filter", `{{ 'x'|center(1000000000) }}`, "AllocatedBytes"},
	{"ljust", `{{ 'x'.ljust(1000000000) }}`, "AllocatedBytes"},
	{"zfill", `{{ 'x'.zfill(1000000000) }}`, "AllocatedBytes"},
	{"expandtabs", `{{ '\t'.expandtabs(1000000000) }}`, "AllocatedBytes"},
	{"indent", `{{ 'a\nb'|indent(1000000000) }}`, "AllocatedBytes"},
	{"indent with a long text", `{{ ('\n' * 1000)|indent('x' * 100000, blank=true) }}`, "AllocatedBytes"},
	{"tojson indent", `{{ [1]|tojson(indent=1000000000) }}`, "AllocatedBytes"},
	{"tojson of a shared list", `{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson }}`, ""},
	{"printed shared list", `{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}`, ""},
	{"compared shared lists", `{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}`, "Steps"},
	{"nested list", `{% set ns = namespace(s=[1]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}`, ""},
	{"namespace inside itself", `{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}`, ""},
	{"power", `{{ 10 ** 1000000000 }}`, ""},
	{"tower of powers", `{{ 9 ** (9 ** (9 ** 9)) }}`, ""},
	{"squares", `{% set ns = namespace(n=9) %}{% for i in range(100) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n }}`, ""},
	{"long number", `{{ ((10 ** 4000) * (10 ** 4000))|string }}`, ""},
	{"range", `{% for i in range(1000000000) %}{% endfor %}`, ""},
	{"list of ranges", `{% for i in range(10000) %}{% set x = range(100000)|list %}{% endfor %}`, "AllocatedBytes"},
	{"replace of nothing", `{{ ('x' * 100000).replace('', 'y' * 1000) }}`, "AllocatedBytes"},
	{"replace filter", `{{ ('x' * 100000)|replace('x', 'y' * 1000) }}`, "AllocatedBytes"},
	{"join", `{{ ('x' * 100000)|join('y' * 1000) }}`, "AllocatedBytes"},
	{"join method", `{{ ('y' * 1000).join('x' * 100000) }}`, "AllocatedBytes"},
	{"split", `{% for i in range(1000) %}{% set x = ('x ' * 100000).split() %}{% endfor %}`, "AllocatedBytes"},
	{"search", `{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ 'b' in s }}{% endfor %}`, ""},
	{"search in a list", `{% set s = range(100000)|list %}{% for i in range(100000) %}{{ -1 in s }}{% endfor %}`, ""},
	{"sort", `{% for i in range(100000) %}{{ range(10000)|sort|length }}{% endfor %}`, "AllocatedBytes"},
	{"unique", `{% for i in range(100000) %}{{ range(10000)|unique|list|length }}{% endfor %}`, ""},
	{"batch", `{{ [1]|batch(1000000000, 'x')|list }}`, "AllocatedBytes"},
	{"slice filter", `{{ [1]|slice(1000000000, 'x')|list }}`, "AllocatedBytes"},
	{"wordwrap", `{{ ('x' * 100000)|wordwrap(1, wrapstring='y' * 1000) }}`, "AllocatedBytes"},
	{"wordwrap without width", `{{ 'x y'|wordwrap(0) }}`, ""},
	{"clock", `{{ strftime_now('%A' * 1000000) }}`, "AllocatedBytes"},
	{"escape", `{% set ns = namespace(s='&') %}{% for i in range(64) %}{% set ns.s = ns.s|forceescape|string %}{% endfor %}{% set ns.s = ns.s * 100000 %}{{ ns.s|forceescape }}`, "AllocatedBytes"},
	{"urlencode", `{% set ns = namespace(s='%') %}{% for i in range(64) %}{% set ns.s = ns.s|urlencode * 2 %}{% endfor %}`, "AllocatedBytes"},
	{"upper", `{% for i in range(100000) %}{% set x = ('ß' * 100000)|upper %}{% endfor %}`, "AllocatedBytes"},
	{"dict", `{% for i in range(100000) %}{% set x = dict(range(1000)|map('string')|batch(2)) %}{% endfor %}`, "AllocatedBytes"},
	{"reversed text", `{% for i in range(100000) %}{% set x = ('x' * 100000)[::-1] %}{% endfor %}`, "AllocatedBytes"},
	{"truncate", `{{ ('x' * 1000)|truncate(1, end='y' * 100000) }}{% for i in range(100) %}{{ ('x' * 100000)|truncate(10, true, 'z' * 100000) }}{% endfor %}`, ""},
	{"groupby", `{% for i in range(1000) %}{{ [{'a': 1}] * 1000|int }}{{ ([{'a': 1}] * 1000)|groupby('a') }}{% endfor %}`, ""},
	{"pprint", `{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|pprint }}`, ""},
	{"cycler", `{% set c = cycler(*range(100000)) %}{% for i in range(100000) %}{% set c = cycler(*range(100000)) %}{% endfor %}`, "AllocatedBytes"},
	{"chained filters", `{{ range(100000)|map('string')|map('upper')|map('center', 100)|join|length }}`, ""},
	{"long test chain", `{% for i in range(100000) %}{% if range(100000)|select('divisibleby', 3)|list %}{% endif %}{% endfor %}`, ""},
}

func TestHostileTemplatesAreStopped(t *testing.T) {
	for _, dialect := range []Dialect{Python, MiniJinja} {
		for _, c := range hostile {
			t.Run(c.name, func(t *testing.T) {
				template, err := Compile(c.source, Options{Limits: small, Dialect: dialect})
				if err != nil {
					return // refused before it runs
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err = template.Render(NewDict(0).Value())
				runtime.ReadMemStats(&after)
				var limit *LimitError
				switch {
				case err == nil:
					t.Fatalf("rendered: nothing stopped it")
				case c.limit != "" && !errors.As(err, &limit):
					t.Errorf("stopped by %v, want the limit %s", err, c.limit)
				case c.limit != "" && limit.Limit != c.limit:
					t.Errorf("stopped by the limit %s, want %s", limit.Limit, c.limit)
				}
				// What a template allocates is charged before it is allocated; buffers that grow may be copied a few times.
				if used := after.TotalAlloc - before.TotalAlloc; used > 6*uint64(small.AllocatedBytes) {
					t.Errorf("allocated %d bytes under a limit of %d", used, small.AllocatedBytes)
				}
			})
		}
	}
}

// The number of steps is the bound on time: whatever the template does, a render makes no more than it may.
func TestStepsBoundTheWork(t *testing.T) {
	calls := 0
	template, err := Compile(`{% for a in range(100000) %}{% set x = a|count_calls %}{% endfor %}`, Options{Limits: Limits{Steps: 5000},
		Filters: map[string]func(Value, []Value) (Value, error){"count_calls": func(v Value, _ []Value) (Value, error) { calls++; return v, nil }}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = template.Render(NewDict(0).Value())
	var limit *LimitError
	if !errors.As(err, &limit) || limit.Limit != "Steps" || limit.Max != 5000 {
		t.Fatalf("got %v, want the limit Steps=5000", err)
	}
	if calls == 0 || calls > 5000 {
		t.Errorf("%d filter calls under a limit of 5000 steps", calls)
	}
}

// Sources that nest deeper than the parser follows are refused, not parsed until the stack is gone.
func TestDeepSourcesAreRefused(t *testing.T) {
	const n = 50_000
	for name, source := range map[string]string{
		"parentheses":  `{{ ` + strings.Repeat("(", n) + `1` + strings.Repeat(")", n) + ` }}`,
		"lists":        `{{ ` + strings.Repeat("[", n) + strings.Repeat("]", n) + ` }}`,
		"dicts":        `{{ ` + strings.Repeat("{1:", n) + `1` + strings.Repeat("}", n) + ` }}`,
		"not":          `{{ ` + strings.Repeat("not ", n) + `1 }}`,
		"minus":        `{{ ` + strings.Repeat("-", n) + `1 }}`,
		"power":        `{{ ` + strings.Repeat("1**", n) + `1 }}`,
		"plus":         `{{ ` + strings.Repeat("1+", n) + `1 }}`,
		"and":          `{{ ` + strings.Repeat("1 and ", n) + `1 }}`,
		"tilde":        `{{ ` + strings.Repeat("x~", n) + `x }}`,
		"if else":      `{{ ` + strings.Repeat("1 if x else ", n) + `1 }}`,
		"filters":      `{{ 1` + strings.Repeat("|string", n) + ` }}`,
		"attributes":   `{{ x` + strings.Repeat(".a", n) + ` }}`,
		"calls":        `{{ x` + strings.Repeat("()", n) + ` }}`,
		"subscripts":   `{{ ` + strings.Repeat("x[", n) + strings.Repeat("]", n) + ` }}`,
		"if blocks":    strings.Repeat("{% if x %}", n) + strings.Repeat("{% endif %}", n),
		"for blocks":   strings.Repeat("{% for a in b %}", n) + strings.Repeat("{% endfor %}", n),
		"set blocks":   strings.Repeat("{% set a %}", n) + strings.Repeat("{% endset %}", n),
		"macros":       strings.Repeat("{% macro a() %}", n) + strings.Repeat("{% endmacro %}", n),
		"elif":         "{% if a %}" + strings.Repeat("{% elif b %}", n) + "{% endif %}",
		"tuple target": `{% for ` + strings.Repeat("(", n) + `a` + strings.Repeat(")", n) + ` in b %}{% endfor %}`,
	} {
		t.Run(name, func(t *testing.T) {
			template, err := Compile(source, Options{Limits: small})
			if err != nil {
				var syntax *SyntaxError
				if !errors.As(err, &syntax) {
					t.Fatalf("%T: %v", err, err)
				}
				return
			}
			// What is taken is flat, and renders or fails without using up the stack.
			_, _ = template.Render(NewDict(0).Value())
		})
	}
}

func TestSourceLengthIsBounded(t *testing.T) {
	_, err := Compile(strings.Repeat("x", maxSourceBytes+1), Options{})
	var syntax *SyntaxError
	if !errors.As(err, &syntax) {
		t.Fatalf("got %v, want a SyntaxError", err)
	}
}

// Input is a stranger's text: JSON that nests deeper than values may is refused when it is read.
func TestDeepInputIsRefused(t *testing.T) {
	for _, open := range []string{"[", `{"a":`} {
		if _, err := ParseJSONString(strings.Repeat(open, 1_000_000)); err == nil {
			t.Errorf("a million %s were read", open)
		}
	}
	closed := strings.Repeat("[", maxValueDepth-1) + strings.Repeat("]", maxValueDepth-1)
	value, err := ParseJSONString(closed)
	if err != nil {
		t.Fatal(err)
	}
	template, err := Compile(`{{ x }}{{ x|tojson }}{{ x == y }}{{ [x]|unique|list|length }}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	other, _ := ParseJSONString(closed)
	variables := NewDict(2)
	variables.Set("x", value)
	variables.Set("y", other)
	_, _ = template.Render(variables.Value()) // a text or an error, but no panic
}
