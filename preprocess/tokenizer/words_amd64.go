package tokenizer

import "unsafe"

// findFast is findGeneric for those of n pieces of which 16 bytes can be read. It returns how many these are.
func (r *recentWords) findFast(s string, n int) (found int, misses, splits uint64) {
	for n > 0 && int(r.bounds[n-1])+16 > len(s) {
		n--
	}
	misses, splits = findAMD64(r, unsafe.StringData(s), n)
	return n, misses, splits
}

// findWhole writes the ids of those of the first n short pieces that are one token and makes them recent words. It returns how many others
// there are, which are in r.kinds[0] then.
func (w *wholeWords) findWhole(r *recentWords, n uint64) uint64 {
	if hasAVX2 {
		return findWholeAVX2(r, &w.lines[0], uint64(w.shift), n)
	}
	return w.findWholeGeneric(r, n)
}

//go:noescape
func findAMD64(r *recentWords, text *byte, n int) (misses, splits uint64)

//go:noescape
func findWholeAVX2(r *recentWords, lines *wholeLine, shift, n uint64) (others uint64)
