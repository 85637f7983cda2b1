package tokenizer

// A scanner cuts text into the pieces that a known split pattern cuts it into. It begins at from, writes the ends of the next pieces
// to ends and returns how many it wrote: less than len(ends) only when the text is at its end. Written by hand since Go's regular
// expressions have no look-ahead, and since a general engine needs a hundred times as long. Text is valid UTF-8.
type scanner func(text string, from int, ends []int32) int

// cl100k scans the family of patterns
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// in which inWord are the letters: \p{L} or [\p{L}\p{M}].
func cl100k(digits int, inWord class) scanner {
	table := characters()
	return func(text string, i int, ends []int32) int {
		for at := range ends {
			if i >= len(text) {
				return at
			}
			end := 0
			switch shapeAt(text, i) {
			case shapeWord:
				end = letterRun(text, i+1)
			case shapePrefixWord, shapeSpaceWord, shapeSignWord:
				end = letterRun(text, i+2)
			case shapeDigits:
				if end = i + 1; digits > 1 {
					end = table.upTo(text, end, number, digits-1)
				}
				i = end
				ends[at] = int32(i)
				continue
			case shapeSpaceDigit, shapeOne:
				i++
				ends[at] = int32(i)
				continue
			case shapeSigns:
				if end = signRun(text, i+1); end > 0 {
					i = lineEnds(text, end)
					ends[at] = int32(i)
					continue
				}
			case shapeSpaceSigns:
				if end = signRun(text, i+2); end > 0 {
					i = lineEnds(text, end)
					ends[at] = int32(i)
					continue
				}
			}
			if end > 0 {
				if end < len(text) && text[end] >= 0x80 {
					end = table.run(text, end, inWord)
				}
				i = end
				ends[at] = int32(i)
				continue
			}
			kind, size := table.at(text, i)
			next, nextSize := table.at(text, i+size)
			switch {
			case text[i] == '\'' && contraction(text, i, true) > 0:
				i += contraction(text, i, true)
			case kind&inWord != 0:
				i = table.run(text, i+size, inWord)
			case kind&(newline|letter|number) == 0 && next&inWord != 0:
				i = table.run(text, i+size+nextSize, inWord)
			case kind&number != 0:
				i = table.upTo(text, i+size, number, digits-1)
			case kind&space == 0:
				i = table.run(text, table.runNot(text, i+size, space|inWord|number), newline)
			case text[i] == ' ' && nextSize > 0 && next&(space|inWord|number) == 0:
				i = table.run(text, table.runNot(text, i+size+nextSize, space|inWord|number), newline)
			default:
				i = table.whiteSpace(text, i, true, 0)
			}
			ends[at] = int32(i)
		}
		return len(ends)
	}
}

// deepseek scans three patterns, each applied to the pieces of the one before, matches and what is between them:
//
//	\p{N}{1,3}
//	[一-龥぀-ゟ゠-ヿ]+
//	[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// So the text that the third pattern sees ends at a digit, and where characters of the second pattern begin or end. What no pattern
// matches is a piece, too.
func deepseek() scanner {
	table := characters()
	return func(text string, i int, ends []int32) int {
		for at := range ends {
			if i >= len(text) {
				return at
			}
			end := 0
			switch shapeAt(text, i) {
			case shapeWord:
				end = letterRun(text, i+1)
			case shapePrefixWord, shapeSpaceWord:
				end = letterRun(text, i+2)
			case shapeSignWord: // control characters count as signs here, and are another thing in the pattern
				if text[i] > ' ' && text[i] < 0x7F {
					i = letterRun(text, i+2)
					ends[at] = int32(i)
					continue
				}
			}
			if end > 0 {
				if end < len(text) && text[end] >= 0x80 {
					end = table.runOutside(text, end, letter|mark, cjk)
				}
				i = end
				ends[at] = int32(i)
				continue
			}
			kind, size := table.at(text, i)
			switch {
			case kind&number != 0:
				i = table.upTo(text, i+size, number, 2)
			case kind&cjk != 0:
				i = table.deepseekPiece(text[:table.run(text, i+size, cjk)], i, 0)
			default:
				i = table.deepseekPiece(text, i, number|cjk)
			}
			ends[at] = int32(i)
		}
		return len(ends)
	}
}

// deepseekPiece returns the end of the piece at i under the third pattern. Characters of the classes in stop end the text.
func (t *classTable) deepseekPiece(text string, i int, stop class) int {
	for start := i; ; {
		kind, size := t.at(text, i)
		if size == 0 || kind&stop != 0 {
			return i
		}
		next, nextSize := t.at(text, i+size)
		end := 0
		switch {
		case kind&sign != 0 && text[i] < 0x80 && nextSize == 1 && next&letter != 0:
			end = asciiLetters(text, i+1)
		case kind&(letter|mark) != 0:
			end = t.runOutside(text, i+size, letter|mark, stop)
		case kind&(newline|sign) == 0 && next&(letter|mark) != 0 && next&stop == 0:
			end = t.runOutside(text, i+size+nextSize, letter|mark, stop)
		case kind&sign != 0:
			end = t.run(text, t.runOutside(text, i+size, sign, stop), newline)
		case text[i] == ' ' && next&sign != 0 && next&stop == 0:
			end = t.run(text, t.runOutside(text, i+1+nextSize, sign, stop), newline)
		case kind&space != 0:
			end = t.whiteSpace(text, i, true, stop)
		}
		switch {
		case end == 0:
			i += size // matched by nothing
		case i > start:
			return i
		default:
			return end
		}
	}
}

func asciiLetters(text string, i int) int {
	for i < len(text) && text[i] < 0x80 && asciiClass[text[i]]&letter != 0 {
		i++
	}
	return i
}

// runOutside is run for characters that are of none of the classes in stop.
func (t *classTable) runOutside(text string, i int, kind, stop class) int {
	for {
		c, size := t.at(text, i)
		if c&kind == 0 || c&stop != 0 {
			return i
		}
		i += size
	}
}

// gpt2 scans 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2() scanner {
	table := characters()
	return func(text string, i int, ends []int32) int {
		for at := range ends {
			if i >= len(text) {
				return at
			}
			end := 0
			switch shapeAt(text, i) {
			case shapeWord:
				end = letterRun(text, i+1)
			case shapeSpaceWord:
				end = letterRun(text, i+2)
			}
			if end > 0 {
				if end < len(text) && text[end] >= 0x80 {
					end = table.run(text, end, letter)
				}
				i = end
				ends[at] = int32(i)
				continue
			}
			kind, size := table.at(text, i)
			if text[i] == ' ' {
				if next, nextSize := table.at(text, i+1); nextSize > 0 && next&space == 0 {
					kind, size = next, 1+nextSize
				}
			}
			switch {
			case text[i] == '\'' && contraction(text, i, false) > 0:
				i += contraction(text, i, false)
			case kind&letter != 0:
				i = table.run(text, i+size, letter)
			case kind&number != 0:
				i = table.run(text, i+size, number)
			case kind&space == 0:
				i = table.runNot(text, i+size, space|letter|number)
			default:
				i = table.whiteSpace(text, i, false, 0)
			}
			ends[at] = int32(i)
		}
		return len(ends)
	}
}

// o200k scans the family of patterns
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+CONTRACTION?|
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*CONTRACTION?|
//	\p{N}{1,DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// with or without CONTRACTION, which is (?i:'s|'t|'re|'ve|'m|'ll|'d).
func o200k(digits int, contractions bool) scanner {
	table := characters()
	return func(text string, i int, ends []int32) int {
		for at := range ends {
			if i >= len(text) {
				return at
			}
			end := 0
			switch shapeAt(text, i) {
			case shapeWord:
				end = plainCasedWord(text, i)
			case shapePrefixWord, shapeSpaceWord, shapeSignWord:
				end = plainCasedWord(text, i+1)
			case shapeDigits:
				if end = i + 1; digits > 1 {
					end = table.upTo(text, end, number, digits-1)
				}
			case shapeSpaceDigit, shapeOne:
				end = i + 1
			case shapeSigns:
				if end = signRun(text, i+1); end > 0 {
					end = lineEndsAndSlashes(text, end)
				}
			case shapeSpaceSigns:
				if end = signRun(text, i+2); end > 0 {
					end = lineEndsAndSlashes(text, end)
				}
			}
			if end > 0 {
				i = end
				ends[at] = int32(i)
				continue
			}
			kind, size := table.at(text, i)
			if end := table.casedWord(text, i, kind, size); end > 0 {
				i = end
				if contractions && i < len(text) && text[i] == '\'' {
					i += contraction(text, i, true)
				}
				ends[at] = int32(i)
				continue
			}
			switch {
			case kind&number != 0:
				i = table.upTo(text, i+size, number, digits-1)
			case kind&space == 0:
				i = lineEndsAndSlashes(text, table.runNot(text, i+size, space|letter|number))
			default:
				if next, nextSize := table.at(text, i+size); text[i] == ' ' && nextSize > 0 && next&(space|letter|number) == 0 {
					i = lineEndsAndSlashes(text, table.runNot(text, i+size+nextSize, space|letter|number))
				} else {
					i = table.whiteSpace(text, i, true, 0)
				}
			}
			ends[at] = int32(i)
		}
		return len(ends)
	}
}

// casedWord returns the end of the word at i under the first two alternatives of [o200k], 0 if there is none. A regular expression
// would come to it by backtracking: capitals, then small letters; where no small letter follows, characters that are both make the
// second part; where there are none of those, capitals alone are a word.
func (t *classTable) casedWord(text string, i int, kind class, size int) int {
	start := i
	if kind&(newline|letter|number) == 0 { // one character before the word
		start = i + size
		if kind&mark != 0 {
			if end := t.cased(text, start, true); end > 0 {
				return end
			}
			return start // the mark is a word itself
		}
		return t.cased(text, start, false)
	}
	if kind&letter == 0 {
		return 0
	}
	return t.cased(text, start, false)
}

// cased matches [upper]*[lower]+ at i, else [upper]+ unless onlyFirst; 0 if neither matches.
func (t *classTable) cased(text string, i int, onlyFirst bool) int {
	start, both := i, 0
	for {
		c, size := t.at(text, i)
		if size == 0 || c&(upper|lower) == 0 {
			break
		}
		if c&upper == 0 {
			return t.run(text, i+size, lower)
		}
		i += size
		if c&lower != 0 {
			both = i
		}
	}
	if both > 0 {
		return both
	}
	if i > start && !onlyFirst {
		return i
	}
	return 0
}

func lineEndsAndSlashes(text string, i int) int {
	for i < len(text) && (text[i] == '\n' || text[i] == '\r' || text[i] == '/') {
		i++
	}
	return i
}

// run returns the end of the run of characters of kind that begins at i.
func (t *classTable) run(text string, i int, kind class) int {
	for i < len(text) {
		c := text[i]
		if c < 0x80 {
			if asciiClass[c]&kind == 0 {
				return i
			}
			i++
			continue
		}
		found, size := t.wide(text, i)
		if found&kind == 0 {
			return i
		}
		i += size
	}
	return i
}

// runNot returns the end of the run of characters that are not of kind.
func (t *classTable) runNot(text string, i int, kind class) int {
	for i < len(text) {
		c, size := t.at(text, i)
		if c&kind != 0 {
			return i
		}
		i += size
	}
	return i
}

// upTo is run for at most limit characters.
func (t *classTable) upTo(text string, i int, kind class, limit int) int {
	for ; limit > 0; limit-- {
		c, size := t.at(text, i)
		if c&kind == 0 {
			return i
		}
		i += size
	}
	return i
}

// whiteSpace returns the end of the white space at i under \s*[\r\n]+|\s+(?!\S)|\s+ where lines is set, else under \s+(?!\S)|\s+.
// A character of the classes in stop ends the text that the pattern sees.
func (t *classTable) whiteSpace(text string, i int, lines bool, stop class) int {
	start, last, line := i, i, 0
	for {
		c, size := t.at(text, i)
		if c&space == 0 {
			if size == 0 || c&stop != 0 {
				last = i
			}
			break
		}
		last = i
		i += size
		if c&newline != 0 {
			line = i
		}
	}
	switch {
	case lines && line > 0:
		return line
	case last == start:
		return i
	}
	return last
}

// contraction returns the length of 's 't 're 've 'm 'll 'd at i, where text has an apostrophe; 0 for none. Folding takes capitals
// and the long s (ſ).
func contraction(text string, i int, fold bool) int {
	if i+1 >= len(text) {
		return 0
	}
	b, c := text[i+1], byte(0)
	if i+2 < len(text) {
		c = text[i+2]
	}
	if fold {
		if b == 0xC5 && c == 0xBF {
			return 3
		}
		b, c = lowered(b), lowered(c)
	}
	switch {
	case b == 's' || b == 't' || b == 'm' || b == 'd':
		return 2
	case b == 'r' && c == 'e' || b == 'v' && c == 'e' || b == 'l' && c == 'l':
		return 3
	}
	return 0
}

func lowered(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}
