package settings

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// parser turns text into a T and back into something a dump can show.
type parser[T any] struct {
	parse   func(text string) (T, error)
	show    func(T) any
	allowed string
	// adjust replaces values that are understood but make no sense by one that does, and says so; nil for most.
	adjust func(T) (T, string)
	// emptyUnsets marks plain text: for an optional field an empty text is the same as none.
	emptyUnsets bool
}

func (p parser[T]) read(text string) (T, string, error) {
	parsed, err := p.parse(text)
	if err != nil {
		var none T
		return none, "", err
	}
	if p.adjust == nil {
		return parsed, "", nil
	}
	adjusted, note := p.adjust(parsed)
	return adjusted, note, nil
}

const truthAllowed = "true or false (1/0, yes/no, on/off, any case)"

// readTruth reads a switch from a variable. The truthy words are the real frontend's. That one takes every other
// text for false without a word, so that "y" or "enabled" switch a feature off; here only words that mean false are
// false, and the rest is a mistake.
func readTruth(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "1", "true", "yes", "on":
		return true, nil
	case "", "0", "false", "no", "off":
		return false, nil
	}
	return false, errors.New("must be " + truthAllowed)
}

// cleanNumber removes what number texts may carry without meaning: white space around and single underscores between
// digits. Underscores elsewhere stay and fail later.
func cleanNumber(text string) string {
	text = strings.TrimFunc(text, unicode.IsSpace)
	if !strings.Contains(text, "_") {
		return text
	}
	var cleaned strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '_' && i > 0 && i+1 < len(text) && isDigit(text[i-1]) && isDigit(text[i+1]) {
			continue
		}
		cleaned.WriteByte(text[i])
	}
	return cleaned.String()
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// whole reads a decimal whole number from low to high.
func whole(low, high int) parser[int] {
	allowed := wholeRange(low, high)
	return parser[int]{
		parse: func(text string) (int, error) {
			n, err := strconv.Atoi(cleanNumber(text))
			if err != nil || n < low || n > high {
				return 0, errors.New("must be " + allowed)
			}
			return n, nil
		},
		show:    func(n int) any { return n },
		allowed: allowed,
	}
}

func wholeRange(low, high int) string {
	if high == math.MaxInt {
		return fmt.Sprintf("a whole number of at least %d", low)
	}
	return fmt.Sprintf("a whole number from %d to %d", low, high)
}

// number reads a finite decimal number from low to high; infinity as high means no upper end.
func number(low, high float64) parser[float64] {
	allowed := numberRange(low, high)
	return parser[float64]{
		parse: func(text string) (float64, error) {
			n, ok := readNumber(text)
			if !ok || n < low || n > high {
				return 0, errors.New("must be " + allowed)
			}
			return n, nil
		},
		show:    func(n float64) any { return n },
		allowed: allowed,
	}
}

// readNumber reads a finite decimal number; hexadecimal notation is not a number here.
func readNumber(text string) (float64, bool) {
	cleaned := cleanNumber(text)
	if strings.ContainsAny(cleaned, "xXpP_") {
		return 0, false
	}
	n, err := strconv.ParseFloat(cleaned, 64)
	return n, err == nil && !math.IsInf(n, 0) && !math.IsNaN(n)
}

func numberRange(low, high float64) string {
	switch {
	case math.IsInf(low, -1) && math.IsInf(high, 1):
		return "a finite number"
	case math.IsInf(high, 1):
		return fmt.Sprintf("a finite number of at least %s", plainNumber(low))
	default:
		return fmt.Sprintf("a number from %s to %s", plainNumber(low), plainNumber(high))
	}
}

// unbounded is the upper end of ranges that have none.
var unbounded = math.Inf(1)

// plainNumber writes a number with at least one decimal, so that it reads as one that may have a fraction.
func plainNumber(n float64) string {
	text := strconv.FormatFloat(n, 'g', -1, 64)
	if !strings.ContainsAny(text, ".eIN") {
		text += ".0"
	}
	return text
}

// longest is the longest time a setting accepts: a century, far from where time.Duration ends.
const longest = 100 * 365 * 24 * time.Hour

// duration reads a number of units that may have a fraction. Zero is allowed when the low end is zero.
func duration(unit time.Duration, low float64) parser[time.Duration] {
	high := float64(longest / unit)
	allowed := fmt.Sprintf("a number of %s of at least %s", unitName(unit), plainNumber(low))
	return parser[time.Duration]{
		parse: func(text string) (time.Duration, error) {
			n, ok := readNumber(text)
			if !ok || n < low || n > high {
				return 0, errors.New("must be " + allowed)
			}
			return time.Duration(n * float64(unit)), nil
		},
		show:    func(d time.Duration) any { return float64(d) / float64(unit) },
		allowed: allowed,
	}
}

// wholeDuration reads a whole number of units from low to high.
func wholeDuration(unit time.Duration, low, high int) parser[time.Duration] {
	if most := int(longest / unit); high > most {
		high = most
	}
	allowed := fmt.Sprintf("a whole number of %s from %d to %d", unitName(unit), low, high)
	return parser[time.Duration]{
		parse: func(text string) (time.Duration, error) {
			n, err := strconv.Atoi(cleanNumber(text))
			if err != nil || n < low || n > high {
				return 0, errors.New("must be " + allowed)
			}
			return time.Duration(n) * unit, nil
		},
		show:    func(d time.Duration) any { return int(d / unit) },
		allowed: allowed,
	}
}

func unitName(unit time.Duration) string {
	switch unit {
	case time.Millisecond:
		return "milliseconds"
	case time.Second:
		return "seconds"
	default:
		return unit.String()
	}
}

// text reads any text.
func text() parser[string] {
	return parser[string]{
		parse:       func(text string) (string, error) { return text, nil },
		show:        func(text string) any { return text },
		allowed:     "text",
		emptyUnsets: true,
	}
}

// filled reads a text that is not blank and drops white space around it.
func filled(what string) parser[string] {
	allowed := what + " that is not empty"
	return parser[string]{
		parse: func(text string) (string, error) {
			trimmed := strings.TrimSpace(text)
			if trimmed == "" {
				return "", errors.New("must be " + allowed)
			}
			return trimmed, nil
		},
		show:    func(text string) any { return text },
		allowed: allowed,
	}
}

// matching reads a text for which ok holds.
func matching(allowed string, ok func(string) bool) parser[string] {
	return parser[string]{
		parse: func(text string) (string, error) {
			if !ok(text) {
				return "", errors.New("must be " + allowed)
			}
			return text, nil
		},
		show:    func(text string) any { return text },
		allowed: allowed,
	}
}

// oneOf reads one of the given words exactly.
func oneOf[T ~string](choices ...T) parser[T] {
	return choice(nil, choices)
}

func choice[T ~string](normalise func(string) string, choices []T) parser[T] {
	plain := make([]string, len(choices))
	for i, c := range choices {
		plain[i] = string(c)
	}
	allowed := "one of " + strings.Join(plain, ", ")
	return parser[T]{
		parse: func(text string) (T, error) {
			if normalise != nil {
				text = normalise(text)
			}
			for _, c := range choices {
				if text == string(c) {
					return c, nil
				}
			}
			return "", errors.New("must be " + allowed)
		},
		show:    func(c T) any { return string(c) },
		allowed: allowed,
	}
}

// routePath reads an absolute URL path without parameters or wildcards.
func routePath() parser[string] {
	return matching(`a URL path that starts with "/" and has no segment starting with ":", "*" or "{"`, func(path string) bool {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \t\r\n?#") {
			return false
		}
		for _, segment := range strings.Split(path[1:], "/") {
			if segment != "" && strings.ContainsAny(segment[:1], ":*{") {
				return false
			}
		}
		return true
	})
}

// existingDirectory reads the path of a directory.
func existingDirectory() parser[string] {
	return parser[string]{
		parse: func(path string) (string, error) {
			info, err := os.Stat(path)
			if path == "" || err != nil {
				return "", errors.New("must be a directory that exists" + because(err))
			}
			if !info.IsDir() {
				return "", errors.New("must be a directory that exists; this is a file")
			}
			return path, nil
		},
		show:    func(path string) any { return path },
		allowed: "an existing directory",
	}
}

// because appends the operating system's reason, without the path that the message already has.
func because(err error) string {
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return " (" + pathError.Err.Error() + ")"
	}
	return ""
}

// splitWords splits at white space.
func splitWords(text string) []string { return strings.Fields(text) }
