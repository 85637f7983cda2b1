package prompt

import (
	"encoding/json"

	"signalbox/preprocess/chattemplate"
)

// ArgumentsJSON is the JSON object of a request's template arguments after its wishes about thinking are made to agree, as engines
// that read reasoning themselves take it; nil when there are none or they cannot be read, which rendering refuses.
func (o Options) ArgumentsJSON(request Request) []byte {
	f := &Formatter{options: o}
	a, err := f.arguments(request)
	if err != nil || len(a.entries) == 0 {
		return nil
	}
	text, err := appendEntries(nil, a.entries)
	if err != nil {
		return nil
	}
	return text
}

func appendEntries(dst []byte, entries []chattemplate.Entry) ([]byte, error) {
	dst = append(dst, '{')
	for i, entry := range entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		name, err := json.Marshal(entry.Key.Str())
		if err != nil {
			return nil, err
		}
		if dst, err = appendValue(append(append(dst, name...), ':'), entry.Value); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendValue(dst []byte, v chattemplate.Value) ([]byte, error) {
	var plain any
	switch v.Kind() {
	case chattemplate.KindDict:
		return appendEntries(dst, v.Entries())
	case chattemplate.KindList:
		dst = append(dst, '[')
		for i, item := range v.Items() {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = appendValue(dst, item); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case chattemplate.KindBool:
		plain = v.IsTrue()
	case chattemplate.KindString:
		plain = v.Str()
	case chattemplate.KindInt:
		if n, ok := v.Int64(); ok {
			plain = n
		} else if big, ok := v.BigInt(); ok {
			plain = big
		}
	case chattemplate.KindFloat:
		plain, _ = v.Float64()
	}
	text, err := json.Marshal(plain)
	return append(dst, text...), err
}
