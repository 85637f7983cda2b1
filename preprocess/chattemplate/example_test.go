package chattemplate_test

import (
	"errors"
	"fmt"
	"time"

	"signalbox/preprocess/chattemplate"
)

// A template is compiled once, and then rendered with variables that come straight from a request's JSON.
func Example() {
	template, err := chattemplate.Compile(`{{ bos_token }}
{%- for message in messages %}
    {{- '<|' + message.role + '|>' + message.content|trim + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}`, chattemplate.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, err := chattemplate.ParseJSONString(`[{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi! "}]`)
	if err != nil {
		fmt.Println(err)
		return
	}
	variables := chattemplate.NewDict(3)
	variables.Set("bos_token", chattemplate.String("<s>"))
	variables.Set("messages", messages)
	variables.Set("add_generation_prompt", chattemplate.True)
	text, err := template.Render(variables.Value())
	fmt.Println(text, err)
	// Output: <s><|system|>Be brief.<|end|><|user|>Hi!<|end|><|assistant|> <nil>
}

// What a template says against its input is an error of its own type, so that whoever made the request can be told.
func ExampleTemplate_Render_refused() {
	template, _ := chattemplate.Compile(`{% if messages[0].role != 'user' %}{{ raise_exception('The first message must be from the user.') }}{% endif %}`,
		chattemplate.Options{})
	messages, _ := chattemplate.ParseJSONString(`[{"role": "assistant", "content": "Hello"}]`)
	variables := chattemplate.NewDict(1)
	variables.Set("messages", messages)
	_, err := template.Render(variables.Value())
	var raised *chattemplate.RaisedError
	fmt.Println(errors.As(err, &raised), raised.Message)
	// Output: true The first message must be from the user.
}

// Templates are foreign code: limits bound what a render may cost.
func ExampleLimits() {
	template, _ := chattemplate.Compile(`{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}`,
		chattemplate.Options{Limits: chattemplate.Limits{Steps: 1_000_000}})
	_, err := template.Render(chattemplate.NewDict(0).Value())
	fmt.Println(err)
	// Output: chat template, line 1: stopped: limit Steps=1000000 exceeded
}

// Values keep the order of their keys and the spelling that Python would give their numbers.
func ExampleParseJSON() {
	template, _ := chattemplate.Compile(`{{ v|tojson }} {{ v }}`, chattemplate.Options{})
	value, _ := chattemplate.ParseJSON([]byte(`{"z": 1e-6, "a": [true, null, 12345678901234567890]}`))
	variables := chattemplate.NewDict(1)
	variables.Set("v", value)
	text, _ := template.Render(variables.Value())
	fmt.Println(text)
	// Output: {"z": 1e-06, "a": [true, null, 12345678901234567890]} {'z': 1e-06, 'a': [True, None, 12345678901234567890]}
}

// The clock of strftime_now, and filters of one's own.
func ExampleOptions() {
	template, _ := chattemplate.Compile(`{{ strftime_now('%d %b %Y') }}: {{ 'abc'|backwards }}`, chattemplate.Options{
		Now: func() time.Time { return time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC) },
		Filters: map[string]func(chattemplate.Value, []chattemplate.Value) (chattemplate.Value, error){
			"backwards": func(v chattemplate.Value, _ []chattemplate.Value) (chattemplate.Value, error) {
				text := []rune(v.Str())
				for i, j := 0, len(text)-1; i < j; i, j = i+1, j-1 {
					text[i], text[j] = text[j], text[i]
				}
				return chattemplate.String(string(text)), nil
			},
		},
	})
	text, _ := template.Render(chattemplate.NewDict(0).Value())
	fmt.Println(text)
	// Output: 30 Nov 2026: cba
}

// The dialects differ in how a list or dict is printed, and in what is forgiven.
func ExampleDialect() {
	value, _ := chattemplate.ParseJSONString(`{"a": [null, "x"]}`)
	variables := chattemplate.NewDict(1)
	variables.Set("v", value)
	for _, dialect := range []chattemplate.Dialect{chattemplate.Python, chattemplate.MiniJinja} {
		template, _ := chattemplate.Compile(`{{ v }}{% for x in none %}{% endfor %}`, chattemplate.Options{Dialect: dialect})
		fmt.Println(template.Render(variables.Value()))
	}
	// Output:
	//  chat template, line 1: TypeError: 'NoneType' object is not iterable
	// {"a": [None, "x"]} <nil>
}
