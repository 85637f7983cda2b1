package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// ModelFiles are the files of a model that say how it reads text. All but Tokenizer may be empty.
type ModelFiles struct {
	// Tokenizer is tokenizer.json or a tiktoken file.
	Tokenizer string
	// TokenizerConfig is tokenizer_config.json: its special tokens are special here, too.
	TokenizerConfig string
	// Config is config.json. It has to tell what kind of model it is where the tokenizer is a tiktoken file.
	Config string
}

// LoadModel reads a model's tokenizer from its files.
func LoadModel(files ModelFiles) (*Tokenizer, error) {
	text, err := os.ReadFile(files.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	isJSON := bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{"))
	var more []AddedToken
	if files.TokenizerConfig != "" {
		config, err := os.ReadFile(files.TokenizerConfig)
		switch {
		case err != nil:
		case isJSON:
			more, err = ConfigTokens(config)
		default: // which has no added tokens of its own
			more, err = declaredTokens(config)
			for i, token := range more { // which are found as they are spelled, whatever else is said of them
				more[i] = AddedToken{ID: token.ID, Content: token.Content, Special: token.Special}
			}
		}
		if err != nil {
			return nil, fmt.Errorf("tokenizer %s: %w", files.TokenizerConfig, err)
		}
	}
	var t *Tokenizer
	if isJSON {
		t, err = Parse(text, more...)
	} else {
		t, err = parseRanks(text, more, files.Config)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", files.Tokenizer, err)
	}
	return t, nil
}

// kimiModels are the kinds of models whose tiktoken files have Kimi's split pattern and reserved tokens.
var kimiModels = []string{"kimi", "kimi_k2", "kimi_k25", "kimi_k3", "kimi_linear", "deepseek_v3"}

// kimiReserved is how many special tokens Kimi's vocabularies have behind the ranks, whatever config.json says of their size.
const kimiReserved = 256

// parseRanks reads a tiktoken file, knowing the kind of model.
func parseRanks(text []byte, special []AddedToken, configPath string) (*Tokenizer, error) {
	var config struct {
		ModelType string `json:"model_type"`
	}
	if configPath == "" {
		return nil, fmt.Errorf("a tiktoken file needs the model's config.json, which names the kind of model")
	}
	raw, err := os.ReadFile(configPath)
	if err == nil {
		err = json.Unmarshal(raw, &config)
	}
	if err != nil {
		return nil, fmt.Errorf("config of a model with a tiktoken file: %w", err)
	}
	if !slices.Contains(kimiModels, config.ModelType) {
		return nil, fmt.Errorf("model_type %q with a tiktoken file is not supported; known are %q", config.ModelType, kimiModels)
	}
	return ParseTiktoken(text, Tiktoken{Pattern: KimiPattern, Special: special, Reserved: kimiReserved})
}
