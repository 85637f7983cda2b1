package chattemplate

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

// textFormat is str.format.
func textFormat(m *machine, self Value, args arguments) (Value, error) {
	named := func(name string) (Value, bool, error) {
		for i, n := range args.names {
			if n == name {
				return args.named[i], true, nil
			}
		}
		return Value{}, false, nil
	}
	return m.formatBraces(self, args.positional, named)
}

var formatMapParams = params{fn: "format_map", names: []string{"mapping"}, required: 1, positionalOnly: true}

func textFormatMap(m *machine, self Value, args arguments) (Value, error) {
	var a [1]Value
	if err := formatMapParams.bind(args, a[:]); err != nil {
		return self, err
	}
	return m.formatBraces(self, nil, func(name string) (Value, bool, error) {
		return m.element(a[0], String(name))
	})
}

type namedArgument func(name string) (Value, bool, error)

// braces is one str.format in progress.
type braces struct {
	m          *machine
	safe       bool
	positional []Value
	named      namedArgument
	next       int  // next automatic index
	automatic  bool // {} has been used
	manual     bool // {0} has been used
}

func (m *machine) formatBraces(self Value, positional []Value, named namedArgument) (Value, error) {
	f := &braces{m: m, safe: self.safe, positional: positional, named: named}
	text, err := f.format(self.str(), 2)
	return likeString(self, text), err
}

func (f *braces) format(s string, depth int) (string, error) {
	if depth < 0 {
		return "", valueError("Max string recursion exceeded")
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		c := s[i]
		s = s[i+1:]
		if s != "" && s[0] == c {
			b.WriteByte(c)
			s = s[1:]
			continue
		}
		if c == '}' {
			return "", valueError("Single '}' encountered in format string")
		}
		field, rest, err := cutField(s)
		if err != nil {
			return "", err
		}
		s = rest
		text, err := f.field(field, depth)
		if err != nil {
			return "", err
		}
		if err := f.m.allocate(len(text) + stringCost); err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	return b.String(), f.m.allocate(b.Len())
}

// cutField cuts a replacement field off, up to the brace that closes it.
func cutField(s string) (field, rest string, err error) {
	open := 1
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '[':
			// Braces within an index are part of it.
			if end := strings.IndexByte(s[i:], ']'); end >= 0 && !strings.ContainsAny(s[:i], ":!") {
				i += end
			}
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return s[:i], s[i+1:], nil
			}
		}
	}
	return "", "", valueError("expected '}' before end of string")
}

// field formats the inside of {...}: name[!conversion][:spec].
func (f *braces) field(field string, depth int) (string, error) {
	name, spec := field, ""
	conversion := byte(0)
	bracket := false
	for i := 0; i < len(field); i++ {
		c := field[i]
		switch {
		case c == '[':
			bracket = true
		case c == ']':
			bracket = false
		case bracket:
		case c == '!':
			name = field[:i]
			if i+1 >= len(field) {
				return "", valueError("end of string while looking for conversion specifier")
			}
			conversion = field[i+1]
			if i+2 < len(field) {
				if field[i+2] != ':' {
					return "", valueError("expected ':' after conversion specifier")
				}
				spec = field[i+3:]
			}
			i = len(field)
		case c == ':':
			name, spec = field[:i], field[i+1:]
			i = len(field)
		}
	}
	v, err := f.lookup(name)
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(spec, "{}") {
		if spec, err = f.format(spec, depth-1); err != nil {
			return "", err
		}
	}
	switch conversion {
	case 0:
	case 's':
		s, err := f.m.str(v)
		if err != nil {
			return "", err
		}
		v = String(s)
	case 'r', 'a':
		s, err := f.m.repr(v, conversion == 'a')
		if err != nil {
			return "", err
		}
		v = String(s)
	default:
		return "", valueError("Unknown conversion specifier %c", conversion)
	}
	if f.safe {
		if v.kind == kindString && v.safe {
			if spec != "" {
				return "", valueError("Format specifier %s given, but Markup has no __html_format__", spec)
			}
			return v.str(), nil
		}
		s, err := f.m.format(v, spec)
		return escapeHTML(s), err
	}
	return f.m.format(v, spec)
}

// repr is Python's repr(v), or ascii(v).
func (m *machine) repr(v Value, ascii bool) (string, error) {
	start := len(m.out)
	if err := m.appendRepr(v, 0); err != nil {
		return "", err
	}
	r, err := m.capture(start)
	if err != nil || !ascii || isASCII(r.str()) {
		return r.str(), err
	}
	var b strings.Builder
	for _, c := range r.str() {
		if c < utf8.RuneSelf {
			b.WriteRune(c)
			continue
		}
		b.WriteString(escapeRune(c))
	}
	return b.String(), nil
}

// lookup finds the value of a field name: an argument, then attributes and elements of it.
func (f *braces) lookup(name string) (Value, error) {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	v, err := f.argument(name[:end])
	rest := name[end:]
	for err == nil && rest != "" {
		if rest[0] == '.' {
			rest = rest[1:]
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return v, valueError("Empty attribute in format string")
			}
			v, err = f.m.getattr(v, rest[:end])
			rest = rest[end:]
			continue
		}
		close := strings.IndexByte(rest, ']')
		if rest[0] != '[' || close < 0 {
			return v, valueError("Missing ']' in format string")
		}
		key := rest[1:close]
		rest = rest[close+1:]
		if key == "" {
			return v, valueError("Empty attribute in format string")
		}
		if rest != "" && rest[0] != '.' && rest[0] != '[' {
			return v, valueError("Only '.' or '[' may follow ']' in format field specifier")
		}
		if n, ok := plainIndex(key); ok {
			v, err = f.m.getitem(v, Int(int64(n)))
		} else {
			v, err = f.m.getitem(v, String(key))
		}
	}
	return v, err
}

func plainIndex(s string) (int, bool) {
	n := 0
	for i := range s {
		if !isDecimal(s[i]) || n > 1<<40 {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, s != ""
}

func (f *braces) argument(name string) (Value, error) {
	index, isIndex := plainIndex(name)
	if name == "" {
		if f.manual {
			return Value{}, valueError("cannot switch from manual field specification to automatic field numbering")
		}
		f.automatic, isIndex = true, true
		index = f.next
		f.next++
	} else if isIndex {
		if f.automatic {
			return Value{}, valueError("cannot switch from automatic field numbering to manual field specification")
		}
		f.manual = true
	}
	if isIndex {
		if index >= len(f.positional) {
			return Value{}, &RenderError{Class: "IndexError", Message: "Replacement index out of range for positional args tuple"}
		}
		return f.positional[index], nil
	}
	v, ok, err := f.named(name)
	if err == nil && !ok {
		err = &RenderError{Class: "KeyError", Message: "'" + name + "'"}
	}
	return v, err
}

// formatPercent is Python's format % arguments.
func (m *machine) formatPercent(format, args Value) (Value, error) {
	p := &percent{m: m, safe: format.safe, args: []Value{args}, mapping: args}
	switch args.kind {
	case kindTuple:
		p.args = args.items()
	case kindDict, kindList, kindRange, kindView, kindMissing, kindUndefined:
		p.optional = true // Python does not mind if such an argument is not used
	}
	text, err := p.format(format.str())
	return likeString(format, text), err
}

type percent struct {
	m        *machine
	safe     bool
	args     []Value
	used     int
	mapping  Value
	optional bool
}

func (p *percent) next() (Value, error) {
	if p.used >= len(p.args) {
		return Value{}, typeError("not enough arguments for format string")
	}
	p.used++
	return p.args[p.used-1], nil
}

func (p *percent) format(s string) (string, error) {
	var b strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		text, rest, err := p.conversion(s[i+1:])
		if err != nil {
			return "", err
		}
		if err := p.m.allocate(len(text) + stringCost); err != nil {
			return "", err
		}
		b.WriteString(text)
		s = rest
	}
	if p.used < len(p.args) && !p.optional {
		return "", typeError("not all arguments converted during string formatting")
	}
	return b.String(), p.m.allocate(b.Len())
}

// conversion formats what follows a percent sign.
func (p *percent) conversion(s string) (text, rest string, err error) {
	spec := formatSpec{fill: " ", align: '>', width: -1, precision: -1}
	incomplete := valueError("incomplete format")
	var v Value
	keyed := false
	if s != "" && s[0] == '(' {
		open, end := 1, 1
		for end < len(s) && open > 0 {
			switch s[end] {
			case '(':
				open++
			case ')':
				open--
			}
			end++
		}
		if open > 0 {
			return "", "", valueError("incomplete format key")
		}
		if p.mapping.kind != kindDict {
			return "", "", typeError("format requires a mapping")
		}
		key := s[1 : end-1]
		var ok bool
		if v, ok = p.mapping.dict().getString(key); !ok {
			return "", "", &RenderError{Class: "KeyError", Message: "'" + key + "'"}
		}
		keyed, p.optional = true, true
		s = s[end:]
	}
	left, zero := false, false
flags:
	for s != "" {
		switch s[0] {
		case '-':
			left = true
		case '+':
			spec.sign = '+'
		case ' ':
			if spec.sign == 0 {
				spec.sign = ' '
			}
		case '#':
			spec.alternate = true
		case '0':
			zero = true
		default:
			break flags
		}
		s = s[1:]
	}
	number := func() (int, error) {
		if s != "" && s[0] == '*' {
			s = s[1:]
			v, err := p.next()
			if err != nil {
				return 0, err
			}
			if !v.isInteger() {
				return 0, typeError("* wants int")
			}
			return wantInt("%", v)
		}
		n := -1
		for s != "" && isDecimal(s[0]) {
			n = max(n, 0)*10 + int(s[0]-'0')
			if n > maxFormatWidth {
				return 0, valueError("width too big")
			}
			s = s[1:]
		}
		return n, nil
	}
	if spec.width, err = number(); err != nil {
		return "", "", err
	}
	if spec.width < -1 {
		left, spec.width = true, -spec.width
	}
	if s != "" && s[0] == '.' {
		s = s[1:]
		if spec.precision, err = number(); err != nil {
			return "", "", err
		}
		spec.precision = max(spec.precision, 0)
	}
	if spec.width > maxFormatWidth || spec.precision > maxFormatWidth {
		return "", "", valueError("width or precision too big")
	}
	for s != "" && (s[0] == 'l' || s[0] == 'h' || s[0] == 'L') {
		s = s[1:]
	}
	if s == "" {
		return "", "", incomplete
	}
	r, size := utf8.DecodeRuneInString(s)
	rest = s[size:]
	if r == '%' {
		return "%", rest, nil
	}
	if !keyed {
		if v, err = p.next(); err != nil {
			return "", "", err
		}
	}
	if left {
		spec.align = '<'
	} else if zero && strings.ContainsRune("diuoxXeEfFgG", r) {
		spec.align, spec.fill = '=', "0"
	}
	if err := p.m.allocate(max(spec.width, 0) + max(spec.precision, 0)); err != nil {
		return "", "", err
	}
	text, err = p.verb(v, r, &spec)
	return text, rest, err
}

func (p *percent) verb(v Value, verb rune, spec *formatSpec) (string, error) {
	switch verb {
	case 's', 'r', 'a':
		var s string
		var err error
		if verb == 's' {
			s, err = p.m.str(v)
		} else {
			s, err = p.m.repr(v, verb == 'a')
		}
		if err != nil {
			return "", err
		}
		if p.safe && !(v.kind == kindString && v.safe) {
			s = escapeHTML(s)
		}
		if spec.precision >= 0 {
			s = s[:byteOffset(s, spec.precision)]
		}
		return spec.pad("", s, '>'), nil
	case 'c':
		switch {
		case v.kind == kindString && utf8.RuneCountInString(v.str()) == 1:
			return spec.pad("", v.str(), '>'), nil
		case v.isSmall() && v.num >= 0 && v.num <= utf8.MaxRune:
			return spec.pad("", string(rune(v.num)), '>'), nil
		}
		return "", typeError("%%c requires int or char")
	case 'd', 'i', 'u', 'o', 'x', 'X':
		return percentInt(v, verb, spec)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if !v.isNumber() {
			return "", typeError("must be real number, not %s", v.typeName())
		}
		f, err := v.number()
		if err != nil {
			return "", err
		}
		spec.verb = byte(verb)
		return spec.formatFloat(f), nil
	}
	return "", valueError("unsupported format character '%c' (0x%x)", verb, verb)
}

func percentInt(v Value, verb rune, spec *formatSpec) (string, error) {
	if !v.isNumber() || v.kind == kindFloat && strings.ContainsRune("oxX", verb) {
		return "", typeError("%%%c format: a real number is required, not %s", verb, v.typeName())
	}
	if v.kind == kindFloat {
		var err error
		if v, err = truncate(v.float()); err != nil {
			return "", err
		}
	}
	base, prefix := 10, ""
	switch verb {
	case 'o':
		base, prefix = 8, "0o"
	case 'x':
		base, prefix = 16, "0x"
	case 'X':
		base, prefix = 16, "0X"
	}
	i := v.bigInt()
	digits := new(big.Int).Abs(i).Text(base)
	if base == 10 && len(digits) > maxIntDigits {
		return "", valueError("Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	if verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	if spec.precision > len(digits) {
		digits = strings.Repeat("0", spec.precision-len(digits)) + digits
	}
	if !spec.alternate {
		prefix = ""
	}
	return spec.pad(spec.signOf(i.Sign() < 0)+prefix, digits, '>'), nil
}
