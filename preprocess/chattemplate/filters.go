package chattemplate

import "strings"

// filters are Jinja's filters, with tojson as transformers defines it.
var filters map[string]filterFunc

func init() {
	filters = map[string]filterFunc{
		"tojson": filterToJSON, "length": filterLength, "count": filterLength, "default": filterDefault, "d": filterDefault,
		"string": filterString, "trim": filterTrim, "upper": textFilter("upper", upper), "lower": textFilter("lower", lower),
		"capitalize": textFilter("capitalize", capitalize), "title": textFilter("title", titleWords), "replace": filterReplace,
		"indent": filterIndent, "center": filterCenter, "truncate": filterTruncate, "wordwrap": filterWordwrap, "wordcount": filterWordcount,
		"format": filterFormat, "striptags": filterStriptags, "urlencode": filterURLEncode, "pprint": filterPprint,
		"escape": filterEscape, "e": filterEscape, "forceescape": filterForceEscape, "safe": filterSafe, "xmlattr": filterXMLAttr,
		"urlize": unsupportedFilter("urlize"), "random": unsupportedFilter("random"),
		"int": filterInt, "float": filterFloat, "abs": filterAbs, "round": filterRound, "filesizeformat": filterFileSize,
		"sum": filterSum, "min": minMaxFilter("min", -1), "max": minMaxFilter("max", 1),
		"list": filterList, "first": filterFirst, "last": filterLast, "reverse": filterReverse, "join": filterJoin, "sort": filterSort,
		"unique": filterUnique, "batch": filterBatch, "slice": filterSlice, "groupby": filterGroupBy, "items": filterItems,
		"dictsort": filterDictSort, "attr": filterAttr, "map": filterMap,
		"select": selectFilter(true, false), "reject": selectFilter(false, false),
		"selectattr": selectFilter(true, true), "rejectattr": selectFilter(false, true),
	}
}

// filter finds a filter by name, the template's own first.
func (t *Template) filter(name string) filterFunc {
	if own := t.options.Filters[name]; own != nil {
		return func(m *machine, v Value, args arguments) (Value, error) {
			if len(args.names) > 0 {
				return v, typeError("%s() takes no keyword arguments", name)
			}
			r, err := own(v, append([]Value(nil), args.positional...))
			if err != nil {
				return r, valueError("%s: %s", name, err)
			}
			return r, nil
		}
	}
	return filters[name]
}

func unsupportedFilter(name string) filterFunc {
	return func(*machine, Value, arguments) (Value, error) {
		return Value{}, &RenderError{Class: "NotSupported", Message: "filter '" + name + "' is not supported in chat templates"}
	}
}

// softStr is v if it is a string, safe or not, else str(v).
func (m *machine) softStr(v Value) (Value, error) {
	if v.kind == kindString {
		return v, nil
	}
	s, err := m.str(v)
	return String(s), err
}

func textFilter(name string, change func(string) string) filterFunc {
	return func(m *machine, v Value, args arguments) (Value, error) {
		if err := args.none(name); err != nil {
			return v, err
		}
		s, err := m.softStr(v)
		if err != nil {
			return v, err
		}
		if err := m.allocate(int(s.num) + stringCost); err != nil {
			return v, err
		}
		return likeString(s, change(s.str())), nil
	}
}

// titleWords is Jinja's title filter, which starts words after fewer characters than str.title().
func titleWords(s string) string {
	isBreak := func(r rune) bool { return strings.ContainsRune("-({[<", r) || isSpace(r) }
	var b strings.Builder
	for s != "" {
		end := strings.IndexFunc(s, isBreak)
		if end < 0 {
			end = len(s)
		}
		if end > 0 {
			word := s[:end]
			size := byteOffset(word, 1)
			b.WriteString(upper(word[:size]) + lower(word[size:]))
		}
		s = s[end:]
		rest := strings.TrimLeftFunc(s, isBreak)
		b.WriteString(s[:len(s)-len(rest)])
		s = rest
	}
	return b.String()
}

func filterLength(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("length"); err != nil {
		return v, err
	}
	n, err := m.length(v)
	return Int(int64(n)), err
}

// length is Python's len().
func (m *machine) length(v Value) (int, error) {
	switch v.kind {
	case kindString:
		if err := m.spendScan(int(v.num)); err != nil {
			return 0, err
		}
		return runeCount(v.str()), nil
	case kindList, kindTuple:
		return len(v.items()), nil
	case kindDict:
		return len(v.dict().entries), nil
	case kindView:
		return len((*dictView)(v.ref).of.entries), nil
	case kindRange:
		return (*rangeValue)(v.ref).length(), nil
	case kindLoop:
		return (*loopContext)(v.ref).len(m)
	case kindMissing, kindUndefined:
		return 0, nil
	}
	if m.mini() {
		return 0, nil
	}
	return 0, typeError("object of type '%s' has no len()", v.typeName())
}

var defaultParams = params{fn: "default", names: []string{"default_value", "boolean"}}

func filterDefault(m *machine, v Value, args arguments) (Value, error) {
	var a [2]Value
	if err := defaultParams.bind(args, a[:]); err != nil {
		return v, err
	}
	use := v.isUndefined()
	if !use && a[1].Truthy() {
		t, err := m.truthy(v)
		if err != nil {
			return v, err
		}
		use = !t
	}
	switch {
	case !use:
		return v, nil
	case a[0].kind == kindMissing:
		return String(""), nil
	}
	return a[0], nil
}

func filterString(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("string"); err != nil {
		return v, err
	}
	if v.kind == kindFloat {
		return String(floatText(v.float())), nil
	}
	return m.softStr(v)
}

var trimParams = params{fn: "trim", names: []string{"chars"}}

func filterTrim(m *machine, v Value, args arguments) (Value, error) {
	var a [1]Value
	if len(args.positional)+len(args.names) > 0 {
		if err := trimParams.bind(args, a[:]); err != nil {
			return v, err
		}
	}
	s, err := m.softStr(v)
	if err != nil {
		return v, err
	}
	return strip("strip", s, a[0], true, true)
}

var replaceFilterParams = params{fn: "replace", names: []string{"old", "new", "count"}, required: 2}

func filterReplace(m *machine, v Value, args arguments) (Value, error) {
	var a [3]Value
	if err := replaceFilterParams.bind(args, a[:]); err != nil {
		return v, err
	}
	count := -1
	var err error
	if a[2].kind > kindNone {
		if count, err = wantInt("replace", a[2]); err != nil {
			return v, err
		}
	} else if a[2].kind == kindUndefined {
		return v, a[2].undefinedError()
	}
	var texts [3]string
	for i, from := range []Value{v, a[0], a[1]} {
		if texts[i], err = m.str(from); err != nil {
			return v, err
		}
	}
	s, err := m.replace(texts[0], texts[1], texts[2], count)
	return String(s), err
}

var indentParams = params{fn: "indent", names: []string{"width", "first", "blank"}}

func filterIndent(m *machine, v Value, args arguments) (Value, error) {
	var a [3]Value
	if err := indentParams.bind(args, a[:]); err != nil {
		return v, err
	}
	if v.kind != kindString {
		return v, unsupported(opAdd, v, String("\n"))
	}
	indent := "    "
	switch a[0].kind {
	case kindMissing:
	case kindString:
		indent = a[0].str()
		if v.safe && !a[0].safe {
			indent = escapeHTML(indent)
		}
	default:
		width, err := wantInt("indent", a[0])
		if err != nil {
			return v, err
		}
		if err := m.allocate(max(width, 0)); err != nil {
			return v, err
		}
		indent = strings.Repeat(" ", max(width, 0))
	}
	text := v.str()
	if m.mini() { // one line break at the end is lost
		text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	}
	rows := lines(text+"\n", false)
	if err := m.allocate(int(v.num) + len(rows)*(valueBytes+len(indent))); err != nil {
		return v, err
	}
	var b strings.Builder
	for i, row := range rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == 0 && a[1].Truthy() || i > 0 && (row != "" || a[2].Truthy()) {
			b.WriteString(indent)
		}
		b.WriteString(row)
	}
	return likeString(v, b.String()), nil
}

var centerParams = params{fn: "center", names: []string{"width"}}

func filterCenter(m *machine, v Value, args arguments) (Value, error) {
	var a [1]Value
	if err := centerParams.bind(args, a[:]); err != nil {
		return v, err
	}
	width := 80
	if a[0].kind != kindMissing {
		var err error
		if width, err = wantInt("center", a[0]); err != nil {
			return v, err
		}
	}
	s, err := m.softStr(v)
	if err != nil {
		return v, err
	}
	return m.justify(s, width, " ", 2)
}

func filterFormat(m *machine, v Value, args arguments) (Value, error) {
	if len(args.positional) > 0 && len(args.names) > 0 {
		return v, filterError("can't handle positional and keyword arguments at the same time")
	}
	s, err := m.softStr(v)
	if err != nil {
		return v, err
	}
	if len(args.names) > 0 {
		d := NewDict(len(args.names))
		for i, name := range args.names {
			d.Set(name, args.named[i])
		}
		return m.formatPercent(s, d.Value())
	}
	return m.formatPercent(s, tuple(append([]Value(nil), args.positional...)...))
}

func filterEscape(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("escape"); err != nil {
		return v, err
	}
	return m.escape(v)
}

func filterForceEscape(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("forceescape"); err != nil {
		return v, err
	}
	s, err := m.str(v)
	if err != nil {
		return v, err
	}
	return m.escape(String(s))
}

func filterSafe(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("safe"); err != nil {
		return v, err
	}
	s, err := m.str(v)
	return m.safe(s), err
}

func filterXMLAttr(m *machine, v Value, args arguments) (Value, error) {
	var a [1]Value
	if err := xmlattrParams.bind(args, a[:]); err != nil {
		return v, err
	}
	if v.kind != kindDict {
		return v, typeError("'%s' object has no attribute 'items'", v.typeName())
	}
	var b strings.Builder
	for _, e := range v.Entries() {
		if e.Value.kind <= kindNone {
			continue
		}
		if e.Key.kind != kindString {
			return v, typeError("expected string as attribute name, got '%s'", e.Key.typeName())
		}
		if strings.ContainsAny(e.Key.str(), " \t\n\r\f\v/>=") {
			return v, valueError("Invalid character in attribute name: '%s'", e.Key.str())
		}
		key, err := m.escape(e.Key)
		if err != nil {
			return v, err
		}
		value, err := m.escape(e.Value)
		if err != nil {
			return v, err
		}
		if b.Len() > 0 || a[0].kind == kindMissing || a[0].Truthy() {
			b.WriteByte(' ')
		}
		b.WriteString(key.str() + `="` + value.str() + `"`)
	}
	return String(b.String()), m.allocate(b.Len())
}

var xmlattrParams = params{fn: "xmlattr", names: []string{"autospace"}}
