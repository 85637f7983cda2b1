package toolcall_test

import (
	"fmt"

	"signalbox/postprocess/toolcall"
)

func Example() {
	parser, err := toolcall.New("hermes", toolcall.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	show := func(piece toolcall.Piece) {
		if piece.Content != "" {
			fmt.Printf("text %q\n", piece.Content)
		}
		for _, call := range piece.Calls {
			fmt.Printf("call %d: %s(%s)\n", call.Index, call.Name, call.Arguments)
		}
	}
	for _, text := range []string{"Let me look.", " <tool", "_call>\n{\"name\": \"weather\", \"argu", "ments\": {\"city\": \"Oslo\"}}\n</tool_call>"} {
		parser.Feed(text, show)
	}
	fmt.Println("called:", parser.Finish(show).Called)
	// Output:
	// text "Let me look."
	// text " "
	// call 0: weather({"city": "Oslo"})
	// called: true
}

func ExampleNewForced() {
	parser := toolcall.NewForced("weather", "", false, toolcall.Options{})
	show := func(piece toolcall.Piece) {
		for _, call := range piece.Calls {
			fmt.Printf("%s%s\n", call.Name, call.Arguments)
		}
	}
	for _, text := range []string{`{"city"`, `: "Oslo"}`} {
		parser.Feed(text, show)
	}
	parser.Finish(show)
	// Output:
	// weather{"city"
	// : "Oslo"}
}
