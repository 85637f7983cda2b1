//go:build !amd64

package tokenizer

// findFast is findGeneric for as many of n pieces as there is a faster way for. It returns how many these are.
func (r *recentWords) findFast(s string, n int) (found int, misses, splits uint64) { return 0, 0, 0 }

// findWhole writes the ids of those of the first n short pieces that are one token and makes them recent words. It returns how many others
// there are, which are in r.kinds[0] then.
func (w *wholeWords) findWhole(r *recentWords, n uint64) uint64 { return w.findWholeGeneric(r, n) }
