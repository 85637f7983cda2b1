package settings

// longestCompared bounds the work of a comparison: no declared name is longer, and an argument can be anything.
const longestCompared = 80

// nearest returns the candidate with the fewest single-letter edits to the wanted word, or "" if all of them need
// more than limit edits. Of equally near candidates the first wins.
func nearest(wanted string, candidates []string, limit int) string {
	if len(wanted) > longestCompared {
		return ""
	}
	best, bestDistance := "", limit+1
	for _, candidate := range candidates {
		if d := editDistance(wanted, candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// editDistance counts the insertions, removals, replacements and swaps of neighbours that turn a into b.
func editDistance(a, b string) int {
	// Three rows of the usual matrix are enough: a swap looks two rows back.
	beforeLast := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	current := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(last[j]+1, current[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], beforeLast[j-2]+1)
			}
		}
		beforeLast, last, current = last, current, beforeLast
	}
	return last[len(b)]
}
