package tokenizer

import "slices"

// What is longest among pieces is of few symbols: white space, rules of dashes, the second lines of tables. Merging is quick where it goes by
// runs of equal symbols instead of symbols: what the pair of lowest rank is merged to is half as many in one step.

// symbolRun is how often a symbol comes in a row. own is what two of it become, and cross what the last one and the next run's first do.
type symbolRun struct {
	symbol     uint32
	count      int
	own, cross merged
}

// merged is what a pair of symbols becomes. Its rank is none if it is not merged.
type merged struct{ rank, id uint32 }

// Merging by runs is for so many of them at most, and with that many symbols to a run; but to begin with there may be more.
const (
	mostRuns   = 64
	runSymbols = 4
	firstRuns  = 16
)

func (m *merges) pair(left, right uint32) merged {
	rank, id := m.rank(left, right)
	return merged{rank, id}
}

// applyRuns is apply by runs. It returns false, and has changed nothing, if there are many, or if a merge makes a pair that comes before it, as
// only merges do that are not in the order in which they were learnt.
func (m *merges) applyRuns(symbols []uint32, s *mergeScratch) ([]uint32, bool) {
	s.runs = s.runs[:0]
	for i, symbol := range symbols {
		if last := len(s.runs) - 1; last >= 0 && s.runs[last].symbol == symbol {
			s.runs[last].count++
			continue
		}
		if s.runs = append(s.runs, symbolRun{symbol: symbol, count: 1}); len(s.runs) > min(firstRuns+i/runSymbols, mostRuns) {
			return symbols, false
		}
	}
	s.lookUpRuns(m, 0, len(s.runs))
	for {
		at, best, cross := 0, merged{rank: none}, false
		for i := range s.runs {
			r := &s.runs[i]
			if r.own.rank < best.rank {
				at, best, cross = i, r.own, false
			}
			if r.cross.rank < best.rank {
				at, best, cross = i, r.cross, true
			}
		}
		if best.rank == none {
			break
		}
		if !s.mergeRun(m, at, best, cross) {
			return symbols, false
		}
	}
	symbols = symbols[:0]
	for _, r := range s.runs {
		for range r.count {
			symbols = append(symbols, r.symbol)
		}
	}
	return symbols, true
}

// mergeRun merges all of a run by twos, from the left, or its last symbol and the next run's first. It returns false if a pair that this makes,
// be it for a moment, is not of a higher rank.
func (s *mergeScratch) mergeRun(m *merges, at int, into merged, cross bool) bool {
	r := s.runs[at]
	later := func(left, right uint32) bool { return m.pair(left, right).rank > into.rank }
	var parts [3]symbolRun
	n, end := 0, at+1
	add := func(symbol uint32, count int) {
		if count > 0 {
			parts[n] = symbolRun{symbol: symbol, count: count}
			n++
		}
	}
	if cross {
		add(r.symbol, r.count-1)
		add(into.id, 1)
		add(s.runs[end].symbol, s.runs[end].count-1)
		end++
	} else {
		if r.count > 2 && !later(into.id, r.symbol) || r.count > 3 && !later(into.id, into.id) {
			return false
		}
		add(into.id, r.count/2)
		add(r.symbol, r.count%2)
	}
	for i := range n - 1 {
		if !later(parts[i].symbol, parts[i+1].symbol) {
			return false
		}
	}
	if at > 0 {
		if before := s.runs[at-1]; parts[0].symbol == into.id && !later(before.symbol, into.id) {
			return false
		} else if before.symbol == parts[0].symbol {
			parts[0].count += before.count
			at--
		}
	}
	if end < len(s.runs) {
		if after, last := s.runs[end], &parts[n-1]; last.symbol == into.id && !later(into.id, after.symbol) {
			return false
		} else if after.symbol == last.symbol {
			last.count += after.count
			end++
		}
	}
	s.runs = slices.Replace(s.runs, at, end, parts[:n]...)
	s.lookUpRuns(m, max(at-1, 0), min(at+n, len(s.runs)))
	return true
}

// lookUpRuns finds out what the symbols of some runs become with themselves and with the next ones.
func (s *mergeScratch) lookUpRuns(m *merges, from, to int) {
	for i := from; i < to; i++ {
		r := &s.runs[i]
		r.own, r.cross = merged{rank: none}, merged{rank: none}
		if r.count > 1 {
			r.own = m.pair(r.symbol, r.symbol)
		}
		if i+1 < len(s.runs) {
			r.cross = m.pair(r.symbol, s.runs[i+1].symbol)
		}
	}
}
