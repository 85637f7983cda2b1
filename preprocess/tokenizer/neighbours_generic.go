//go:build !amd64

package tokenizer

// nearTable is not needed here.
type nearTable struct{}

func newNearTable(*neighbours, *kindPairs) *nearTable { return nil }

// cut is for [quickCutter].
func (n *neighbours) cut(text string, i int, ends []int32) (next, count int) { return i, 0 }
