package chattemplate

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

func caseMethod(name string, change func(string) string) method {
	return func(m *machine, self Value, args arguments) (Value, error) {
		if err := args.none(name); err != nil {
			return self, err
		}
		if err := m.allocate(int(self.num) + stringCost); err != nil {
			return self, err
		}
		return likeString(self, change(self.str())), nil
	}
}

func isMethod(name string, is func(rune) bool) method {
	return testMethod(name, func(s string) bool {
		for _, r := range s {
			if !is(r) {
				return false
			}
		}
		return s != ""
	})
}

func testMethod(name string, test func(string) bool) method {
	return func(m *machine, self Value, args arguments) (Value, error) {
		if err := args.none(name); err != nil {
			return self, err
		}
		return Bool(test(self.str())), nil
	}
}

// Full case mapping (ß becomes SS) is needed beyond ASCII. A Caser is not safe for concurrent use, so each call makes one.

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return lowerWithSigma(s)
}

// lowerWithSigma lowers as Python does: a capital sigma at the end of a word becomes the final form.
func lowerWithSigma(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i, r := range s {
		b.WriteString(lowerRune(s, i, r))
	}
	return b.String()
}

func lowerRune(s string, i int, r rune) string {
	switch {
	case r == 0x3a3 && isFinalSigma(s, i):
		return "ς"
	case r == 0x130:
		return "i̇"
	}
	return string(unicode.ToLower(r))
}

// isFinalSigma tells whether a letter comes before the sigma at byte i and none after it, not counting marks and the like.
func isFinalSigma(s string, i int) bool {
	before := strings.TrimRightFunc(s[:i], caseIgnorable)
	last, _ := utf8.DecodeLastRuneInString(before)
	if !isCased(last) {
		return false
	}
	_, size := utf8.DecodeRuneInString(s[i:])
	next, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(s[i+size:], caseIgnorable))
	return !isCased(next)
}

func isCased(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) || unicode.Is(unicode.Other_Lowercase, r) || unicode.Is(unicode.Other_Uppercase, r)
}

func caseIgnorable(r rune) bool {
	switch r {
	case '\'', '.', ':', '^', '`', 0xa8, 0xad, 0xaf, 0xb4, 0xb7, 0xb8, 0x2019:
		return true
	}
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

func titleRune(r rune) string {
	if r < utf8.RuneSelf {
		return string(unicode.ToUpper(r))
	}
	return cases.Title(language.Und, cases.NoLower).String(string(r))
}

// title is str.title(): a letter after something that is not a letter is capital, others are small.
func title(s string) string {
	var b strings.Builder
	previous := false
	for i, r := range s {
		if previous {
			b.WriteString(lowerRune(s, i, r))
		} else {
			b.WriteString(titleRune(r))
		}
		previous = isCased(r)
	}
	return b.String()
}

func capitalize(s string) string {
	if s == "" {
		return s
	}
	first, size := utf8.DecodeRuneInString(s)
	rest := s[size:]
	if isASCII(rest) {
		return titleRune(first) + strings.ToLower(rest)
	}
	var b strings.Builder
	b.WriteString(titleRune(first))
	for j, r := range rest {
		b.WriteString(lowerRune(s, size+j, r))
	}
	return b.String()
}

func swapcase(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case unicode.IsUpper(r) || unicode.Is(unicode.Other_Uppercase, r):
			b.WriteString(lowerRune(s, i, r))
		case unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r):
			b.WriteString(upper(string(r)))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func casefold(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Fold().String(s)
}

func isLowercase(r rune) bool { return unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r) }
func isUppercase(r rune) bool { return unicode.IsUpper(r) || unicode.Is(unicode.Other_Uppercase, r) }

func isLower(s string) bool {
	found := false
	for _, r := range s {
		if isUppercase(r) || unicode.IsTitle(r) {
			return false
		}
		found = found || isLowercase(r)
	}
	return found
}

func isUpper(s string) bool {
	found := false
	for _, r := range s {
		if isLowercase(r) || unicode.IsTitle(r) {
			return false
		}
		found = found || isUppercase(r)
	}
	return found
}

func isTitle(s string) bool {
	found, previous := false, false
	for _, r := range s {
		switch {
		case isUppercase(r) || unicode.IsTitle(r):
			if previous {
				return false
			}
			previous, found = true, true
		case isLowercase(r):
			if !previous {
				return false
			}
			previous, found = true, true
		default:
			previous = false
		}
	}
	return found
}

func isAlpha(r rune) bool { return unicode.IsLetter(r) }
func isAlnum(r rune) bool { return unicode.IsLetter(r) || isNumeric(r) }

func isDecimalDigit(r rune) bool { return unicode.IsDigit(r) }

// isDigit is Python's str.isdigit() of one character: decimal digits and the likes of superscript ones.
func isDigit(r rune) bool {
	return unicode.IsDigit(r) || r > unicode.MaxASCII && unicode.Is(digitLike, r)
}

// isNumeric is Python's str.isnumeric() of one character: whatever has a numeric value, some ideographs included.
func isNumeric(r rune) bool {
	return unicode.IsNumber(r) || r > unicode.MaxASCII && unicode.Is(numericIdeographs, r)
}

func allPrintable(s string) bool {
	for _, r := range s {
		if !isPrintable(r) {
			return false
		}
	}
	return true
}

func isIdentifier(s string) bool {
	for i, r := range s {
		if r == '_' || unicode.IsLetter(r) || unicode.Is(unicode.Nl, r) {
			continue
		}
		if i == 0 || !(unicode.IsDigit(r) || unicode.In(r, unicode.Mn, unicode.Mc, unicode.Pc)) {
			return false
		}
	}
	return s != ""
}
