package chattemplate

import (
	"html"
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

var truncateParams = params{fn: "truncate", names: []string{"length", "killwords", "end", "leeway"}}

func filterTruncate(m *machine, v Value, args arguments) (Value, error) {
	var a [4]Value
	if err := truncateParams.bind(args, a[:]); err != nil {
		return v, err
	}
	length, leeway, end := 255, 5, "..."
	var err error
	if a[0].kind != kindMissing {
		if length, err = wantInt("truncate", a[0]); err != nil {
			return v, err
		}
	}
	if a[2].kind != kindMissing {
		if end, err = m.str(a[2]); err != nil {
			return v, err
		}
	}
	if a[3].kind > kindNone {
		if leeway, err = wantInt("truncate", a[3]); err != nil {
			return v, err
		}
	}
	if v.kind != kindString {
		// Python asks for the length first: what is short enough is left alone, whatever it is.
		if n, err := m.length(v); err != nil || n <= length+leeway {
			return v, err
		}
		return v, typeError("object of type '%s' cannot be shortened", v.typeName())
	}
	text := v
	if err := m.allocate(5 * int(text.num)); err != nil {
		return v, err
	}
	runes := []rune(text.str())
	if length < len([]rune(end)) {
		return v, &RenderError{Class: "AssertionError", Message: "expected length >= len(end)"}
	}
	if len(runes) <= length+leeway {
		return text, nil
	}
	head := string(runes[:length-len([]rune(end))])
	if !a[1].Truthy() {
		if at := strings.LastIndexByte(head, ' '); at >= 0 {
			head = head[:at]
		}
	}
	return likeString(text, head+end), nil
}

var wordwrapParams = params{fn: "wordwrap", names: []string{"width", "break_long_words", "wrapstring", "break_on_hyphens"}}

func filterWordwrap(m *machine, v Value, args arguments) (Value, error) {
	var a [4]Value
	if err := wordwrapParams.bind(args, a[:]); err != nil {
		return v, err
	}
	width, separator := 79, "\n"
	var err error
	if a[0].kind != kindMissing {
		if width, err = wantInt("wordwrap", a[0]); err != nil {
			return v, err
		}
	}
	if a[2].kind > kindNone {
		if separator, err = m.str(a[2]); err != nil {
			return v, err
		}
	}
	if width < 1 {
		return v, valueError("invalid width %d (must be > 0)", width)
	}
	if v.kind != kindString {
		return v, &RenderError{Class: "AttributeError", Message: "'" + v.typeName() + "' object has no attribute 'splitlines'"}
	}
	text := v
	if err := m.allocate((len(separator) + 8) * (int(text.num) + 1)); err != nil {
		return v, err
	}
	breakLong := a[1].kind == kindMissing || a[1].Truthy()
	var rows []string
	for _, line := range lines(text.str(), false) {
		rows = append(rows, wrapLine(line, width, breakLong)...)
	}
	return String(strings.Join(rows, separator)), nil
}

// wrapLine breaks one line at white space into rows of at most width characters.
func wrapLine(line string, width int, breakLong bool) []string {
	var rows []string
	row := []rune{}
	for _, word := range strings.FieldsFunc(line, unicode.IsSpace) {
		runes := []rune(word)
		if len(row) > 0 && len(row)+1+len(runes) > width {
			rows = append(rows, string(row))
			row = row[:0]
		}
		for breakLong && len(runes) > width {
			rows = append(rows, string(runes[:width]))
			runes = runes[width:]
		}
		if len(row) > 0 {
			row = append(row, ' ')
		}
		row = append(row, runes...)
	}
	return append(rows, string(row))
}

var wordPattern = regexp.MustCompile(`[\pL\pN_]+`)

func filterWordcount(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("wordcount"); err != nil {
		return v, err
	}
	text, err := m.softStr(v)
	if err != nil {
		return v, err
	}
	if err := m.spend(text.num); err != nil {
		return v, err
	}
	count := 0
	for rest := text.str(); ; count++ {
		at := wordPattern.FindStringIndex(rest)
		if at == nil {
			return Int(int64(count)), nil
		}
		rest = rest[at[1]:]
	}
}

var tagPattern = regexp.MustCompile(`(?s)<!--.*?-->|<[^>]*>`)

func filterStriptags(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("striptags"); err != nil {
		return v, err
	}
	text, err := m.softStr(v)
	if err != nil {
		return v, err
	}
	if err := m.allocate(3 * int(text.num)); err != nil {
		return v, err
	}
	plain := tagPattern.ReplaceAllString(text.str(), "")
	return String(html.UnescapeString(strings.Join(strings.Fields(plain), " "))), nil
}

func filterURLEncode(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("urlencode"); err != nil {
		return v, err
	}
	// A text keeps its slashes; in a query spaces become plus signs.
	quote := func(v Value, query bool) (string, error) {
		text, err := m.str(v)
		if err != nil {
			return "", err
		}
		if err := m.allocate(3 * len(text)); err != nil {
			return "", err
		}
		quoted := url.QueryEscape(text)
		if !query {
			quoted = strings.ReplaceAll(strings.ReplaceAll(quoted, "+", "%20"), "%2F", "/")
		}
		return strings.ReplaceAll(quoted, "%7E", "~"), nil
	}
	if !isIterable(v) || v.kind == kindString {
		text, err := quote(v, false)
		return String(text), err
	}
	pairs := v
	if v.kind == kindDict {
		var err error
		if pairs, err = filterItems(m, v, arguments{}); err != nil {
			return v, err
		}
	}
	var parts []string
	err := m.each(pairs, func(pair Value) error {
		items := pair.Items()
		if len(items) != 2 {
			return valueError("urlencode needs pairs")
		}
		key, err := quote(items[0], true)
		if err != nil {
			return err
		}
		value, err := quote(items[1], true)
		parts = append(parts, key+"="+value)
		return err
	})
	return String(strings.Join(parts, "&")), err
}

func filterPprint(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("pprint"); err != nil {
		return v, err
	}
	text, err := m.repr(v, false)
	return String(text), err
}
