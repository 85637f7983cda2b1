package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// pattern finds matches in text.
type pattern interface {
	// find returns all matches, in order, not overlapping.
	find(s string) []match
}

type match struct{ start, end int }

// literal matches a string.
type literal string

func (l literal) find(s string) (found []match) {
	if l == "" {
		return nil
	}
	for at := 0; ; {
		i := strings.Index(s[at:], string(l))
		if i < 0 {
			return found
		}
		found = append(found, match{at + i, at + i + len(l)})
		at += i + len(l)
	}
}

// scanned matches what a scanner cuts, so that no gaps are left.
type scanned scanner

func (scan scanned) find(s string) (found []match) {
	var room [64 + windowSize]int32
	ends := room[:64]
	for at := 0; at < len(s); {
		for _, end := range ends[:scan(s, at, ends)] {
			found = append(found, match{at, int(end)})
			at = int(end)
		}
	}
	return found
}

// expression is a regular expression of which no scanner is known.
type expression struct{ re *regexp2.Regexp }

// compileExpression compiles an expression. Of classes that are the common part of two it takes those with the second one negated,
// [a&&[^b]], which the engine writes as a difference.
func compileExpression(source string) (pattern, error) {
	re, err := regexp2.Compile(strings.ReplaceAll(source, "&&[^", "-["), regexp2.Unicode)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", source, err)
	}
	return expression{re}, nil
}

func (e expression) find(s string) (found []match) {
	runes := []rune(s)
	at, byteAt := 0, 0 // the same place in runes and bytes
	advance := func(to int) int {
		for ; at < to; at++ {
			byteAt += utf8.RuneLen(runes[at])
		}
		return byteAt
	}
	m, err := e.re.FindRunesMatch(runes)
	for m != nil && err == nil {
		if m.Length > 0 {
			start := advance(m.Index)
			found = append(found, match{start, advance(m.Index + m.Length)})
		}
		m, err = e.re.FindNextMatch(m)
	}
	return found
}

// characterSet matches single characters.
type characterSet func(rune) bool

func (in characterSet) find(s string) (found []match) {
	for i, r := range s {
		if in(r) {
			found = append(found, match{i, i + utf8.RuneLen(r)})
		}
	}
	return found
}

// runs matches runs of characters of which the function tells the same kind; kind 0 is no match.
type runs func(rune) int

func (kind runs) find(s string) (found []match) {
	last := 0
	for i, r := range s {
		k := kind(r)
		switch {
		case k != 0 && k == last:
			found[len(found)-1].end += utf8.RuneLen(r)
		case k != 0:
			found = append(found, match{i, i + utf8.RuneLen(r)})
		}
		last = k
	}
	return found
}

// behavior says what becomes of the matches of a split pattern.
type behavior string

const (
	removed      behavior = "Removed"
	isolated     behavior = "Isolated"
	contiguous   behavior = "Contiguous"
	withPrevious behavior = "MergedWithPrevious"
	withNext     behavior = "MergedWithNext"
)

// splitter cuts a stretch into pieces; it appends them to dst.
type splitter func(dst []text, in text) []text

// splitBy cuts at the matches of a pattern, or, inverted, at what is between them.
func splitBy(p pattern, what behavior, invert bool) splitter {
	return func(dst []text, in text) []text {
		type part struct {
			match
			hit bool
		}
		var parts []part
		at := 0
		for _, m := range p.find(in.s) {
			if m.start > at {
				parts = append(parts, part{match{at, m.start}, invert})
			}
			parts = append(parts, part{m, !invert})
			at = m.end
		}
		if at < len(in.s) {
			parts = append(parts, part{match{at, len(in.s)}, invert})
		}
		joined := parts[:0]
		switch what {
		case isolated:
			joined = parts
		case removed:
			for _, p := range parts {
				if !p.hit {
					joined = append(joined, p)
				}
			}
		case contiguous:
			for _, p := range parts {
				if n := len(joined); n > 0 && joined[n-1].hit == p.hit {
					joined[n-1].end = p.end
				} else {
					joined = append(joined, p)
				}
			}
		case withPrevious:
			previous := false
			for _, p := range parts {
				if n := len(joined); p.hit && !previous && n > 0 {
					joined[n-1].end = p.end
				} else {
					joined = append(joined, p)
				}
				previous = p.hit
			}
		case withNext:
			previous := false // of the part behind
			var back []part
			for i := len(parts) - 1; i >= 0; i-- {
				p := parts[i]
				if n := len(back); p.hit && !previous && n > 0 {
					back[n-1].start = p.start
				} else {
					back = append(back, p)
				}
				previous = p.hit
			}
			for i := len(back) - 1; i >= 0; i-- {
				joined = append(joined, back[i])
			}
		}
		for _, p := range joined {
			if p.end > p.start {
				dst = append(dst, in.slice(p.start, p.end))
			}
		}
		return dst
	}
}

// splitSequence applies splitters one after another.
func splitSequence(steps []splitter) splitter {
	return func(dst []text, in text) []text {
		pieces := []text{in}
		for _, step := range steps {
			var next []text
			for _, p := range pieces {
				next = step(next, p)
			}
			pieces = next
		}
		return append(dst, pieces...)
	}
}

// mapSplit cuts nothing but changes the stretch.
func mapSplit(change normalizer) splitter {
	return func(dst []text, in text) []text {
		if out := change(in); out.s != "" {
			dst = append(dst, out)
		}
		return dst
	}
}

// spacePrefix puts a space in front of a stretch that has none.
func spacePrefix(in text) text {
	if strings.HasPrefix(in.s, " ") {
		return in
	}
	return in.prepend(" ")
}

// metaspace writes spaces as replacement and cuts before each.
type metaspace struct {
	replacement string
	prepend     string // always, first or never
	split       bool
}

func (m metaspace) splitter() splitter {
	toMark := replaced(literal(" "), m.replacement)
	cut := splitBy(literal(m.replacement), withNext, false)
	return func(dst []text, in text) []text {
		in = toMark(in)
		if (m.prepend == "always" || m.prepend == "first" && in.first) && !strings.HasPrefix(in.s, m.replacement) {
			in = in.prepend(m.replacement)
		}
		if m.split {
			return cut(dst, in)
		}
		if in.s == "" {
			return dst
		}
		return append(dst, in)
	}
}

func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return r > ' ' && r < 0x7F && !('0' <= r && r <= '9') && !('a' <= r|0x20 && r|0x20 <= 'z')
	}
	return unicode.Is(unicode.P, r)
}

// wordKind is 1 for characters of words and 2 for all others but white space.
func wordKind(r rune) int {
	switch {
	case isWord(r):
		return 1
	case unicode.IsSpace(r):
		return 0
	}
	return 2
}

// isWord is \w: letters, marks, decimal digits and connectors.
func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z'
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Pc, unicode.Other_Alphabetic, unicode.Nl) || r == 0x200C || r == 0x200D
}
