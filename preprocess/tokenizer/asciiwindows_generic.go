//go:build !amd64

package tokenizer

// cut is for [quickCutter].
func (r *asciiRules) cut(text string, i int, ends []int32) (next, n int) { return i, 0 }
