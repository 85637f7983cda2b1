package tokenizer

// asciiRules are what the patterns differ in that windows of ASCII are cut by. Each is a mask for what it allows: all bits, or none.
type asciiRules struct {
	kept     uint64 // white space before digits is a piece as a whole
	capitals uint64 // a word begins at a capital behind a small letter, too
	slashes  uint64 // slashes belong to signs and to the line ends behind these
	threes   uint64 // numbers have up to three digits, not one
	quotes   uint64 // there are contractions
	unled    uint64 // and they need no letter before them
	open     uint64 // the last byte, if it may be in a contraction that belongs to the word before it
}

func (r *asciiRules) knowsWide() bool { return false }

const always = ^uint64(0)

// threes is the rule of that name for numbers of so many digits, one or three.
func threes(digits int) uint64 {
	if digits == 3 {
		return always
	}
	return 0
}
