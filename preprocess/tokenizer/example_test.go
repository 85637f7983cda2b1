package tokenizer_test

import (
	"fmt"

	"signalbox/preprocess/tokenizer"
)

// file is a tokenizer.json with a tiny vocabulary.
const file = `{
	"added_tokens": [{"id": 8, "content": "<|end|>", "special": true}],
	"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
	"decoder": {"type": "ByteLevel"},
	"model": {"type": "BPE",
		"vocab": {"h": 0, "i": 1, "Ġ": 2, "hi": 3, "Ġhi": 4, "Ã": 5, "©": 6, "!": 7},
		"merges": ["h i", "Ġ hi"]}}`

func Example() {
	t, err := tokenizer.Parse([]byte(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	ids := t.Encode(nil, "hi hi!<|end|>", false)
	fmt.Println(ids)
	fmt.Printf("%q\n", t.Decode(ids, true))
	// Output:
	// [3 4 7 8]
	// "hi hi!"
}

// A decoder gives text as soon as it is certain: the two bytes of é are two tokens here.
func ExampleTokenizer_NewDecoder() {
	t, err := tokenizer.Parse([]byte(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	decoder := t.NewDecoder(nil, true)
	for _, id := range []uint32{3, 5, 6, 7} {
		fmt.Printf("%q ", decoder.Step(id))
	}
	fmt.Printf("%q\n", decoder.Flush())
	// Output: "hi" "" "é" "!" ""
}
