package chattemplate

import (
	"strings"
	"unicode/utf8"
)

var justifyParams = params{fn: "ljust", names: []string{"width", "fillchar"}, required: 1, positionalOnly: true}

// justifyMethod is ljust (side 0), rjust (1) or center (2).
func justifyMethod(name string, side int) method {
	return func(m *machine, self Value, args arguments) (Value, error) {
		var a [2]Value
		if err := justifyParams.bind(args, a[:]); err != nil {
			return self, err
		}
		width, err := wantInt(name, a[0])
		if err != nil {
			return self, err
		}
		fill := " "
		if a[1].kind != kindMissing {
			if fill, err = wantText(name, a[1]); err != nil {
				return self, err
			}
			if self.safe && !a[1].safe {
				fill = escapeHTML(fill)
			}
			if utf8.RuneCountInString(fill) != 1 {
				return self, typeError("The fill character must be exactly one character long")
			}
		}
		return m.justify(self, width, fill, side)
	}
}

func (m *machine) justify(self Value, width int, fill string, side int) (Value, error) {
	s := self.str()
	n := utf8.RuneCountInString(s)
	pad := width - n
	if pad <= 0 {
		return self, nil
	}
	if pad > 1<<40 {
		return self, m.allocate(-1)
	}
	if err := m.allocate(len(s) + pad*len(fill) + stringCost); err != nil {
		return self, err
	}
	left := 0
	switch side {
	case 1:
		left = pad
	case 2:
		left = pad/2 + pad&width&1
	}
	return likeString(self, strings.Repeat(fill, left)+s+strings.Repeat(fill, pad-left)), nil
}

var zfillParams = params{fn: "zfill", names: []string{"width"}, required: 1, positionalOnly: true}

func textZfill(m *machine, self Value, args arguments) (Value, error) {
	var a [1]Value
	if err := zfillParams.bind(args, a[:]); err != nil {
		return self, err
	}
	width, err := wantInt("zfill", a[0])
	if err != nil {
		return self, err
	}
	s := self.str()
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	v, err := m.justify(String(s), width-len(sign), "0", 1)
	if err != nil {
		return self, err
	}
	return likeString(self, sign+v.str()), nil
}

var expandtabsParams = params{fn: "expandtabs", names: []string{"tabsize"}}

func textExpandtabs(m *machine, self Value, args arguments) (Value, error) {
	a := [1]Value{}
	if err := expandtabsParams.bind(args, a[:]); err != nil {
		return self, err
	}
	size := 8
	if a[0].kind != kindMissing {
		var err error
		if size, err = wantInt("expandtabs", a[0]); err != nil {
			return self, err
		}
	}
	var b strings.Builder
	column := 0
	for _, r := range self.str() {
		switch r {
		case '\t':
			if size > 0 {
				n := size - column%size
				if err := m.allocate(n); err != nil {
					return self, err
				}
				b.WriteString(strings.Repeat(" ", n))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
		}
		b.WriteRune(r)
		column++
	}
	return likeString(self, b.String()), m.allocate(b.Len())
}

var translateParams = params{fn: "translate", names: []string{"table"}, required: 1, positionalOnly: true}

func textTranslate(m *machine, self Value, args arguments) (Value, error) {
	var a [1]Value
	if err := translateParams.bind(args, a[:]); err != nil {
		return self, err
	}
	if a[0].kind != kindDict {
		return self, &RenderError{Class: "NotSupported", Message: "translate() with a " + a[0].typeName() + " is not supported"}
	}
	var b strings.Builder
	for _, r := range self.str() {
		v, ok, err := a[0].dict().get(Int(int64(r)))
		switch {
		case err != nil:
			return self, err
		case !ok:
			b.WriteRune(r)
		case v.kind == kindNone:
		case v.kind == kindString:
			if err := m.allocate(int(v.num)); err != nil {
				return self, err
			}
			b.WriteString(v.str())
		case v.isSmall() && v.num >= 0 && v.num <= utf8.MaxRune:
			b.WriteRune(rune(v.num))
		default:
			return self, typeError("character mapping must return integer, None or str")
		}
	}
	return likeString(self, b.String()), m.allocate(b.Len())
}
