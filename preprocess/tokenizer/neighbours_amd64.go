package tokenizer

import "unsafe"

// nearTable is what is known of neighbours in a form to look up many of them at once.
type nearTable struct {
	// cut has, by the left character, a bit for each right one that it is cut from. All beyond ASCII are one.
	cut [wideCharacter + 1][8]uint32
	// Characters of which runs are pieces, and up to which length. They are no bytes of a text if there are less than two.
	first, second               byte
	firstLongest, secondLongest int
	letterSpace                 uint64 // whether letters are cut from spaces behind them, all of them: all bits, or none
	spaceLetter                 uint64 // whether none of them is cut from a space before it
}

// newNearTable makes the table; nil if it does not fit.
func newNearTable(n *neighbours, known *kindPairs) *nearTable {
	if len(n.runs) > 2 {
		return nil
	}
	const noByte = 0xFF // of UTF-8
	t := &nearTable{first: noByte, second: noByte, letterSpace: known.all[letterKind][spaceKind], spaceLetter: known.none[spaceKind][letterKind]}
	for left := range t.cut {
		for right := range t.cut {
			if n.next[left][right] == 0 {
				t.cut[left][right/32] |= 1 << (right % 32)
			}
		}
	}
	if len(n.runs) > 0 {
		t.first, t.firstLongest = n.runs[0].c, n.runs[0].longest
	}
	if len(n.runs) > 1 {
		t.second, t.secondLongest = n.runs[1].c, n.runs[1].longest
	}
	return t
}

// cut is for [quickCutter].
func (n *neighbours) cut(text string, i int, ends []int32) (next, count int) {
	if n.table == nil || !hasWindowCuts() || i+windowSize > len(text) || cap(ends)-len(ends) < windowSize {
		return i, 0
	}
	next, count = cutNear(n.table, unsafe.StringData(text), i, len(text)-windowSize, &ends[0], len(ends))
	return next, min(count, len(ends))
}

// cutNear does what [neighbours.window] does, and [windowed] with it, for windows from the place from up to last, until it has written n ends or more.
// There has to be room for windowSize more. It ends early where there is what it does not know: a mark for a space, maybe, a long run, and windows with too
// many pairs, or without a place.
//
//go:noescape
func cutNear(near *nearTable, text *byte, from, last int, ends *int32, n int) (next, written int)
