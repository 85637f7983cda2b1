package toolcall

// format is one entry of the registry.
type format struct {
	// first and second make the two generations' machines; second is nil where there is none.
	first, second func() machine
	// style and style2 are the shapes of ids.
	style, style2 idStyle
	// paired formats leave the text alone unless a reasoning parser reads it first, or in version 2.
	paired bool
	// special formats have markers that are special tokens of their models.
	special bool
	// always formats are read even without tools.
	always bool
}

func (f format) ids(version Version) idStyle {
	if version == Version2 && f.second != nil {
		return f.style2
	}
	return f.style
}

func (f format) make(options Options) machine {
	switch {
	case f.paired && !options.Paired && options.Version != Version2:
		return verbatim{}
	case options.Version == Version2 && f.second != nil:
		return f.second()
	}
	return f.first()
}

// verbatim leaves the text alone.
type verbatim struct{}

func (verbatim) feed(text string, out *sink) { out.text(text) }
func (verbatim) finish(*sink) bool           { return false }

// formats are all names of formats.
var formats = map[string]format{
	"hermes":        {first: hermes.machine},
	"qwen25":        {first: qwen25.machine},
	"nemotron_deci": {first: nemotron.machine},
	"default":       {first: defaultFormat.machine},
	"jamba":         {first: jamba.machine},
	"mistral":       {first: mistral.machine},
	"phi4":          {first: phi4.machine},
	"llama3_json":   {first: llama3.machine},

	"pythonic": {first: func() machine { return &pythonic{} }, style: idCounted},
	"harmony":  {first: func() machine { return &harmony{} }, special: true},

	"deepseek_v3":   {first: deepseekV3.machine},
	"deepseek_v3_1": {first: deepseekV31.machine},
	"deepseek_v3_2": {first: dsmlV32.machine, style: idHex24},
	"deepseek_v4":   {first: dsmlV4.machine, second: dsmlV42.machine, style: idHex24},
	"deepseek-v4":   {first: dsmlV4.machine, second: dsmlV42.machine, style: idHex24},
	"deepseekv4":    {first: dsmlV4.machine, second: dsmlV42.machine, style: idHex24},
	"deepseek_v41":  {first: dsmlV41.machine, paired: true},

	"qwen3_coder":   {first: qwen3Coder.machine, second: qwen3Coder2.machine},
	"nemotron_nano": {first: qwen3Coder.machine},
	"qwen3":         {first: qwen3Coder2.machine, paired: true},

	"minimax_m2":     {first: minimaxM2.machine},
	"minimax_m3":     {first: minimaxM3.machine, special: true},
	"minimax-m3":     {first: minimaxM3.machine, special: true},
	"minimax_m3_nom": {first: minimaxM3.machine, special: true},
	"minimax-m3-nom": {first: minimaxM3.machine, special: true},

	"glm47": {first: glm47.machine, second: glm47.machine, style: idUUID},
	"glm45": {first: glm47.machine, paired: true},

	"kimi_k2":  {first: kimiK2.machine, second: kimiK2.machine, special: true},
	"kimi_k25": {first: kimiK2.machine, paired: true, special: true},
	"kimi_k3":  {first: kimiK3.machine, second: kimiK32.machine, special: true, always: true},
	"kimi-k3":  {first: kimiK3.machine, second: kimiK32.machine, special: true, always: true},

	"gemma4":  {first: gemma4.machine, second: gemma4.machine, special: true},
	"gemma-4": {first: gemma4.machine, second: gemma4.machine, special: true},
	"inkling": {first: inkling.machine, special: true},

	"muse":         {first: newMuse, special: true},
	"muse_glimmer": {first: newMuse, special: true},
}
