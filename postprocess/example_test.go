package postprocess_test

import (
	"fmt"

	"signalbox/postprocess"
	"signalbox/postprocess/toolcall"
)

func Example() {
	stage := postprocess.New(postprocess.Parsers{Tool: "hermes", Reasoning: "qwen3"}, postprocess.Request{Tools: []toolcall.Tool{{Name: "weather"}}})
	show := func(piece postprocess.Piece) {
		fmt.Printf("%q %q", piece.Reasoning, piece.Content)
		for _, call := range piece.Calls {
			fmt.Printf(" %s%s", call.Name, call.Arguments)
		}
		fmt.Println()
	}
	for _, text := range []string{"<think>Ask.</think>", "One moment.", `<tool_call>{"name": "weather", "arguments": {}}</tool_call>`} {
		stage.Feed(text, show)
	}
	fmt.Println(stage.Finish(show) == postprocess.ToolCalls)
	// Output:
	// "Ask." ""
	// "" "One moment."
	// "" "" weather{}
	// true
}
