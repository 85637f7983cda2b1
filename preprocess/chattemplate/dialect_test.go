package chattemplate

import "testing"

// What minijinja 2.24 makes of the same, with the filters and the printing of floats that Dynamo gives it.
func TestMiniJinjaDialect(t *testing.T) {
	variables, err := ParseJSONString(`{"d":{"a":[null,true,1,2.0,1e-7,1e16,"x'\"\\\n\t\u0000\u00a0é👩\u200d👩\u0301",{}],"items":[1],"keys":2},
		"l":["a","b"],"s":"abc","f":1e-7,"n":null,"e":"<b>"}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ source, want string }{
		{`{{ d }}`, `{"a": [None, True, 1, 2.0, 1e-7, 1e16, "x'\"\\\n\t\0\u{a0}é👩\u{200d}👩\u{301}", {}], "items": [1], "keys": 2}`},
		{`{{ l }}{{ [] }}{{ {} }}{{ ('a', 1) }}`, `["a", "b"][]{}["a", 1]`},
		{`{{ d.items }}{{ d['items'] }}{{ d.get('keys') }}`, `[1][1]2`},
		{`{% for k, v in d.items() %}{{ k }};{% endfor %}`, `a;items;keys;`},
		{`{{ d.values is defined }}{{ d['values'] is defined }}`, `FalseFalse`},
		{`{% for x in n %}{% else %}none{% endfor %}{{ n|length }}{{ 5|length }}{{ n|list }}`, `none00[]`},
		{`{{ s is sequence }}{{ d is sequence }}{{ l is sequence }}{{ n is iterable }}{{ s is iterable }}{{ nope is iterable }}`, `FalseFalseTrueTrueTrueTrue`},
		{`{{ nope|tojson }}{{ l|map('upper')|tojson }}`, `null["A", "B"]`},
		{`{{ {'a': [1.0]}|tojson(indent=2) }}`, "{\n  \"a\": [\n    1.0\n  ]\n}"},
		{`{{ 'é'|tojson(ensure_ascii=true) }}`, `"é"`},
		{`{{ e|tojson|e }}|{{ e|e }}|{{ (e|safe) + e }}|{{ e|tojson ~ e|e }}`, `"<b>"|&lt;b&gt;|<b><b>|"<b>"&lt;b&gt;`},
		{`{{ f }}|{{ f|string }}|{{ 'x' ~ f }}|{{ [f]|join(',') }}|{{ [f] }}|{{ f|tojson }}`, `1e-07|1e-07|x0.0000001|0.0000001|[1e-7]|1e-07`},
		{"{{ 'a\nb\n'|indent(2) }}|", "a\n  b|"},
		{`{{ 1 in '123' }}{{ n in 'None' }}`, `TrueTrue`},
		{`{{ 1.5 + 1 }}|{{ 7 // 2 }}|{{ 7 / 2 }}|{{ -7 % 3 }}|{{ 2 ** 3 }}`, `2.5|3|3.5|2|8`},
		{`{{ true }}{{ n }}{{ nope }}`, `TrueNone`},
		{`{{ 'a,b'.split(',') }}{{ l|reverse|list }}{{ s|replace('b', f) }}{{ range(3) }}`, `["a", "b"]["b", "a"]a0.0000001c[0, 1, 2]`},
		{`{% set x = l|map('upper') %}{{ x|length }}{% for y in x %}{{ y }}{% endfor %}{% for y in x %}{{ y }}{% endfor %}`, `2ABAB`},
	} {
		template, err := Compile(c.source, Options{Dialect: MiniJinja})
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		if got, err := template.Render(variables); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.source, got, err, c.want)
		}
	}
}
