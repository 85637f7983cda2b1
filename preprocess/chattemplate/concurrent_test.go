package chattemplate

import (
	"sync"
	"testing"
)

// A compiled template and its input are shared by all requests of a model: renders at the same time must not see each other.
func TestRendersAtTheSameTime(t *testing.T) {
	variables, err := ParseJSONString(someInput)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range snippets {
		template, err := Compile(source, Options{Now: fixedClock})
		if err != nil {
			continue
		}
		want, wantErr := template.Render(variables)
		var running sync.WaitGroup
		for range 8 {
			running.Go(func() {
				for range 20 {
					got, err := template.Render(variables)
					if got != want || (err == nil) != (wantErr == nil) {
						t.Errorf("%s: got %q, %v; alone it gives %q, %v", source, got, err, want, wantErr)
						return
					}
				}
			})
		}
		running.Wait()
	}
}
