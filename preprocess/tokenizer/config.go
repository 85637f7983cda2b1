package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// ConfigTokens returns the special tokens that a tokenizer_config.json declares in its added_tokens_decoder, for [Load]: some models
// have them nowhere else.
func ConfigTokens(text []byte) ([]AddedToken, error) {
	list, err := declaredTokens(text)
	return slices.DeleteFunc(list, func(token AddedToken) bool { return !token.Special }), err
}

// declaredTokens returns all tokens of added_tokens_decoder.
func declaredTokens(text []byte) ([]AddedToken, error) {
	var config struct {
		Tokens map[string]AddedToken `json:"added_tokens_decoder"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("tokenizer config: %w", err)
	}
	var list []AddedToken
	for name, token := range config.Tokens {
		id, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("tokenizer config: added_tokens_decoder has the key %q, which is no token id", name)
		}
		token.ID = uint32(id)
		list = append(list, token)
	}
	slices.SortFunc(list, func(a, b AddedToken) int { return int(a.ID) - int(b.ID) })
	return list, nil
}
