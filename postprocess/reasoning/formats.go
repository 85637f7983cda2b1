package reasoning

// format is one entry of the registry.
type format struct {
	make func(Options) machine
	// special formats have markers that are special tokens of their models.
	special bool
	// opener is the marker at a prompt's end; "" for <think>.
	opener string
	// bracket is the first marker where it begins like a JSON array.
	bracket string
}

// thinks makes an entry of a format with two markers. second, when not nil, is its second generation.
func thinks(first, second *thinkFormat) format {
	return format{make: func(o Options) machine {
		f := first
		if o.SecondGeneration && second != nil {
			f = second
		}
		if o.Off {
			if f.offDrops {
				return &off{word: f.start}
			}
			return passed{}
		}
		return f.machine(o)
	}}
}

func (f format) with(special bool, opener string) format {
	f.special, f.opener = special, opener
	return f
}

func (f format) brackets(word string) format {
	f.bracket = word
	return f
}

// channels makes an entry of a format that has its own reader.
func channels(make func(Options) machine, special bool) format {
	return format{special: special, make: func(o Options) machine {
		if o.Off {
			return passed{}
		}
		return make(o)
	}}
}

const (
	thinkStart, thinkEnd = "<think>", "</think>"
	k3Start, k3End       = "<|open|>think<|sep|>", "<|close|>think<|sep|>"
)

var (
	plain  = thinkFormat{start: thinkStart, end: thinkEnd}.prepare()
	forced = thinkFormat{start: thinkStart, end: thinkEnd, forced: true}.prepare()
	// closedByTool are second generations: a tool call ends reasoning that was not closed.
	closedByTool = thinkFormat{start: thinkStart, end: thinkEnd, tools: []string{"<tool_call>"}}.prepare()

	deepseekV4  = thinkFormat{start: thinkStart, end: thinkEnd, tools: []string{"<｜DSML｜tool_calls>", "<｜DSML｜invoke name="}}.prepare()
	deepseekV41 = thinkFormat{start: thinkStart, end: thinkEnd, tools: []string{"<｜DSML｜ calls>", "<｜DSML｜ invoke name="}}.prepare()

	nemotronV3 = thinkFormat{start: thinkStart, end: thinkEnd, forced: true, repeat: true, offDrops: true, tools: []string{"<tool_call>"},
		parameter: "<parameter=", parameterEnd: []string{"</parameter>", "</function>", "</tool_call>"}}.prepare()

	kimi    = thinkFormat{start: "◁think▷", end: "◁/think▷"}.prepare()
	kimiK25 = thinkFormat{start: thinkStart, end: thinkEnd, forced: true, tools: []string{"<|tool_calls_section_begin|>"}}.prepare()
	// kimiK252 is the second generation, which is not forced.
	kimiK252 = thinkFormat{start: thinkStart, end: thinkEnd, tools: []string{"<|tool_calls_section_begin|>"}}.prepare()
	kimiK3   = thinkFormat{start: k3Start, end: k3End, dangling: true, final: true, tools: []string{"<|open|>", "<|close|>", "<|end_of_msg|>"}}.prepare()
	kimiK32  = thinkFormat{start: k3Start, end: k3End, tools: []string{"<|open|>", "<|close|>", "<|end_of_msg|>"}}.prepare()

	minimaxM2 = thinkFormat{start: thinkStart, end: thinkEnd, forced: true, tools: []string{"<minimax:tool_call>", "<invoke name="}}.prepare()
	minimaxM3 = thinkFormat{start: "<mm:think>", end: "</mm:think>", dangling: true, implicit: true, tools: []string{"]<]minimax[>["}}.prepare()
	mistral   = thinkFormat{start: "[THINK]", end: "[/THINK]", forced: true}.prepare()
	gemma4    = thinkFormat{start: "<|channel>", end: "<channel|>", label: "thought\n"}.prepare()
)

// formats are all names of formats.
var formats = map[string]format{
	"basic":       thinks(plain, nil),
	"qwen3":       thinks(plain, closedByTool),
	"qwen3_coder": thinks(plain, closedByTool),
	"glm45":       thinks(plain, closedByTool),
	"glm47":       thinks(plain, closedByTool),

	"deepseek_r1":   thinks(forced, nil),
	"deepseek_v3":   thinks(forced, nil),
	"deepseek_v3_1": thinks(forced, nil),
	"deepseek_v3_2": thinks(forced, nil),
	"deepseek_v4":   thinks(deepseekV4, nil),
	"deepseek-v4":   thinks(deepseekV4, nil),
	"deepseekv4":    thinks(deepseekV4, nil),
	"deepseek_v41":  thinks(deepseekV41, nil),
	"step3":         thinks(forced, nil),

	"nemotron_deci": thinks(plain, nil),
	"nemotron_nano": thinks(forced, nil),
	"nemotron3":     thinks(nemotronV3, nil),
	"nemotron_v3":   thinks(nemotronV3, nil),

	"kimi":     thinks(kimi, nil),
	"kimi_k2":  thinks(plain, nil),
	"kimi_k25": thinks(kimiK25, kimiK252).with(true, ""),
	"kimi_k3":  thinks(kimiK3, kimiK32).with(true, k3Start),
	"kimi-k3":  thinks(kimiK3, kimiK32).with(true, k3Start),

	"minimax_m2": thinks(minimaxM2, nil),
	"minimax_m3": thinks(minimaxM3, nil).with(true, "<mm:think>"),
	"minimax-m3": thinks(minimaxM3, nil).with(true, "<mm:think>"),
	"minimax_append_think": {make: func(o Options) machine {
		return &appended{}
	}},

	"mistral": thinks(mistral, nil).with(true, "").brackets("[THINK]"),
	"gemma4":  thinks(gemma4, nil).with(true, ""),
	"gemma-4": thinks(gemma4, nil).with(true, ""),
	"granite": channels(func(Options) machine { return &granite{} }, false),

	"gpt_oss":      channels(func(Options) machine { return &harmony{} }, true),
	"inkling":      channels(func(Options) machine { return &inkling{} }, true),
	"muse":         channels(newMuse, true),
	"muse_glimmer": channels(newMuse, true),
}
