package prompt

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"signalbox/preprocess/chattemplate"
)

// dump shows all that a template is given.
const dump = `{% for m in messages %}{{ m|tojson }}
{% endfor %}{% if tools %}{{ tools|tojson }}{% endif %}`

func render(t *testing.T, source string, options Options, request Request) (string, error) {
	t.Helper()
	f, err := New(source, map[string]string{"bos_token": "<s>"}, options)
	if err != nil {
		t.Fatal(err)
	}
	return f.Render(request)
}

func messages(text string) Request { return Request{Messages: []byte(text)} }

func TestMessagesTakeTheTemplatesForm(t *testing.T) {
	const (
		// parts is a template that reads only parts; strict refuses what Gemma and Mistral refuse.
		parts  = `{% for m in messages %}{% if m.content is not string %}{% for p in m.content %}<{{ p|tojson }}>{% endfor %}{% endif %}{% endfor %}`
		strict = `{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system') }}{% endif %}` +
			`{% if m.role == 'user' and not loop.first and loop.previtem.role == 'user' %}{{ raise_exception('alternate') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}`
		textArguments = `{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments|tojson }}{% endif %}{% endfor %}{% endfor %}`
		refusesText   = `{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.function.arguments is string %}{{ raise_exception('text') }}{% endif %}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}`
		readsString   = `{% for m in messages %}{% if m.reasoning_content is string %}({{ m.reasoning_content }}){% endif %}{{ m.content }}{% endfor %}`
		readsSegments = `{% for m in messages %}{% if m.reasoning_content is string %}({{ m.reasoning_content }}){% elif m.reasoning_content %}{% for s in m.reasoning_content %}({{ s }}){% endfor %}{% endif %}{{ m.content }}{% endfor %}`
		phi           = `{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>`
		llava         = `{% for m in messages %}{% if m.role == 'user' %}USER: {{ m.content }}{% else %}ASSISTANT: {{ m.content }}{% endif %}{% endfor %}`
		passes        = `{% for m in messages %}{{ m.content }}{% endfor %}`
	)
	call := func(arguments string) string {
		return `[{"role":"user","content":"u"},{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"` + arguments + `"}}]}]`
	}
	image := `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"http://x"}},{"type":"text","text":"b"},{"type":"image_url","image_url":{"url":"http://y"}}]}]`
	for name, c := range map[string]struct{ template, messages, want string }{
		"members in the API's order":  {dump, `[{"content":"x","name":"n","foo":1,"role":"user"}]`, `{"role": "user", "content": "x", "name": "n"}` + "\n"},
		"a tool's answer":             {dump, `[{"role":"tool","name":"f","tool_call_id":"1","content":"r"}]`, `{"role": "tool", "content": "r", "tool_call_id": "1"}` + "\n"},
		"a call's members":            {dump, `[{"role":"assistant","tool_calls":[{"index":0,"function":{"arguments":"{\"b\":1,\"a\":2}","name":"f"},"id":"1"}]}]`, `{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}}]}` + "\n"},
		"a part's members":            {dump, `[{"role":"assistant","content":[{"text":"q","cache_control":{},"type":"text"},{"type":"refusal","refusal":"z"}]}]`, `{"role": "assistant", "content": [{"type": "text", "text": "q"}, {"type": "refusal", "refusal": "z"}]}` + "\n"},
		"members after reasoning":     {dump, `[{"role":"assistant","content":"c","reasoning_content":"r","refusal":"x","name":"n","tool_calls":[]}]`, `{"role": "assistant", "content": "<think>r</think>c", "tool_calls": [], "refusal": "x", "name": "n"}` + "\n"},
		"long integers":               {dump, `[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":18446744073709551615,\"b\":18446744073709551616,\"c\":-9223372036854775808,\"d\":-9223372036854775809}"}}]}]`, `{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 18446744073709551615, "b": 1.8446744073709552e+19, "c": -9223372036854775808, "d": -9.223372036854776e+18}}}]}` + "\n"},
		"nulls are absent":            {dump, `[{"role":"assistant","content":null,"name":null}]`, `{"role": "assistant"}` + "\n"},
		"text parts":                  {dump, `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`, `{"role": "user", "content": "a\nb"}` + "\n"},
		"no parts":                    {dump, `[{"role":"user","content":[]}]`, `{"role": "user", "content": []}` + "\n"},
		"an image":                    {dump, image, `{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}, {"type": "image"}]}` + "\n"},
		"video and audio":             {dump, `[{"role":"user","content":[{"type":"video_url","video_url":{"url":"x"}},{"type":"audio_url","audio_url":{"url":"x"}}]}]`, `{"role": "user", "content": [{"type": "video"}, {"type": "audio"}]}` + "\n"},
		"numbered images":             {phi, image, `<|user|>a<|image_1|>b<|image_2|><|end|><|assistant|>`},
		"tagged images":               {llava, image, `USER: a<image>b<image>`},
		"dropped images":              {passes, image, `ab`},
		"a text for parts":            {parts, `[{"role":"user","content":"a"}]`, `<{"type": "text", "text": "a"}>`},
		"parts for parts":             {parts, `[{"role":"user","content":[{"type":"text","text":"a"}]}]`, `<{"type": "text", "text": "a"}>`},
		"arguments as text":           {textArguments, call(`{\"a\":  1}`), `{"a":  1}`},
		"arguments as objects":        {refusesText, call(`{\"a\":  1}`), `{"a": 1}`},
		"arguments that are no JSON":  {dump, call(`{`), `{"role": "user", "content": "u"}` + "\n" + `{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}}]}` + "\n"},
		"function_call":               {dump, `[{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{\"a\":1}"}}]`, `{"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": {"a": 1}}}` + "\n"},
		"unread reasoning":            {passes, `[{"role":"assistant","content":"c","reasoning_content":"r"}]`, `<think>r</think>c`},
		"unread reasoning, segments":  {passes, `[{"role":"assistant","content":"c","reasoning_content":["r","","s"]}]`, `<think>r</think><think>s</think>c`},
		"unread reasoning alone":      {passes, `[{"role":"assistant","reasoning":"r"}]`, `<think>r</think>`},
		"reasoning of a user":         {passes, `[{"role":"user","content":"c","reasoning_content":"r"}]`, `c`},
		"reasoning for strings":       {readsString, `[{"role":"assistant","content":"c","reasoning_content":["r","s"]}]`, "(r\ns)c"},
		"reasoning for segments":      {readsSegments, `[{"role":"assistant","content":"c","reasoning_content":["r","s"]}]`, "(r)(s)c"},
		"reasoning by its other name": {readsString, `[{"role":"assistant","content":"c","reasoning":"r"}]`, "(r)c"},
		"system turns":                {strict, `[{"role":"system","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"},{"role":"system","content":"e"},{"role":"user","content":"f"}]`, "system:a\n\nb;user:c;assistant:d;user:e\n\nf;"},
		"system turns of parts":       {strict, `[{"role":"system","content":"a"},{"role":"user","content":"c"},{"role":"user","content":[{"type":"text","text":"d"}]}]`, "system:a;user:c\nd;"},
		"system turns nobody minds":   {passes, `[{"role":"user","content":"c"},{"role":"system","content":"e"},{"role":"user","content":"f"}]`, "cef"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := render(t, c.template, Options{}, messages(c.messages))
			if err != nil || got != c.want {
				t.Errorf("got %q, %v\nwant %q", got, err, c.want)
			}
		})
	}
}

// A template that adds the content to a text fails on calls without content; they get an empty one then, and only then.
func TestCallsWithoutContent(t *testing.T) {
	calls := messages(`[{"role":"user","content":"u"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]`)
	for template, want := range map[string]string{
		`{% for m in messages %}{{ m.role + ':' + m.content }};{% endfor %}`:                                    "user:u;assistant:;",
		`{% for m in messages %}{% if m.content is defined %}{{ m.content }}{% else %}-{% endif %}{% endfor %}`: "u-",
	} {
		if got, err := render(t, template, Options{}, calls); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", template, got, err, want)
		}
	}
}

func TestToolsGetWhatTemplatesReadUnasked(t *testing.T) {
	for tools, want := range map[string]string{
		`[{"type":"function","function":{"name":"f"}}]`:                                                          `[{"type": "function", "function": {"name": "f", "description": ""}}]`,
		`[{"function":{"description":null,"zz":1,"strict":false,"parameters":{},"name":"f"},"type":"function"}]`: `[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}, "strict": false, "description": ""}}]`,
		`[{"type":"function","function":{"name":"f","description":"d","parameters":{"properties":{"a":{}}}}}]`:   `[{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"properties": {"a": {}}, "type": "object"}}}]`,
	} {
		got, err := render(t, dump, Options{}, Request{Messages: []byte(`[]`), Tools: []byte(tools)})
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v\nwant %q", tools, got, err, want)
		}
	}
}

func TestContinuation(t *testing.T) {
	const keeps, trims, drops = `{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}`, `{% for m in messages %}[{{ m.role }}] {{ m.content|trim }}</s>{% endfor %}`, `{% for m in messages %}[{{ m.role }}]{% endfor %}{{ add_generation_prompt }}`
	for _, c := range []struct{ template, messages, want string }{
		{keeps, `[{"role":"user","content":"u"},{"role":"assistant","content":" Roses are red, "}]`, "[user]u</s>[assistant] Roses are red, "},
		{trims, `[{"role":"user","content":"u"},{"role":"assistant","content":" Roses are red, "}]`, "[user] u</s>[assistant] Roses are red,"},
		{keeps, `[{"role":"user","content":"red"},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"red"}]}]`, "[user]red</s>[assistant]a\nred"},
		{keeps, `[{"role":"user","content":"u"},{"role":"assistant","content":""}]`, "[user]u</s>[assistant]"},
	} {
		request := messages(c.messages)
		request.ContinueFinalMessage = true
		if got, err := render(t, c.template, Options{}, request); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.messages, got, err, c.want)
		}
	}
	for _, c := range []struct{ template, messages string }{
		{drops, `[{"role":"assistant","content":"x"}]`}, {keeps, `[]`}, {keeps, `[{"role":"assistant"}]`},
		{keeps, `[{"role":"assistant","content":[{"type":"image_url","image_url":{"url":"x"}}]}]`},
	} {
		request := messages(c.messages)
		request.ContinueFinalMessage = true
		_, err := render(t, c.template, Options{}, request)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Param != "continue_final_message" {
			t.Errorf("%s, %s: got %v, want a refusal of continue_final_message", c.template, c.messages, err)
		}
	}
}

func TestThinking(t *testing.T) {
	const show = `{{ thinking }}|{{ enable_thinking }}|{{ thinking_mode }}|{{ reasoning_effort }}`
	on, off := true, false
	for _, c := range []struct {
		arguments, thinking, effort string
		options                     Options
		constrained, named          bool
		want                        string
	}{
		{want: `|||`},
		{arguments: `{"enable_thinking":false}`, want: `False|False|disabled|`},
		{arguments: `{"thinking":true,"enable_thinking":false}`, want: `True|True|enabled|`},
		{arguments: `{"thinking_mode":"Disabled"}`, want: `False|False|disabled|`},
		{arguments: `{"thinking_mode":"chat"}`, want: `||chat|`},
		{arguments: `{"thinking_mode":"adaptive"}`, effort: "high", want: `||adaptive|high`},
		{arguments: `{"thinking":" YES "}`, want: `True|True||`},
		{arguments: `{"thinking":"enabled"}`, want: `False|False||`},
		{arguments: `{"thinking_mode":true}`, want: `True|True|True|`},
		{arguments: `{"thinking":null}`, want: `None|||`},
		{arguments: `{"reasoning_effort":5}`, want: `|||5`},
		{arguments: `{"enable_thinking":0}`, want: `False|False||`},
		{effort: "none", want: `False|False|disabled|none`},
		{effort: "low", want: `True|True|enabled|low`},
		{effort: "low", arguments: `{"reasoning_effort":"none"}`, want: `True|True|enabled|low`},
		{arguments: `{"reasoning_effort":"none"}`, want: `False|False|disabled|none`},
		{effort: "none", arguments: `{"enable_thinking":true}`, want: `True|True|enabled|none`},
		{thinking: "enabled", effort: "none", want: `True|True|enabled|none`},
		{thinking: "disabled", arguments: `{"thinking":true}`, want: `False|False|disabled|`},
		{thinking: "adaptive", arguments: `{"thinking":true,"enable_thinking":false}`, want: `||adaptive|`},
		{options: Options{DefaultThinking: &off}, want: `False|False|disabled|`},
		{options: Options{DefaultThinking: &off}, arguments: `{"enable_thinking":true}`, want: `True|True|enabled|`},
		{options: Options{DefaultThinking: &on}, effort: "none", want: `False|False|disabled|none`},
		{options: Options{Family: FamilyOf("", "kimi_k25")}, want: `True|True||`},
		{options: Options{Family: FamilyOf("kimi-k3", "")}, want: `True|True||`},
		{options: Options{Family: FamilyOf("kimi_k3", "")}, constrained: true, named: true, want: `False|False||`},
		{options: Options{Family: FamilyOf("", "minimax-m3")}, want: `|||`},
		{options: Options{Family: FamilyOf("minimax_m3_nom", "")}, constrained: true, want: `False|False|disabled|`},
		{options: Options{Family: FamilyOf("", "minimax_m3")}, constrained: true, arguments: `{"thinking_mode":"adaptive"}`, want: `||adaptive|`},
		{options: Options{Family: FamilyOf("", "minimax_m3")}, constrained: true, arguments: `{"thinking":"on"}`, want: `True|True|enabled|`},
	} {
		request := Request{Messages: []byte(`[]`), Arguments: []byte(c.arguments), Thinking: c.thinking, ReasoningEffort: c.effort, Constrained: c.constrained, NamedTool: c.named}
		if got, err := render(t, show, c.options, request); err != nil || got != c.want {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
	}
}

func TestArgumentsAreFurtherVariables(t *testing.T) {
	got, err := render(t, `{{ bos_token }}{{ eos_token }}{{ messages[0].content }}{{ add_generation_prompt }}{{ tools }}{{ documents[0].title }}{{ own }}`, Options{}, Request{
		Messages:  []byte(`[{"role":"user","content":"x"}]`),
		Arguments: []byte(`{"bos_token":"B","eos_token":"E","tools":[1],"messages":[{"content":"y"}],"add_generation_prompt":false,"documents":[{"title":"T"}],"own":[1e-7,18446744073709551616]}`)})
	if err != nil || got != "<s>NonexTrueNoneT[1e-7, 1.8446744073709552e19]" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, arguments := range []string{`[1]`, `"x"`, `{`} {
		var refusal *Refusal
		if _, err := render(t, `x`, Options{}, Request{Messages: []byte(`[]`), Arguments: []byte(arguments)}); !errors.As(err, &refusal) || refusal.Param != "chat_template_args" {
			t.Errorf("%s: got %v, want a refusal of chat_template_args", arguments, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, template, messages, tools, words string
		options                                Options
	}{
		{name: "raise_exception", template: `{{ raise_exception('no way') }}`, messages: `[]`, words: "no way"},
		{name: "an operation that fails", template: `{{ messages[0].content + 1 }}`, messages: `[{"role":"user","content":"x"}]`, words: "TypeError"},
		{name: "a limit", template: `{% for a in range(100000) %}x{% endfor %}`, messages: `[]`, words: "OutputBytes", options: Options{Limits: chattemplate.Limits{OutputBytes: 10}}},
		{name: "a partial turn", template: dump, messages: `[{"role":"assistant","content":"x","partial":true}]`, words: "continue_final_message"},
		{name: "tools in a message", template: dump, messages: `[{"role":"system","content":"x","tools":[{}]}]`, words: "tools"},
		{name: "arguments that are no object", template: dump, messages: `[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}]`, words: "JSON", options: Options{ParseArguments: true}},
		{name: "bad messages", template: dump, messages: `[`, words: "JSON"},
		{name: "bad tools", template: dump, messages: `[]`, tools: `{`, words: "JSON"},
	} {
		_, err := render(t, c.template, c.options, Request{Messages: []byte(c.messages), Tools: []byte(c.tools)})
		var refusal *Refusal
		if !errors.As(err, &refusal) || !strings.Contains(refusal.Message, c.words) {
			t.Errorf("%s: got %v, want a refusal with %q", c.name, err, c.words)
		}
	}
}

func TestOnlyObjectsAsArguments(t *testing.T) {
	for arguments, want := range map[string]string{``: `{}`, `[1]`: `{}`, `{\"a\":1}`: `{"a": 1}`} {
		request := messages(`[{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"` + arguments + `"}}]}]`)
		got, err := render(t, `{% for m in messages %}{{ m.tool_calls[0].function.arguments|tojson }}{% endfor %}`, Options{ParseArguments: true}, request)
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", arguments, got, err, want)
		}
	}
}

func TestTemplatesComeFromTheFirstFileThatHasOne(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := write("one.json", `{"chat_template":"config {{ eos_token }}{{ bos_token is none }}","eos_token":{"content":"</s>"},"bos_token":null}`)
	named := write("named.json", `{"chat_template":[{"name":"default","template":"plain"},{"name":"tool_use","template":"tools"}]}`)
	pairs := write("pairs.json", `{"chat_template":[{"default":"plain"},{"tool_use":"tools"}]}`)
	onlyTools := write("only.json", `{"chat_template":[{"name":"tool_use","template":"tools"}]}`)
	file, custom := write("chat_template.jinja", "file {{ eos_token }}"), write("own.jinja", "own")
	asJSON := write("chat_template.json", `{"chat_template":"json"}`)
	tools := []byte(`[{"type":"function","function":{"name":"f"}}]`)
	for _, c := range []struct {
		name, want, wantTools string // "" is a refusal
		files                 Files
	}{
		{"a string", "config </s>True", "config </s>True", Files{TokenizerConfig: one}},
		{"a list of names", "plain", "tools", Files{TokenizerConfig: named}},
		{"a list of pairs", "plain", "tools", Files{TokenizerConfig: pairs}},
		{"a list that lacks one", "", "tools", Files{TokenizerConfig: onlyTools}},
		{"a file", "file </s>", "file </s>", Files{Template: file, TokenizerConfig: one}},
		{"a JSON file", "json", "json", Files{Template: asJSON, TokenizerConfig: named}},
		{"the operator's", "own", "own", Files{Custom: custom, Template: file, TokenizerConfig: one}},
	} {
		f, err := Load(c.files, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for want, request := range map[*string]Request{&c.want: messages(`[]`), &c.wantTools: {Messages: []byte(`[]`), Tools: tools}} {
			got, err := f.Render(request)
			var refusal *Refusal
			if got != *want || *want == "" && !errors.As(err, &refusal) || *want != "" && err != nil {
				t.Errorf("%s, %s: got %q, %v; want %q", c.name, f.TemplateFor(request), got, err, *want)
			}
		}
	}
	if _, err := Load(Files{TokenizerConfig: write("none.json", `{}`)}, Options{}); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("a model without a template: %v", err)
	}
	for name, text := range map[string]string{"a number": `{"chat_template":1}`, "bad JSON": `{`, "a template that does not compile": `{"chat_template":"{% if %}"}`} {
		if _, err := Load(Files{TokenizerConfig: write("bad.json", text)}, Options{}); err == nil || errors.Is(err, ErrNoTemplate) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKnownTemplatesAreAdapted(t *testing.T) {
	stock := "<minimax:tool_call>" + miniMaxM2Opening + "\n"
	for arguments, want := range map[string]string{
		``:                             "<think>\n",
		`{"thinking":true}`:            "<think>\n",
		`{"thinking":false}`:           "<think>\n</think>\n",
		`{"enable_thinking":false}`:    "<think>\n</think>\n",
		`{"thinking_mode":"chat"}`:     "<think>\n</think>\n",
		`{"thinking_mode":"adaptive"}`: "<think>\n",
	} {
		got, err := render(t, stock, Options{}, Request{Messages: []byte(`[]`), Arguments: []byte(arguments)})
		if err != nil || got != "<minimax:tool_call>]~b]ai\n"+want {
			t.Errorf("%s: got %q, %v", arguments, got, err)
		}
	}
	if changed := stock + "x"; adapt(changed) != changed {
		t.Error("a template that somebody changed was adapted")
	}
}

// A hostile template is probed a dozen times when its model is loaded: each probe is stopped early.
func TestProbesAreBounded(t *testing.T) {
	steps := 0
	counted := filters["fromjson"]
	filters["fromjson"] = func(v chattemplate.Value, args []chattemplate.Value) (chattemplate.Value, error) {
		steps++
		return counted(v, args)
	}
	defer func() { filters["fromjson"] = counted }()
	if _, err := New(`{% for a in range(100000) %}{% for b in range(100000) %}{% set x = a|fromjson %}{% endfor %}{% endfor %}`, nil, Options{}); err != nil {
		t.Fatal(err)
	}
	if limit := 40 * int(probeLimits.Steps); steps == 0 || steps > limit {
		t.Errorf("loading the template took %d steps, at most %d are meant", steps, limit)
	}
}

// FuzzRender: whatever a body holds, a prompt or a refusal comes of it.
func FuzzRender(f *testing.F) {
	f.Add([]byte(`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}]`), []byte(`[{"function":{"parameters":{}}}]`), []byte(`{"thinking":1}`), true)
	f.Add([]byte(`[{"role":"assistant","content":null,"tool_calls":[{"function":{"arguments":"{}"}}],"reasoning_content":["a"]}]`), []byte(``), []byte(``), false)
	f.Add([]byte(`{"a":[]}`), []byte(`1`), []byte(`null`), false)
	formatter, err := New(`{% for m in messages %}{{ m.role }}{{ m.content }}{{ m.tool_calls }}{{ m.reasoning_content }}{% endfor %}{{ tools|tojson }}`, nil,
		Options{Limits: chattemplate.Limits{Steps: 100_000, OutputBytes: 1 << 18, AllocatedBytes: 1 << 20}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, messages, tools, arguments []byte, goOn bool) {
		_, err := formatter.Render(Request{Messages: messages, Tools: tools, Arguments: arguments, ContinueFinalMessage: goOn})
		var refusal *Refusal
		if err != nil && (!errors.As(err, &refusal) || refusal.Message == "" || refusal.Param == "") {
			t.Fatalf("%T: %v", err, err)
		}
	})
}

// What the live frontend, 1.6.1, makes of numbers and of JSON in texts.
func TestNumbersAndTextsOfJSON(t *testing.T) {
	f, err := New(`{% set c = messages[0].content %}{{ (c if c is string else c[0].text)|fromjson|tojson }}`, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{
		{`{"a": [1, 2.0, null, "é"], "b": {"z": 1}}`, `{"a": [1, 2.0, null, "é"], "b": {"z": 1}}`}, {` 5 `, `5`}, {`"s"`, `"s"`}, {`{"a":1,"b":2,"a":3}`, `{"a": 3, "b": 2}`},
		{`18446744073709551615`, `18446744073709551615`}, {`18446744073709551616`, `1.8446744073709552e+19`}, {`-9223372036854775808`, `-9223372036854775808`},
		{`-9223372036854775809`, `-9.223372036854776e+18`}, {`-0`, `-0.0`}, {`1e400`, ``}, {`not json`, ``}, {``, ``}, {`{} x`, ``},
	} {
		got, err := f.Render(Request{Messages: []byte(`[{"role":"user","content":` + strconv.Quote(c.text) + `}]`)})
		if (err != nil) != (c.want == "") || got != c.want {
			t.Errorf("%s becomes %q, %v; want %q", c.text, got, err, c.want)
		}
	}
}
