package chattemplate

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatSpec is Python's format specification: [[fill]align][sign][z][#][0][width][grouping][.precision][type].
type formatSpec struct {
	fill      string
	align     byte // '<', '>', '^', '=' or 0
	sign      byte // '+', '-', ' ' or 0
	alternate bool
	zero      bool
	width     int // -1: none
	grouping  byte
	precision int // -1: none
	verb      byte
}

// maxFormatWidth bounds width and precision.
const maxFormatWidth = 1 << 20

func parseFormatSpec(text string) (formatSpec, error) {
	s := formatSpec{fill: " ", width: -1, precision: -1}
	rest := text
	isAlign := func(c byte) bool { return c == '<' || c == '>' || c == '^' || c == '=' }
	if _, size := utf8.DecodeRuneInString(rest); size > 0 && size < len(rest) && isAlign(rest[size]) {
		s.fill, s.align = rest[:size], rest[size]
		rest = rest[size+1:]
	} else if rest != "" && isAlign(rest[0]) {
		s.align = rest[0]
		rest = rest[1:]
	}
	take := func(chars string) byte {
		if rest != "" && strings.IndexByte(chars, rest[0]) >= 0 {
			c := rest[0]
			rest = rest[1:]
			return c
		}
		return 0
	}
	number := func() (int, error) {
		end := 0
		for end < len(rest) && isDecimal(rest[end]) {
			end++
		}
		if end == 0 {
			return -1, nil
		}
		n, err := strconv.Atoi(rest[:end])
		if err != nil || n > maxFormatWidth {
			return 0, valueError("too large a number in format string: %s", rest[:end])
		}
		rest = rest[end:]
		return n, nil
	}
	s.sign = take("+- ")
	take("z")
	s.alternate = take("#") != 0
	if take("0") != 0 {
		s.zero = true
		if s.align == 0 {
			s.fill, s.align = "0", '='
		}
	}
	var err error
	if s.width, err = number(); err != nil {
		return s, err
	}
	s.grouping = take(",_")
	if take(".") != 0 {
		if s.precision, err = number(); err != nil {
			return s, err
		}
		if s.precision < 0 {
			return s, valueError("Format specifier missing precision")
		}
	}
	if len(rest) > 1 {
		return s, valueError("Invalid format specifier '%s'", text)
	}
	if rest != "" {
		s.verb = rest[0]
	}
	return s, nil
}

// pad fills text up to the width; prefix is a sign and base that stays left of zeros.
func (s *formatSpec) pad(prefix, text string, align byte) string {
	n := s.width - utf8.RuneCountInString(prefix) - utf8.RuneCountInString(text)
	if n <= 0 {
		return prefix + text
	}
	if s.align != 0 {
		align = s.align
	}
	switch align {
	case '<':
		return prefix + text + strings.Repeat(s.fill, n)
	case '^':
		return strings.Repeat(s.fill, n/2) + prefix + text + strings.Repeat(s.fill, n-n/2)
	case '=':
		return prefix + strings.Repeat(s.fill, n) + text
	}
	return strings.Repeat(s.fill, n) + prefix + text
}

// format is Python's format(v, spec).
func (m *machine) format(v Value, spec string) (string, error) {
	if spec == "" {
		return m.str(v)
	}
	s, err := parseFormatSpec(spec)
	switch {
	case v.isUndefined():
		return "", typeError("unsupported format string passed to Undefined.__format__")
	case err != nil:
		return "", err
	}
	if err := m.allocate(s.width + s.precision + 2); err != nil {
		return "", err
	}
	unknown := func() error {
		return valueError("Unknown format code '%c' for object of type '%s'", s.verb, v.typeName())
	}
	switch v.kind {
	case kindString:
		if s.verb != 0 && s.verb != 's' {
			return "", unknown()
		}
		if s.sign != 0 || s.alternate || s.grouping != 0 || s.align == '=' && !s.zero {
			return "", valueError("Invalid format specifier '%s' for a string", spec)
		}
		text := v.str()
		if s.precision >= 0 {
			text = text[:byteOffset(text, s.precision)]
		}
		if s.align == '=' {
			s.align = '<'
		}
		return s.pad("", text, '<'), nil
	case kindBool, kindInt:
		switch s.verb {
		case 'e', 'E', 'f', 'F', 'g', 'G', '%':
			f, err := v.number()
			if err != nil {
				return "", err
			}
			return s.formatFloat(f), nil
		case 0, 'd', 'n', 'b', 'o', 'x', 'X', 'c':
			return s.formatInt(v)
		}
		return "", unknown()
	case kindFloat:
		switch s.verb {
		case 0, 'e', 'E', 'f', 'F', 'g', 'G', 'n', '%':
			return s.formatFloat(v.float()), nil
		}
		return "", unknown()
	}
	return "", typeError("unsupported format string passed to %s.__format__", v.typeName())
}

func (s *formatSpec) formatInt(v Value) (string, error) {
	if s.precision >= 0 {
		return "", valueError("Precision not allowed in integer format specifier")
	}
	i := v.bigInt()
	if s.verb == 'c' {
		if !i.IsInt64() || i.Int64() < 0 || i.Int64() > utf8.MaxRune {
			return "", overflowError("%%c arg not in range(0x110000)")
		}
		return s.pad("", string(rune(i.Int64())), '<'), nil
	}
	base, prefix := 10, ""
	switch s.verb {
	case 'b':
		base, prefix = 2, "0b"
	case 'o':
		base, prefix = 8, "0o"
	case 'x':
		base, prefix = 16, "0x"
	case 'X':
		base, prefix = 16, "0X"
	}
	digits := new(big.Int).Abs(i).Text(base)
	if base == 10 && len(digits) > maxIntDigits {
		return "", valueError("Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	if s.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	if !s.alternate {
		prefix = ""
	}
	group := 3
	if base != 10 {
		group = 4
		if s.grouping == ',' {
			return "", valueError("Cannot specify ',' with '%c'.", s.verb)
		}
	}
	prefix = s.signOf(i.Sign() < 0) + prefix
	return s.pad(prefix, s.group(digits, group, len(prefix)), '>'), nil
}

func (s *formatSpec) signOf(negative bool) string {
	switch {
	case negative:
		return "-"
	case s.sign == '+' || s.sign == ' ':
		return string(s.sign)
	}
	return ""
}

// group puts separators between digits; zeros that fill the width take part.
func (s *formatSpec) group(digits string, size, prefix int) string {
	if s.grouping == 0 {
		return digits
	}
	grouped := func(d string) string {
		var b strings.Builder
		for i := range d {
			if i > 0 && (len(d)-i)%size == 0 {
				b.WriteByte(s.grouping)
			}
			b.WriteByte(d[i])
		}
		return b.String()
	}
	text := grouped(digits)
	if s.fill == "0" && s.align == '=' {
		for len(text) < s.width-prefix {
			digits = "0" + digits
			text = grouped(digits)
		}
	}
	return text
}

func (s *formatSpec) formatFloat(f float64) string {
	negative := math.Signbit(f) && !math.IsNaN(f)
	a := math.Abs(f)
	sign := s.signOf(negative)
	var text string
	switch {
	case math.IsInf(a, 0):
		text = "inf"
	case math.IsNaN(a):
		text = "nan"
	default:
		text = s.floatDigits(a)
	}
	if s.verb == 'E' || s.verb == 'F' || s.verb == 'G' {
		text = strings.ToUpper(text)
	}
	if s.verb == '%' {
		text += "%"
	}
	if s.grouping != 0 {
		end := 0
		for end < len(text) && isDecimal(text[end]) {
			end++
		}
		text = s.group(text[:end], 3, len(sign)+len(text)-end) + text[end:]
	}
	return s.pad(sign, text, '>')
}

// floatDigits formats a finite number that is not negative.
func (s *formatSpec) floatDigits(a float64) string {
	precision := s.precision
	switch s.verb {
	case 0:
		if precision < 0 {
			return floatText(a)
		}
		return formatG(a, max(precision, 1), s.alternate, true)
	case 'e', 'E':
		if precision < 0 {
			precision = 6
		}
		return withPoint(strconv.FormatFloat(a, 'e', precision, 64), s.alternate)
	case 'g', 'G', 'n':
		if precision < 0 {
			precision = 6
		}
		return formatG(a, max(precision, 1), s.alternate, false)
	}
	if precision < 0 {
		precision = 6
	}
	if s.verb == '%' {
		a *= 100
	}
	return withPoint(strconv.FormatFloat(a, 'f', precision, 64), s.alternate)
}

// withPoint adds a decimal point where the alternate form demands one.
func withPoint(text string, alternate bool) string {
	if !alternate || strings.Contains(text, ".") {
		return text
	}
	if i := strings.IndexByte(text, 'e'); i >= 0 {
		return text[:i] + "." + text[i:]
	}
	return text + "."
}

// formatG is the general format: fixed or exponent notation, without trailing zeros unless alternate. With likeRepr it keeps at
// least one digit behind the point and switches to the exponent one digit earlier, as Python does without a type.
func formatG(a float64, precision int, alternate, likeRepr bool) string {
	e := strconv.FormatFloat(a, 'e', precision-1, 64)
	at := strings.IndexByte(e, 'e')
	exponent, _ := strconv.Atoi(e[at+1:])
	limit := precision
	if likeRepr {
		limit--
	}
	trim := func(t string) string {
		if alternate || !strings.Contains(t, ".") {
			return withPoint(t, alternate)
		}
		return strings.TrimRight(strings.TrimRight(t, "0"), ".")
	}
	if exponent < -4 || exponent >= max(limit, 1) && !(likeRepr && precision == 1 && exponent < 1) && exponent >= limit {
		return trim(e[:at]) + e[at:]
	}
	text := trim(strconv.FormatFloat(a, 'f', max(precision-1-exponent, 0), 64))
	if likeRepr && !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
