package chattemplate

import (
	"fmt"
	"strings"
	"time"
)

// clock is the time of the render: the same one for all calls.
func (m *machine) clock() time.Time {
	if m.now.IsZero() {
		if m.template.options.Now != nil {
			m.now = m.template.options.Now()
		} else {
			m.now = time.Now()
		}
	}
	return m.now
}

// strftime is Python's datetime.strftime of a time without zone, in the C locale, with the GNU flags that platforms with
// glibc accept ("%-d", "%e" ...).
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		start := i
		i++
		var flag byte
		for i < len(format) && strings.IndexByte("-_0^#", format[i]) >= 0 {
			flag = format[i]
			i++
		}
		width := -1
		for i < len(format) && isDecimal(format[i]) && width < 100 {
			width = max(width, 0)*10 + int(format[i]-'0')
			i++
		}
		if i >= len(format) {
			b.WriteString(format[start:])
			break
		}
		text, ok := timeField(t, format[i], flag, width)
		if !ok {
			b.WriteString(format[start : i+1])
			continue
		}
		b.WriteString(text)
	}
	return b.String()
}

// timeField is one conversion of strftime.
func timeField(t time.Time, field, flag byte, width int) (string, bool) {
	number := func(n, digits int, pad byte) (string, bool) {
		switch flag {
		case '-':
			return fmt.Sprint(n), true
		case '_':
			pad = ' '
		case '0':
			pad = '0'
		}
		if width >= 0 {
			digits = width
		}
		text := fmt.Sprint(n)
		return strings.Repeat(string(pad), max(digits-len(text), 0)) + text, true
	}
	word := func(s string) (string, bool) {
		switch flag {
		case '^':
			s = strings.ToUpper(s)
		case '#':
			if field == 'p' {
				s = strings.ToLower(s)
			} else {
				s = strings.ToUpper(s)
			}
		}
		return strings.Repeat(" ", max(width-len(s), 0)) + s, true
	}
	hour12 := (t.Hour()+11)%12 + 1
	switch field {
	case 'a':
		return word(t.Weekday().String()[:3])
	case 'A':
		return word(t.Weekday().String())
	case 'b', 'h':
		return word(t.Month().String()[:3])
	case 'B':
		return word(t.Month().String())
	case 'c':
		return word(t.Format("Mon Jan _2 15:04:05 2006"))
	case 'C':
		return number(t.Year()/100, 2, '0')
	case 'd':
		return number(t.Day(), 2, '0')
	case 'D', 'x':
		return word(t.Format("01/02/06"))
	case 'e':
		return number(t.Day(), 2, ' ')
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'F':
		return word(t.Format("2006-01-02"))
	case 'g':
		year, _ := t.ISOWeek()
		return number(year%100, 2, '0')
	case 'G':
		year, _ := t.ISOWeek()
		return number(year, 4, '0')
	case 'H':
		return number(t.Hour(), 2, '0')
	case 'I':
		return number(hour12, 2, '0')
	case 'j':
		return number(t.YearDay(), 3, '0')
	case 'k':
		return number(t.Hour(), 2, ' ')
	case 'l':
		return number(hour12, 2, ' ')
	case 'm':
		return number(int(t.Month()), 2, '0')
	case 'M':
		return number(t.Minute(), 2, '0')
	case 'n':
		return "\n", true
	case 'p':
		return word(t.Format("PM"))
	case 'P':
		return word(t.Format("pm"))
	case 'r':
		return word(t.Format("03:04:05 PM"))
	case 'R':
		return word(t.Format("15:04"))
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 'S':
		return number(t.Second(), 2, '0')
	case 't':
		return "\t", true
	case 'T', 'X':
		return word(t.Format("15:04:05"))
	case 'u':
		return number((int(t.Weekday())+6)%7+1, 1, '0')
	case 'U':
		return number((t.YearDay()+6-int(t.Weekday()))/7, 2, '0')
	case 'V':
		_, week := t.ISOWeek()
		return number(week, 2, '0')
	case 'w':
		return number(int(t.Weekday()), 1, '0')
	case 'W':
		return number((t.YearDay()+6-(int(t.Weekday())+6)%7)/7, 2, '0')
	case 'y':
		return number(t.Year()%100, 2, '0')
	case 'Y':
		return number(t.Year(), 1, '0')
	case 'z', 'Z', ':':
		return "", field != ':'
	case '%':
		return "%", true
	}
	return "", false
}
