package prompt

import "strings"

// miniMaxM2Opening is how MiniMax-M2's templates end: they open a think block whatever the request says about thinking.
const miniMaxM2Opening = `{%- if add_generation_prompt -%}
{{- ']~b]ai' ~ '\n' ~ '<think>' ~ '\n' }}
{%- endif -%}`

// miniMaxM2Closing closes that block where the request switches thinking off.
const miniMaxM2Closing = `{%- if thinking is boolean and not thinking
	or thinking is not boolean and enable_thinking is boolean and not enable_thinking
	or thinking is not boolean and enable_thinking is not boolean and thinking_mode == 'chat' -%}
{{- '</think>\n' }}
{%- endif -%}
`

// adapt changes the source of known templates that leave out what a request may ask of them. Any other source, and a known
// one that somebody has changed, stays as it is.
func adapt(source string) string {
	trimmed := strings.TrimRight(source, " \t\r\n")
	if !strings.Contains(source, "<minimax:tool_call>") || !strings.HasSuffix(trimmed, miniMaxM2Opening) {
		return source
	}
	at := len(trimmed) - len(`{%- endif -%}`)
	return source[:at] + miniMaxM2Closing + source[at:]
}
