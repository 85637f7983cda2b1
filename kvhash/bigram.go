package kvhash

// AppendBigrams appends the plain tokens that a list of adjacent-token pairs stands for: the first of every pair and the second
// of the last. Engines that speculate with EAGLE report their tokens that way, and hash them in Eagle mode.
func AppendBigrams(tokens []uint32, pairs [][2]uint32) []uint32 {
	for _, pair := range pairs {
		tokens = append(tokens, pair[0])
	}
	if len(pairs) > 0 {
		tokens = append(tokens, pairs[len(pairs)-1][1])
	}
	return tokens
}
