package prompt

import "testing"

func TestArgumentsForEngines(t *testing.T) {
	for given, want := range map[string]string{
		"":   "",
		`{}`: "",
		`{"enable_thinking":false,"a":[1,2.5,null,"x"],"b":{"c":12345678901234567890}}`: `{"enable_thinking":false,"a":[1,2.5,null,"x"],"b":{"c":12345678901234567890},"thinking":false,"thinking_mode":"disabled"}`,
	} {
		if got := string(Options{}.ArgumentsJSON(Request{Arguments: []byte(given)})); got != want {
			t.Errorf("%s\n got %s\nwant %s", given, got, want)
		}
	}
}
