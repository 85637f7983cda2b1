package chattemplate

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// isSpace is Python's str.isspace() of one character.
func isSpace(r rune) bool {
	if r < utf8.RuneSelf {
		return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1c && r <= 0x1f
	}
	return unicode.IsSpace(r)
}

func isLineBreak(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

func trimLeft(s, chars string, all bool) string {
	if all {
		return strings.TrimLeftFunc(s, isSpace)
	}
	return strings.TrimLeft(s, chars)
}

func trimRight(s, chars string, all bool) string {
	if all {
		return strings.TrimRightFunc(s, isSpace)
	}
	return strings.TrimRight(s, chars)
}

// isASCII tells whether a text's characters are its bytes.
func isASCII(s string) bool {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		if (s[i]|s[i+1]|s[i+2]|s[i+3]|s[i+4]|s[i+5]|s[i+6]|s[i+7])&0x80 != 0 {
			return false
		}
	}
	for ; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// byteOffset returns where the character with the given index begins (len(s) if there are fewer).
func byteOffset(s string, index int) int {
	if index <= 0 {
		return 0
	}
	for i := range s {
		if index == 0 {
			return i
		}
		index--
	}
	return len(s)
}

// fieldsN is Python's str.split() without a separator: at most max cuts at runs of white space, max < 0 means all.
func fieldsN(s string, max int) []string {
	var fields []string
	s = strings.TrimLeftFunc(s, isSpace)
	for s != "" {
		if max >= 0 && len(fields) == max {
			return append(fields, s)
		}
		end := strings.IndexFunc(s, isSpace)
		if end < 0 {
			return append(fields, s)
		}
		fields = append(fields, s[:end])
		s = strings.TrimLeftFunc(s[end:], isSpace)
	}
	return fields
}

// lastFieldsN is Python's str.rsplit() without a separator.
func lastFieldsN(s string, max int) []string {
	var fields []string
	s = strings.TrimRightFunc(s, isSpace)
	for s != "" {
		if max >= 0 && len(fields) == max {
			fields = append(fields, s)
			break
		}
		start := strings.LastIndexFunc(s, isSpace)
		if start < 0 {
			fields = append(fields, s)
			break
		}
		_, size := utf8.DecodeRuneInString(s[start:])
		fields = append(fields, s[start+size:])
		s = strings.TrimRightFunc(s[:start], isSpace)
	}
	reverse(fields)
	return fields
}

// lastSplitN is Python's str.rsplit(sep, max).
func lastSplitN(s, sep string, max int) []string {
	var parts []string
	for max < 0 || len(parts) < max {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
	}
	parts = append(parts, s)
	reverse(parts)
	return parts
}

func reverse[T any](s []T) {
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
}

// lines is Python's str.splitlines().
func lines(s string, keepEnds bool) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if !isLineBreak(r) {
			i += size
			continue
		}
		end := i
		i += size
		if r == '\r' && i < len(s) && s[i] == '\n' {
			i++
		}
		if keepEnds {
			end = i
		}
		out = append(out, s[start:end])
		start = i
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

// escapeHTML is markupsafe's escape.
func escapeHTML(s string) string {
	if !strings.ContainsAny(s, "&<>\"'") {
		return s
	}
	return htmlEscaper.Replace(s)
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")
