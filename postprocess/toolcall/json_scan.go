package toolcall

// maxDepth bounds the nesting of JSON in calls.
const maxDepth = 128

// scanState is where a jsonScanner stands between two bytes.
type scanState uint8

const (
	scanValue     scanState = iota // a value must come
	scanFirstItem                  // a value or the array's end
	scanFirstKey                   // a key or the object's end
	scanKey                        // a key
	scanColon                      // the colon after a key
	scanNext                       // a comma or the end of what is open
	scanString                     // inside a string
	scanEscape                     // after a backslash
	scanHex                        // inside \u
	scanNumber                     // inside a number, loosely checked
	scanLiteral                    // inside true, false or null
)

// jsonScanner finds the end of one JSON object or array in text that arrives in pieces, looking at each byte once.
type jsonScanner struct {
	state   scanState
	isKey   bool // the string is a key
	hex     int  // digits of \u still to come
	literal string
	at      int // how much of literal was seen
	open    []byte
}

// scan goes on at from. It returns where the value ends (done), or where it stops being JSON (bad); with neither, all of the
// text belongs to the value so far.
func (s *jsonScanner) scan(text string, from int) (at int, done, bad bool) {
	for i := from; i < len(text); i++ {
		c := text[i]
		switch s.state {
		case scanString:
			switch {
			case c == '"':
				s.state = scanNext
				if s.isKey {
					s.state = scanColon
				}
			case c == '\\':
				s.state = scanEscape
			case c < ' ':
				return i, false, true
			}
		case scanEscape:
			switch c {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				s.state = scanString
			case 'u':
				s.state, s.hex = scanHex, 4
			default:
				return i, false, true
			}
		case scanHex:
			if hexDigit(c) < 0 {
				return i, false, true
			}
			if s.hex--; s.hex == 0 {
				s.state = scanString
			}
		case scanLiteral:
			if c != s.literal[s.at] {
				return i, false, true
			}
			if s.at++; s.at == len(s.literal) {
				s.state = scanNext
			}
		case scanNumber:
			if c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-' {
				continue
			}
			s.state = scanNext
			i--
		default:
			if c == ' ' || c == '\n' || c == '\t' || c == '\r' {
				continue
			}
			if !s.structure(c) {
				return i, false, true
			}
			if len(s.open) == 0 {
				return i + 1, true, false
			}
		}
	}
	return len(text), false, false
}

// structure takes a byte outside of strings, numbers and literals.
func (s *jsonScanner) structure(c byte) bool {
	switch s.state {
	case scanValue, scanFirstItem:
		if c == ']' && s.state == scanFirstItem {
			return s.close(c)
		}
		return s.value(c)
	case scanFirstKey, scanKey:
		if c == '}' && s.state == scanFirstKey {
			return s.close(c)
		}
		s.state, s.isKey = scanString, true
		return c == '"'
	case scanColon:
		s.state = scanValue
		return c == ':'
	default: // scanNext
		if c != ',' {
			return s.close(c)
		}
		s.state = scanValue
		if s.open[len(s.open)-1] == '}' {
			s.state = scanKey
		}
		return true
	}
}

func (s *jsonScanner) value(c byte) bool {
	switch c {
	case '{':
		s.open, s.state = append(s.open, '}'), scanFirstKey
		return len(s.open) <= maxDepth
	case '[':
		s.open, s.state = append(s.open, ']'), scanFirstItem
		return len(s.open) <= maxDepth
	case '"':
		s.state, s.isKey = scanString, false
	case 't':
		s.state, s.literal, s.at = scanLiteral, "true", 1
	case 'f':
		s.state, s.literal, s.at = scanLiteral, "false", 1
	case 'n':
		s.state, s.literal, s.at = scanLiteral, "null", 1
	default:
		s.state = scanNumber
		if c != '-' && (c < '0' || c > '9') {
			return false
		}
	}
	// Only objects and arrays stand alone.
	return len(s.open) > 0
}

func (s *jsonScanner) close(c byte) bool {
	last := len(s.open) - 1
	if last < 0 || s.open[last] != c {
		return false
	}
	s.open, s.state = s.open[:last], scanNext
	return true
}

// repaired returns the text with what is open closed, and whether that was needed: the text of a call that was cut off by a
// token limit becomes one that can be read.
func repaired(text string) (string, bool) {
	var open []byte
	inString, escape := false, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case escape:
			escape = false
		case inString && c == '\\':
			escape = true
		case c == '"':
			inString = !inString
		case inString:
		case c == '{':
			open = append(open, '}')
		case c == '[':
			open = append(open, ']')
		case c == '}' || c == ']':
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
		}
	}
	if !escape && !inString && len(open) == 0 {
		return text, false
	}
	b := append(make([]byte, 0, len(text)+len(open)+2), text...)
	if escape {
		b = append(b, '\\')
	}
	if inString {
		b = append(b, '"')
	}
	for i := len(open) - 1; i >= 0; i-- {
		b = append(b, open[i])
	}
	return string(b), true
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
