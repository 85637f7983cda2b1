package reasoning_test

import (
	"fmt"

	"signalbox/postprocess/reasoning"
)

func Example() {
	parser, err := reasoning.New("qwen3", reasoning.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	show := func(piece reasoning.Piece) {
		fmt.Printf("reasoning %q content %q\n", piece.Reasoning, piece.Content)
	}
	for _, text := range []string{"<th", "ink>Two and two</thi", "nk>Four"} {
		parser.Feed(text, show)
	}
	parser.Finish(show)
	// Output:
	// reasoning "Two and two" content ""
	// reasoning "" content "Four"
}
