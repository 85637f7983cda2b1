package model

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"signalbox/model/card"
)

// EOSTokenIDs reads the ids that end a generation from a model's files: generation_config.json, else config.json, else the
// tokenizer's end token; and that end token too when it is another one. lookup finds a token's id by its text.
func EOSTokenIDs(files *card.Files, lookup func(token string) (uint32, bool)) ([]uint32, error) {
	var ids []uint32
	for _, path := range []string{files.GenerationConfig, files.Config} {
		found, err := eosOf(path)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			ids = found
			break
		}
	}
	token := eosToken(files.PromptFormatter)
	if token == "" && len(ids) == 0 {
		token = eosToken(specialTokensMap(files))
	}
	if token != "" {
		if id, ok := lookup(token); ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("no end-of-sequence token: neither generation_config.json, config.json, tokenizer_config.json nor special_tokens_map.json names one (eos_token_id, eos_token)")
	}
	return ids, nil
}

// specialTokensMap is the path of special_tokens_map.json, where models without generation_config.json name their end token:
// among the card's files, else beside the tokenizer; "" where there is none.
func specialTokensMap(files *card.Files) string {
	const name = "special_tokens_map.json"
	if path := files.Extra[name]; path != "" {
		return path
	}
	path := filepath.Join(filepath.Dir(files.Tokenizer), name)
	if _, err := os.Stat(path); files.Tokenizer == "" || err != nil {
		return ""
	}
	return path
}

// tokenIDs reads a number or a list of numbers.
type tokenIDs []uint32

// UnmarshalJSON implements json.Unmarshaler.
func (t *tokenIDs) UnmarshalJSON(text []byte) error {
	var one uint32
	if json.Unmarshal(text, &one) == nil {
		*t = tokenIDs{one}
		if string(text) == "null" {
			*t = nil
		}
		return nil
	}
	return json.Unmarshal(text, (*[]uint32)(t))
}

func eosOf(path string) ([]uint32, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("end-of-sequence ids: %w", err)
	}
	var config struct {
		EOS  tokenIDs `json:"eos_token_id"`
		Text struct {
			EOS tokenIDs `json:"eos_token_id"`
		} `json:"text_config"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("end-of-sequence ids in %s: %w", path, err)
	}
	if len(config.EOS) > 0 {
		return config.EOS, nil
	}
	return config.Text.EOS, nil
}

// eosToken reads eos_token of tokenizer_config.json: a string, or an object with content.
func eosToken(path string) string {
	if path == "" {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	var config struct {
		EOS json.RawMessage `json:"eos_token"`
	}
	if json.Unmarshal(text, &config) != nil {
		return ""
	}
	var token string
	if json.Unmarshal(config.EOS, &token) == nil {
		return token
	}
	var object struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(config.EOS, &object) != nil {
		return ""
	}
	return object.Content
}
