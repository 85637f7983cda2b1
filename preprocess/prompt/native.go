package prompt

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"signalbox/preprocess/chattemplate"
	"signalbox/preprocess/piece"
	"signalbox/preprocess/prompt/deepseek"
	"signalbox/preprocess/prompt/inkling"
	"signalbox/preprocess/prompt/kimi"
)

// conversation is what encoders are given.
type conversation struct {
	deepseek.Conversation
	toolChoice, namedTool string
	generate              bool
}

// encoder writes the prompts of a model that has an encoder of its own in place of a template.
type encoder func(conversation) (piece.Prompt, error)

func deepSeek(encode func(deepseek.Conversation) (string, error)) encoder {
	return func(c conversation) (piece.Prompt, error) {
		if c.toolChoice == "none" {
			c.Tools = nil
		}
		text, err := encode(c.Conversation)
		return piece.Prompt{Text: text}, err
	}
}

func kimiK3(c conversation) (piece.Prompt, error) {
	return kimi.K3(kimi.Conversation{Messages: c.Messages, Tools: c.Tools, ToolChoice: c.toolChoice, NamedTool: c.namedTool, ResponseFormat: c.ResponseFormat,
		Generate: c.generate, Argument: c.Argument})
}

func inklingPieces(c conversation) (piece.Prompt, error) {
	if c.toolChoice == "none" {
		c.Tools = nil
	}
	return inkling.Encode(inkling.Conversation{Messages: c.Messages, Tools: c.Tools, Effort: c.Argument(effortKey), Generate: c.generate})
}

// inklingType is the model_type of Inkling.
const inklingType = "inkling_mm_model"

// nativeEncoder returns the encoder of a model, nil where templates do. modelType is config.json's, which decides where it is
// there; else the model's name does.
func nativeEncoder(modelType, name string) encoder {
	modelType, name = strings.ToLower(modelType), strings.ToLower(name)
	switch modelType {
	case "kimi_k3":
		return kimiK3
	case "deepseek_v41":
		return deepSeek(deepseek.V41)
	case "deepseek_v4":
		return deepSeek(deepseek.V4)
	case "deepseek_v32", "deepseek_v3_2":
		if strings.Contains(name, "exp") {
			return nil // the experimental release has a template
		}
		return deepSeek(deepseek.V32)
	case "":
	default:
		return nil
	}
	rest, isDeepSeek := strings.CutPrefix(name, "deepseek")
	if isDeepSeek {
		rest = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(rest, "-"), "_"), ".")
	}
	switch {
	case isKimiK3(modelType, name):
		return kimiK3
	case isDeepSeek && isVersion(rest, "v4.1"):
		return deepSeek(deepseek.V41)
	case isDeepSeek && isVersion(rest, "v4"):
		return deepSeek(deepseek.V4)
	case strings.Contains(name, "deepseek") && strings.Contains(name, "v3.2") && !strings.Contains(name, "exp"):
		return deepSeek(deepseek.V32)
	}
	return nil
}

// isKimiK3 tells by the type or, where there is none, by the name.
func isKimiK3(modelType, name string) bool {
	if modelType != "" {
		return strings.EqualFold(modelType, "kimi_k3")
	}
	name = strings.ToLower(name)
	return strings.Contains(name, "kimi-k3") || strings.Contains(name, "kimi_k3") || strings.Contains(name, "kimik3")
}

// isVersion tells whether a name goes on with a version and then ends or separates.
func isVersion(name, version string) bool {
	rest, ok := strings.CutPrefix(name, version)
	return ok && (rest == "" || strings.ContainsRune("-_.", rune(rest[0])))
}

// modelType reads model_type of config.json; "" where there is none.
func modelType(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("model type: %w", err)
	}
	var config struct {
		Type string `json:"model_type"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return "", fmt.Errorf("model type: %s: %w", path, err)
	}
	return config.Type, nil
}

// encode writes a prompt without a template. Kimi K3 is told of tools also where it must not call them.
func (f *Formatter) encode(request Request, messages, tools chattemplate.Value) (p piece.Prompt, err error) {
	c := conversation{generate: !request.NoGenerationPrompt && !request.ContinueFinalMessage, toolChoice: request.ToolChoice}
	if request.NamedTool {
		c.toolChoice, c.namedTool = "", request.ToolChoice
	}
	if request.NoTools {
		c.toolChoice = "none"
	}
	for _, message := range messages.Items() {
		checked := message
		for _, name := range f.alsoKnown {
			checked = without(checked, name)
		}
		if err := checkMessage(checked); err != nil {
			return p, err
		}
		known := knownMembers(message)
		for _, name := range f.alsoKnown {
			if value, ok := message.Get(name); ok && value.Kind() != chattemplate.KindNone {
				known = with(known, name, value)
			}
		}
		c.Messages = append(c.Messages, known)
	}
	if tools.Kind() == chattemplate.KindList {
		c.Tools = append([]chattemplate.Value{}, normaliseTools(tools).Items()...)
	}
	if len(request.ResponseFormat) > 0 {
		format, err := parseJSON(request.ResponseFormat)
		if err != nil {
			return p, &Refusal{Param: "response_format", Message: "response_format: " + err.Error(), Cause: err}
		}
		if format.Kind() == chattemplate.KindDict {
			c.ResponseFormat = knownFormat(format)
		}
	}
	a, err := f.arguments(request)
	if err != nil {
		return p, err
	}
	c.Argument = a.get
	if p, err = f.native(c); err != nil {
		return p, &Refusal{Param: "messages", Message: "The conversation cannot be written for this model: " + err.Error(), Cause: err}
	}
	return p, nil
}

// knownFormat returns a response format with the members that the API knows.
func knownFormat(format chattemplate.Value) chattemplate.Value {
	format = pick(format, []string{"type", "json_schema"})
	if schema, ok := format.Get("json_schema"); ok {
		format = replace(format, "json_schema", schema, pick(schema, []string{"description", "name", "schema", "strict"}))
	}
	return format
}
