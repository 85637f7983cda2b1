package chattemplate

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// intText is the decimal text of an integer or boolean taken as a number.
func (v Value) intText() string {
	if v.ref != nil {
		return v.big().String()
	}
	return strconv.FormatInt(v.num, 10)
}

// printInt is Python's str() of an integer, which refuses more than 4300 digits.
func printInt(v Value) (string, error) {
	if v.kind == kindInt && v.ref != nil && v.big().BitLen() > maxIntDigits*3 {
		s := v.big().String()
		if len(strings.TrimPrefix(s, "-")) > maxIntDigits {
			return "", valueError("Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
		}
		return s, nil
	}
	return v.intText(), nil
}

// floatText is Python's repr() of a float: the shortest text that reads back, with an exponent below 1e-4 and from 1e16 on.
func floatText(f float64) string { return string(appendFloat(nil, f)) }

func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	case math.IsNaN(f):
		return append(b, "nan"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	return appendDecimal(b, f)
}

// appendDecimal writes a finite float without an exponent, and with at least one digit behind the point.
func appendDecimal(b []byte, f float64) []byte {
	start := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	for _, c := range b[start:] {
		if c == '.' {
			return b
		}
	}
	return append(b, ".0"...)
}

// isNumber tells whether v is an int, float or bool.
func (v Value) isNumber() bool {
	return v.kind == kindInt || v.kind == kindFloat || v.kind == kindBool
}

// isInteger tells whether v is an int or bool.
func (v Value) isInteger() bool { return v.kind == kindInt || v.kind == kindBool }

// isSmall tells whether v is an integer that fits into 64 bits.
func (v Value) isSmall() bool {
	return v.kind == kindBool || v.kind == kindInt && v.ref == nil
}

// bigInt returns an integer value as a big.Int that must not be changed.
func (v Value) bigInt() *big.Int {
	if v.ref != nil && v.kind == kindInt {
		return v.big()
	}
	return big.NewInt(v.num)
}

// number returns a number as a float64; an integer beyond its range is an OverflowError.
func (v Value) number() (float64, error) {
	switch {
	case v.kind == kindFloat:
		return v.float(), nil
	case v.isSmall():
		return float64(v.num), nil
	}
	f, _ := new(big.Float).SetInt(v.big()).Float64()
	if math.IsInf(f, 0) {
		return 0, overflowError("int too large to convert to float")
	}
	return f, nil
}

// floatToInt truncates a finite float to an integer.
func floatToInt(f float64) Value {
	if f > -9e18 && f < 9e18 {
		return Int(int64(f))
	}
	i, _ := big.NewFloat(math.Trunc(f)).Int(nil)
	return BigInt(i)
}

// parseInt is Python's int(text, base): spaces around, a sign, single underscores between digits, a prefix that fits the
// base.
func parseInt(text string, base int) (Value, bool) {
	s := strings.TrimFunc(text, isSpace)
	negative := false
	if s != "" && (s[0] == '+' || s[0] == '-') {
		negative = s[0] == '-'
		s = s[1:]
	}
	if base != 0 && (base < 2 || base > 36) {
		return Value{}, false
	}
	prefixed := false
	if len(s) > 2 && s[0] == '0' {
		prefix := 0
		switch s[1] {
		case 'x', 'X':
			prefix = 16
		case 'o', 'O':
			prefix = 8
		case 'b', 'B':
			prefix = 2
		}
		if prefix != 0 && (base == prefix || base == 0) {
			base, s, prefixed = prefix, s[2:], true
			s = strings.TrimPrefix(s, "_")
		}
	}
	decimalZero := base == 0
	if base == 0 {
		base = 10
	}
	digits := make([]byte, 0, len(s))
	lastUnderscore := true
	for _, r := range s {
		if r == '_' {
			if lastUnderscore {
				return Value{}, false
			}
			lastUnderscore = true
			continue
		}
		lastUnderscore = false
		if r > unicode.MaxASCII {
			d, ok := digitValue(r)
			if !ok {
				return Value{}, false
			}
			r = rune('0' + d)
		}
		digits = append(digits, byte(r))
	}
	if len(digits) == 0 || lastUnderscore || len(digits) > maxIntDigits && base&(base-1) != 0 || len(digits) > maxIntBits/4 {
		return Value{}, false
	}
	if decimalZero && !prefixed && len(digits) > 1 && digits[0] == '0' && strings.Trim(string(digits), "0") != "" {
		return Value{}, false
	}
	for _, d := range digits {
		if d == '+' || d == '-' {
			return Value{}, false
		}
	}
	if i, err := strconv.ParseInt(string(digits), base, 64); err == nil {
		if negative {
			i = -i
		}
		return Int(i), true
	}
	i, ok := new(big.Int).SetString(string(digits), base)
	if !ok {
		return Value{}, false
	}
	if negative {
		i.Neg(i)
	}
	return BigInt(i), true
}

// parseFloat is Python's float(text).
func parseFloat(text string) (float64, bool) {
	s := strings.TrimFunc(text, isSpace)
	clean := make([]byte, 0, len(s))
	var last rune
	for _, r := range s {
		if d, ok := digitValue(r); ok {
			r = rune('0' + d)
		} else if r > unicode.MaxASCII {
			return 0, false
		}
		if r == '_' {
			if last < '0' || last > '9' {
				return 0, false
			}
		} else {
			if last == '_' && (r < '0' || r > '9') {
				return 0, false
			}
			clean = append(clean, byte(r))
		}
		last = r
	}
	if last == '_' || len(clean) == 0 {
		return 0, false
	}
	word := strings.ToLower(strings.TrimLeft(string(clean), "+-"))
	switch word {
	case "inf", "infinity", "nan":
	default:
		for _, c := range word {
			if (c < '0' || c > '9') && c != '.' && c != 'e' && c != '+' && c != '-' {
				return 0, false
			}
		}
	}
	f, err := strconv.ParseFloat(string(clean), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// digitValue is the value of a decimal digit of any script.
func digitValue(r rune) (int, bool) {
	if r >= '0' && r <= '9' {
		return int(r - '0'), true
	}
	if r <= unicode.MaxASCII || !unicode.IsDigit(r) {
		return 0, false
	}
	// Decimal digits come in runs of ten; count back to the run's zero.
	for d := 0; d < 10; d++ {
		if !unicode.IsDigit(r - rune(d) - 1) {
			return d, true
		}
	}
	return runOfDigits(r), true
}

// runOfDigits handles scripts whose runs of ten follow each other without a gap.
func runOfDigits(r rune) int {
	start := r
	for unicode.IsDigit(start - 1) {
		start--
	}
	return int(r-start) % 10
}
