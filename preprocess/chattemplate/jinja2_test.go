package chattemplate

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// What jinja2 3.1.6, in the environment that transformers sets up, makes of some fourteen hundred expressions and short templates.
// testdata/jinja2.jsonl begins with the variables; each further line is a source with its text, or the word that it fails.
// They were drawn at random from all operators, methods, filters and tests, so most are not what anybody would write. Left out
// are outputs with addresses, and what differs by choice: pprint and wordwrap keep no white space, encode and maketrans are
// refused.
func TestExpressionsAsJinja2(t *testing.T) {
	file, err := os.Open(filepath.Join("testdata", "jinja2.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	var variables Value
	cases := 0
	for lines.Scan() {
		var c struct {
			Variables json.RawMessage
			Source    string
			Text      string
			Fails     bool
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if c.Variables != nil {
			if variables, err = ParseJSON(c.Variables); err != nil {
				t.Fatal(err)
			}
			continue
		}
		cases++
		template, err := Compile(c.Source, Options{})
		var got string
		if err == nil {
			got, err = template.Render(variables)
		}
		if (err != nil) != c.Fails || got != c.Text {
			t.Errorf("%s\n got %q, %v\nwant %q, fails %v", c.Source, got, err, c.Text, c.Fails)
		}
	}
	if err := lines.Err(); err != nil || cases == 0 {
		t.Fatalf("%d cases, %v", cases, err)
	}
}
