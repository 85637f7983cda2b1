package chattemplate

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEOF tokenKind = iota
	tokenData
	tokenVariableBegin
	tokenVariableEnd
	tokenBlockBegin
	tokenBlockEnd
	tokenName
	tokenString
	tokenInteger
	tokenFloat
	tokenOperator
)

type token struct {
	kind  tokenKind
	text  string // template text, name, value of a string, operator
	value Value  // of numbers
	line  int
}

func (t token) isName(word string) bool { return t.kind == tokenName && t.text == word }
func (t token) isOp(op string) bool     { return t.kind == tokenOperator && t.text == op }

func (t token) String() string {
	switch t.kind {
	case tokenEOF:
		return "end of template"
	case tokenData:
		return "template text"
	case tokenVariableBegin:
		return "'{{'"
	case tokenVariableEnd:
		return "'}}'"
	case tokenBlockBegin:
		return "'{%'"
	case tokenBlockEnd:
		return "'%}'"
	case tokenString:
		return "a string"
	case tokenInteger, tokenFloat:
		return "a number"
	}
	return "'" + t.text + "'"
}

// lexer splits a template into tokens. White space around tags is settled here: the newline after a block is dropped
// (trim_blocks), so is the indentation before one (lstrip_blocks), and the signs - and + inside a tag's braces overrule that.
type lexer struct {
	source string
	pos    int
	line   int
	tokens []token
	// lineStarting: the text before pos ends with a newline that belongs to a tag, or there is none.
	lineStarting bool
}

func tokenize(source string) ([]token, error) {
	if strings.ContainsRune(source, '\r') {
		source = strings.ReplaceAll(source, "\r\n", "\n")
		source = strings.ReplaceAll(source, "\r", "\n")
	}
	source = strings.TrimSuffix(source, "\n")
	l := &lexer{source: source, line: 1, lineStarting: true}
	for l.pos < len(l.source) {
		if err := l.text(); err != nil {
			return nil, err
		}
	}
	l.emit(token{kind: tokenEOF})
	return l.tokens, nil
}

func (l *lexer) emit(t token) {
	t.line = l.line
	l.tokens = append(l.tokens, t)
}

func (l *lexer) data(text string) {
	if text != "" {
		l.emit(token{kind: tokenData, text: text})
	}
}

// advance moves to pos and counts lines.
func (l *lexer) advance(pos int) {
	l.line += strings.Count(l.source[l.pos:pos], "\n")
	l.lineStarting = pos > 0 && l.source[pos-1] == '\n'
	l.pos = pos
}

func (l *lexer) fail(format string, args ...any) error {
	return &SyntaxError{Line: l.line, Message: fmt.Sprintf(format, args...)}
}

// text reads template text up to the next tag, and that tag.
func (l *lexer) text() error {
	rest := l.source[l.pos:]
	open := indexTag(rest)
	if open < 0 {
		l.data(rest)
		l.advance(len(l.source))
		return nil
	}
	tag := rest[open : open+2]
	sign := byte(0)
	if open+2 < len(rest) && (rest[open+2] == '-' || rest[open+2] == '+') {
		sign = rest[open+2]
	}
	l.data(l.stripBefore(rest[:open], sign, tag != "{{"))
	start := l.pos + open
	l.advance(start)
	inside := start + 2
	if sign != 0 {
		inside++
	}
	switch tag {
	case "{#":
		return l.comment(inside)
	case "{%":
		if end, ok := l.rawBegin(inside); ok {
			l.advance(end)
			return l.raw()
		}
		l.emit(token{kind: tokenBlockBegin})
	default:
		l.emit(token{kind: tokenVariableBegin})
	}
	l.advance(inside)
	return l.tag(tag == "{%")
}

// indexTag finds the next "{{", "{%" or "{#".
func indexTag(s string) int {
	for i := 0; ; {
		j := strings.IndexByte(s[i:], '{')
		if j < 0 || i+j+1 >= len(s) {
			return -1
		}
		i += j
		if c := s[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
		i++
	}
}

// stripBefore removes white space from the end of the text before a tag, as the tag's sign says.
func (l *lexer) stripBefore(text string, sign byte, isBlock bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	if sign == '+' || !isBlock {
		return text
	}
	lineStart := strings.LastIndexByte(text, '\n') + 1
	if (lineStart > 0 || l.lineStarting) && strings.TrimFunc(text[lineStart:], isSpace) == "" {
		return text[:lineStart]
	}
	return text
}

func (l *lexer) skipSpace(pos int) int {
	rest := l.source[pos:]
	return pos + len(rest) - len(strings.TrimLeftFunc(rest, isSpace))
}

// closeTag returns where a tag that ends at pos with the given closing braces ends, white space that goes with it included;
// ok is false if it does not end there.
func (l *lexer) closeTag(pos int, braces string, dropNewline, plus bool) (end int, ok bool) {
	rest := l.source[pos:]
	switch {
	case strings.HasPrefix(rest, braces):
		end = pos + len(braces)
		if dropNewline && end < len(l.source) && l.source[end] == '\n' {
			end++
		}
		return end, true
	case rest != "" && rest[0] == '-' && strings.HasPrefix(rest[1:], braces):
		return l.skipSpace(pos + 1 + len(braces)), true
	case plus && rest != "" && rest[0] == '+' && strings.HasPrefix(rest[1:], braces):
		return pos + 1 + len(braces), true
	}
	return 0, false
}

func (l *lexer) comment(pos int) error {
	i := strings.Index(l.source[pos:], "#}")
	if i < 0 {
		return l.fail("missing end of comment '#}'")
	}
	end := pos + i
	if end > pos && (l.source[end-1] == '-' || l.source[end-1] == '+') {
		end--
	}
	end, _ = l.closeTag(end, "#}", true, true)
	l.advance(end)
	return nil
}

// rawBegin tells whether the block tag whose inside begins at pos is {% raw %}, and where it ends.
func (l *lexer) rawBegin(pos int) (end int, ok bool) {
	pos = l.skipSpace(pos)
	if !strings.HasPrefix(l.source[pos:], "raw") {
		return 0, false
	}
	return l.closeTag(l.skipSpace(pos+3), "%}", false, false)
}

// raw reads the text of a raw block and its end tag.
func (l *lexer) raw() error {
	for from := l.pos; ; {
		i := strings.Index(l.source[from:], "{%")
		if i < 0 {
			return l.fail("missing end of raw block")
		}
		open := from + i
		pos := open + 2
		sign := byte(0)
		if pos < len(l.source) && (l.source[pos] == '-' || l.source[pos] == '+') {
			sign = l.source[pos]
			pos++
		}
		pos = l.skipSpace(pos)
		if strings.HasPrefix(l.source[pos:], "endraw") {
			if end, ok := l.closeTag(l.skipSpace(pos+len("endraw")), "%}", true, true); ok {
				l.data(l.stripBefore(l.source[l.pos:open], sign, true))
				l.advance(end)
				return nil
			}
		}
		from = open + 2
	}
}

// tag reads the tokens inside a tag, and its end.
func (l *lexer) tag(isBlock bool) error {
	braces, endKind := "}}", tokenVariableEnd
	if isBlock {
		braces, endKind = "%}", tokenBlockEnd
	}
	var open []byte // closing brackets that are due
	for l.pos < len(l.source) {
		if len(open) == 0 {
			if end, ok := l.closeTag(l.pos, braces, isBlock, isBlock); ok {
				l.emit(token{kind: endKind})
				l.advance(end)
				return nil
			}
		}
		if end := l.skipSpace(l.pos); end > l.pos {
			l.advance(end)
			continue
		}
		c := l.source[l.pos]
		switch {
		case c >= '0' && c <= '9':
			if err := l.number(); err != nil {
				return err
			}
		case c == '\'' || c == '"':
			if err := l.quoted(c); err != nil {
				return err
			}
		case isNameRune(l.rune()):
			l.name()
		default:
			var err error
			if open, err = l.operator(open); err != nil {
				return err
			}
		}
	}
	return nil // the parser reports the end of the template
}

func (l *lexer) rune() rune {
	r, _ := utf8.DecodeRuneInString(l.source[l.pos:])
	return r
}

func isNameRune(r rune) bool {
	return r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		r > unicode.MaxASCII && r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r))
}

func (l *lexer) name() {
	end := l.pos
	for i, r := range l.source[l.pos:] {
		if !isNameRune(r) {
			break
		}
		end = l.pos + i + utf8.RuneLen(r)
	}
	l.emit(token{kind: tokenName, text: l.source[l.pos:end]})
	l.advance(end)
}

var operators = []string{"//", "**", "==", "!=", ">=", "<="}

func (l *lexer) operator(open []byte) ([]byte, error) {
	rest := l.source[l.pos:]
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			l.emit(token{kind: tokenOperator, text: op})
			l.advance(l.pos + 2)
			return open, nil
		}
	}
	c := rest[0]
	switch c {
	case '{':
		open = append(open, '}')
	case '(':
		open = append(open, ')')
	case '[':
		open = append(open, ']')
	case '}', ')', ']':
		if len(open) == 0 {
			return nil, l.fail("unexpected '%c'", c)
		}
		if due := open[len(open)-1]; due != c {
			return nil, l.fail("unexpected '%c', expected '%c'", c, due)
		}
		open = open[:len(open)-1]
	case '+', '-', '/', '*', '%', '~', '>', '<', '=', '.', ':', '|', ',', ';':
	default:
		return nil, l.fail("unexpected character %q", l.rune())
	}
	l.emit(token{kind: tokenOperator, text: rest[:1]})
	l.advance(l.pos + 1)
	return open, nil
}

// digitRun returns the end of digits from pos on that single underscores may separate; pos itself if there are none.
func (l *lexer) digitRun(pos int, isDigit func(byte) bool) int {
	end := pos
	for pos < len(l.source) {
		if l.source[pos] == '_' && end > 0 && pos+1 < len(l.source) && end == pos && isDigit(l.source[pos+1]) {
			pos++
		}
		if !isDigit(l.source[pos]) {
			break
		}
		pos++
		end = pos
	}
	return end
}

func isDecimal(c byte) bool { return c >= '0' && c <= '9' }

func (l *lexer) number() error {
	start := l.pos
	s := l.source
	if end := l.digitRun(start, isDecimal); start == 0 || s[start-1] != '.' {
		isFloat := false
		if end+1 < len(s) && s[end] == '.' && isDecimal(s[end+1]) {
			end = l.digitRun(end+1, isDecimal)
			isFloat = true
		}
		if end < len(s) && (s[end] == 'e' || s[end] == 'E') {
			exp := end + 1
			if exp < len(s) && (s[exp] == '+' || s[exp] == '-') {
				exp++
			}
			if exp < len(s) && isDecimal(s[exp]) {
				end = l.digitRun(exp, isDecimal)
				isFloat = true
			}
		}
		if isFloat {
			f, _ := strconv.ParseFloat(strings.ReplaceAll(s[start:end], "_", ""), 64)
			l.emit(token{kind: tokenFloat, value: Float(f)})
			l.advance(end)
			return nil
		}
	}
	base, digits, end := 10, start, start
	if s[start] == '0' {
		end = l.digitRun(start, func(c byte) bool { return c == '0' })
		if start+1 < len(s) {
			var isDigit func(byte) bool
			switch s[start+1] {
			case 'x', 'X':
				base = 16
				isDigit = func(c byte) bool { return isDecimal(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
			case 'o', 'O':
				base = 8
				isDigit = func(c byte) bool { return c >= '0' && c <= '7' }
			case 'b', 'B':
				base = 2
				isDigit = func(c byte) bool { return c == '0' || c == '1' }
			}
			if isDigit != nil {
				from := start + 2
				if from+1 < len(s) && s[from] == '_' {
					from++
				}
				if to := l.digitRun(from, isDigit); to > from {
					digits, end = from, to
				} else {
					base = 10
				}
			}
		}
	} else {
		end = l.digitRun(start, isDecimal)
	}
	text := strings.ReplaceAll(s[digits:end], "_", "")
	if len(text) > maxIntDigits {
		return l.fail("integer of %d digits, at most %d are allowed", len(text), maxIntDigits)
	}
	i, ok := new(big.Int).SetString(text, base)
	if !ok {
		return l.fail("invalid number %q", s[start:end])
	}
	l.emit(token{kind: tokenInteger, value: BigInt(i)})
	l.advance(end)
	return nil
}

func (l *lexer) quoted(quote byte) error {
	start := l.pos + 1
	for i := start; i < len(l.source); i++ {
		switch l.source[i] {
		case '\\':
			i++
		case quote:
			text, err := unescape(l.source[start:i])
			if err != "" {
				return l.fail("%s", err)
			}
			l.emit(token{kind: tokenString, text: text})
			l.advance(i + 1)
			return nil
		}
	}
	return l.fail("unexpected character %q: the string has no end", quote)
}

// unescape interprets the backslashes of a string as Python's unicode_escape codec does on its ASCII form.
func unescape(s string) (text, problem string) {
	if !strings.Contains(s, `\`) {
		return s, ""
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			i++
			continue
		}
		i++
		if i >= len(s) {
			return "", `\ at end of string`
		}
		c := s[i]
		i++
		switch c {
		case '\n':
		case '\\', '\'', '"':
			b.WriteByte(c)
		case 'a':
			b.WriteByte('\a')
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'v':
			b.WriteByte('\v')
		case '0', '1', '2', '3', '4', '5', '6', '7':
			r := rune(c - '0')
			for n := 1; n < 3 && i < len(s) && s[i] >= '0' && s[i] <= '7'; n++ {
				r = r*8 + rune(s[i]-'0')
				i++
			}
			b.WriteRune(r)
		case 'x', 'u', 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if len(s)-i < n {
				return "", fmt.Sprintf(`truncated \%c escape`, c)
			}
			r, err := strconv.ParseUint(s[i:i+n], 16, 32)
			if err != nil {
				return "", fmt.Sprintf(`truncated \%c escape`, c)
			}
			if r > unicode.MaxRune {
				return "", "illegal Unicode character"
			}
			b.WriteRune(rune(r))
			i += n
		case 'N':
			return "", `\N{...} escapes are not supported`
		default:
			b.WriteByte('\\')
			if c < utf8.RuneSelf {
				b.WriteByte(c)
				break
			}
			// The codec sees the escape that stands for the character, and the backslash before it escapes that escape's own.
			r, size := utf8.DecodeRuneInString(s[i-1:])
			i += size - 1
			switch {
			case r < 0x100:
				fmt.Fprintf(&b, "x%02x", r)
			case r < 0x10000:
				fmt.Fprintf(&b, "u%04x", r)
			default:
				fmt.Fprintf(&b, "U%08x", r)
			}
		}
	}
	return b.String(), ""
}
