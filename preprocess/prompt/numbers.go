package prompt

import (
	"math/big"

	"signalbox/preprocess/chattemplate"
)

// parseJSON reads what templates are given. Integers that fit into 64 bits, with or without a sign, stay integers; longer ones
// become floating point numbers, as they do on their way through the fleet's other frontends.
func parseJSON(text []byte) (chattemplate.Value, error) { return parseJSONText(string(text)) }

func parseJSONText(text string) (chattemplate.Value, error) {
	value, err := chattemplate.ParseJSONString(text)
	if err != nil || !hasLongInteger(text) {
		return value, err
	}
	return limited(value), nil
}

// hasLongInteger tells whether there are as many digits in a row as an integer of more than 64 bits has.
func hasLongInteger(text string) bool {
	const digits = 19
	run := 0
	for i := 0; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			run = 0
		} else if run++; run == digits {
			return true
		}
	}
	return false
}

func limited(value chattemplate.Value) chattemplate.Value {
	switch value.Kind() {
	case chattemplate.KindInt:
		long, ok := value.BigInt()
		if !ok || long.IsUint64() {
			return value
		}
		f, _ := new(big.Float).SetInt(long).Float64()
		return chattemplate.Float(f)
	case chattemplate.KindList:
		return eachOf(value, limited)
	case chattemplate.KindDict:
		entries := value.Entries()
		out := chattemplate.NewDict(len(entries))
		for _, entry := range entries {
			out.Set(entry.Key.Str(), limited(entry.Value))
		}
		return out.Value()
	}
	return value
}
