package chattemplate

import (
	"strings"
	"unicode/utf8"
)

// textMethods are the methods of Python's str.
var textMethods map[string]method

func init() {
	textMethods = map[string]method{
		"strip": stripMethod("strip", true, true), "lstrip": stripMethod("lstrip", true, false), "rstrip": stripMethod("rstrip", false, true),
		"split": splitMethod("split", false), "rsplit": splitMethod("rsplit", true), "splitlines": textSplitlines,
		"startswith": affixMethod("startswith", strings.HasPrefix), "endswith": affixMethod("endswith", strings.HasSuffix),
		"removeprefix": removeMethod("removeprefix", strings.TrimPrefix), "removesuffix": removeMethod("removesuffix", strings.TrimSuffix),
		"replace": textReplace, "join": textJoin,
		"find": findMethod("find", strings.Index), "rfind": findMethod("rfind", strings.LastIndex),
		"index": indexMethod("index", strings.Index), "rindex": indexMethod("rindex", strings.LastIndex), "count": textCount,
		"partition": textPartition, "rpartition": textRpartition,
		"upper": caseMethod("upper", upper), "lower": caseMethod("lower", lower), "title": caseMethod("title", title),
		"capitalize": caseMethod("capitalize", capitalize), "swapcase": caseMethod("swapcase", swapcase), "casefold": caseMethod("casefold", casefold),
		"ljust": justifyMethod("ljust", 0), "rjust": justifyMethod("rjust", 1), "center": justifyMethod("center", 2), "zfill": textZfill,
		"expandtabs": textExpandtabs, "format": textFormat, "format_map": textFormatMap, "translate": textTranslate,
		"isalpha": isMethod("isalpha", isAlpha), "isalnum": isMethod("isalnum", isAlnum), "isdigit": isMethod("isdigit", isDigit),
		"isdecimal": isMethod("isdecimal", isDecimalDigit), "isnumeric": isMethod("isnumeric", isNumeric), "isspace": isMethod("isspace", isSpace),
		"islower": testMethod("islower", isLower), "isupper": testMethod("isupper", isUpper), "istitle": testMethod("istitle", isTitle),
		"isascii": testMethod("isascii", isASCII), "isprintable": testMethod("isprintable", allPrintable), "isidentifier": testMethod("isidentifier", isIdentifier),
		"encode": unsupportedMethod("str.encode"), "maketrans": unsupportedMethod("str.maketrans"),
	}
}

func unsupportedMethod(name string) method {
	return func(*machine, Value, arguments) (Value, error) {
		return Value{}, &RenderError{Class: "NotSupported", Message: name + "() is not supported in chat templates"}
	}
}

// wantText returns the text of an argument that must be a string.
func wantText(fn string, v Value) (string, error) {
	if v.kind != kindString {
		return "", typeError("%s() argument must be str, not %s", fn, v.typeName())
	}
	return v.str(), nil
}

// wantInt returns the number of an argument that must be an integer.
func wantInt(fn string, v Value) (int, error) {
	if v.isUndefined() {
		return 0, v.undefinedError()
	}
	if !v.isInteger() {
		return 0, typeError("%s(): '%s' object cannot be interpreted as an integer", fn, v.typeName())
	}
	if !v.isSmall() {
		return 0, overflowError("Python int too large to convert to C ssize_t")
	}
	return int(v.num), nil
}

func stripMethod(name string, left, right bool) method {
	p := params{fn: name, names: []string{"chars"}, positionalOnly: true}
	return func(m *machine, self Value, args arguments) (Value, error) {
		var a [1]Value
		if len(args.positional)+len(args.names) > 0 {
			if err := p.bind(args, a[:]); err != nil {
				return self, err
			}
		}
		return strip(name, self, a[0], left, right)
	}
}

func strip(name string, self, chars Value, left, right bool) (Value, error) {
	set, all := "", chars.kind == kindMissing || chars.kind == kindNone
	if !all {
		var err error
		if set, err = wantText(name, chars); err != nil {
			return self, err
		}
	}
	s := self.str()
	if left {
		s = trimLeft(s, set, all)
	}
	if right {
		s = trimRight(s, set, all)
	}
	return likeString(self, s), nil
}

var splitParams = params{fn: "split", names: []string{"sep", "maxsplit"}}

func splitMethod(name string, fromRight bool) method {
	return func(m *machine, self Value, args arguments) (Value, error) {
		var a [2]Value
		if err := splitParams.bind(args, a[:]); err != nil {
			return self, err
		}
		limit := -1
		if a[1].kind != kindMissing {
			var err error
			if limit, err = wantInt(name, a[1]); err != nil {
				return self, err
			}
		}
		s := self.str()
		if a[0].kind == kindMissing || a[0].kind == kindNone {
			if fromRight {
				return m.texts(self, lastFieldsN(s, limit))
			}
			return m.texts(self, fieldsN(s, limit))
		}
		sep, err := wantText(name, a[0])
		if err != nil {
			return self, err
		}
		if sep == "" {
			return self, valueError("empty separator")
		}
		switch {
		case fromRight:
			return m.texts(self, lastSplitN(s, sep, limit))
		case limit < 0:
			return m.splitText(self, s, sep)
		}
		return m.texts(self, strings.SplitN(s, sep, limit+1))
	}
}

// splitText splits without making an intermediate slice of strings.
func (m *machine) splitText(self Value, s, sep string) (Value, error) {
	n := strings.Count(s, sep) + 1
	if err := m.allocateValues(n); err != nil {
		return self, err
	}
	items := make([]Value, 0, n)
	for {
		i := strings.Index(s, sep)
		if i < 0 {
			return List(append(items, likeString(self, s))), nil
		}
		items = append(items, likeString(self, s[:i]))
		s = s[i+len(sep):]
	}
}

// texts returns a list of strings, safe if like is.
func (m *machine) texts(like Value, parts []string) (Value, error) {
	if err := m.allocateValues(2 * len(parts)); err != nil {
		return like, err
	}
	items := make([]Value, len(parts))
	for i, part := range parts {
		items[i] = likeString(like, part)
	}
	return List(items), nil
}

var splitlinesParams = params{fn: "splitlines", names: []string{"keepends"}}

func textSplitlines(m *machine, self Value, args arguments) (Value, error) {
	var a [1]Value
	if err := splitlinesParams.bind(args, a[:]); err != nil {
		return self, err
	}
	return m.texts(self, lines(self.str(), a[0].Truthy()))
}

// textRange cuts the part of a string that the optional arguments start and end select; at is where it begins, in bytes,
// and ok is false if start is behind the end of the string.
func textRange(fn, s string, start, end Value) (part string, at int, ok bool, err error) {
	if start.kind <= kindMissing && end.kind <= kindMissing {
		return s, 0, true, nil
	}
	n := utf8.RuneCountInString(s)
	bound := func(v Value, otherwise int) (int, error) {
		if v.kind == kindMissing || v.kind == kindNone {
			return otherwise, nil
		}
		i, err := wantInt(fn, v)
		if i < 0 {
			i = max(i+n, 0)
		}
		return i, err
	}
	from, err := bound(start, 0)
	if err != nil {
		return "", 0, false, err
	}
	to, err := bound(end, n)
	if err != nil {
		return "", 0, false, err
	}
	to = min(to, n)
	if from > to {
		return "", 0, false, nil
	}
	at = byteOffset(s, from)
	return s[at : at+byteOffset(s[at:], to-from)], at, true, nil
}

func affixMethod(name string, has func(s, affix string) bool) method {
	p := params{fn: name, names: []string{"prefix", "start", "end"}, required: 1, positionalOnly: true}
	return func(m *machine, self Value, args arguments) (Value, error) {
		var a [3]Value
		if err := p.bind(args, a[:]); err != nil {
			return self, err
		}
		s, _, ok, err := textRange(name, self.str(), a[1], a[2])
		if err != nil {
			return self, err
		}
		affixes := []Value{a[0]}
		if a[0].kind == kindTuple {
			affixes = a[0].items()
		}
		for _, affix := range affixes {
			if affix.kind != kindString {
				return self, typeError("%s first arg must be str or a tuple of str, not %s", name, affix.typeName())
			}
			if ok && has(s, affix.str()) {
				return True, nil
			}
		}
		return False, nil
	}
}

func removeMethod(name string, remove func(s, affix string) string) method {
	p := params{fn: name, names: []string{"affix"}, required: 1, positionalOnly: true}
	return func(m *machine, self Value, args arguments) (Value, error) {
		var a [1]Value
		if err := p.bind(args, a[:]); err != nil {
			return self, err
		}
		affix, err := wantText(name, a[0])
		return likeString(self, remove(self.str(), affix)), err
	}
}

var replaceParams = params{fn: "replace", names: []string{"old", "new", "count"}, required: 2, positionalOnly: true}

func textReplace(m *machine, self Value, args arguments) (Value, error) {
	var a [3]Value
	if err := replaceParams.bind(args, a[:]); err != nil {
		return self, err
	}
	count := -1
	if a[2].kind != kindMissing {
		var err error
		if count, err = wantInt("replace", a[2]); err != nil {
			return self, err
		}
	}
	if a[0].kind != kindString || a[1].kind != kindString && !self.safe {
		return self, typeError("replace() arguments must be str, not %s and %s", a[0].typeName(), a[1].typeName())
	}
	replacement := a[1]
	if self.safe {
		var err error
		if replacement, err = m.escape(replacement); err != nil {
			return self, err
		}
	}
	s, err := m.replace(self.str(), a[0].str(), replacement.str(), count)
	return likeString(self, s), err
}

// replace replaces at most count occurrences, all if count is negative.
func (m *machine) replace(s, old, replacement string, count int) (string, error) {
	if err := m.spendScan(len(s)); err != nil {
		return s, err
	}
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	if n == 0 {
		return s, nil
	}
	if n > 1<<40/(len(replacement)+1) {
		return s, m.allocate(-1)
	}
	if err := m.allocate(len(s) + n*(len(replacement)-len(old)) + stringCost); err != nil {
		return s, err
	}
	return strings.Replace(s, old, replacement, n), nil
}

func textJoin(m *machine, self Value, args arguments) (Value, error) {
	var a [1]Value
	if err := joinMethodParams.bind(args, a[:]); err != nil {
		return self, err
	}
	items, err := m.list(a[0])
	if err != nil {
		return self, err
	}
	parts := items
	if self.safe {
		parts = make([]Value, len(items))
	}
	for i, item := range items {
		switch {
		case self.safe:
			if parts[i], err = m.escape(item); err != nil {
				return self, err
			}
		case item.kind != kindString:
			return self, typeError("sequence item %d: expected str instance, %s found", i, item.typeName())
		}
	}
	if err := m.spend(int64(len(items))); err != nil {
		return self, err
	}
	v, err := m.join(parts, self.str())
	v.safe = self.safe
	return v, err
}

var joinMethodParams = params{fn: "join", names: []string{"iterable"}, required: 1, positionalOnly: true}

var findParams = params{fn: "find", names: []string{"sub", "start", "end"}, required: 1, positionalOnly: true}

// findText returns the index of a character, or -1.
func findText(name string, self Value, args arguments, find func(s, sub string) int) (int, error) {
	var a [3]Value
	if err := findParams.bind(args, a[:]); err != nil {
		return 0, err
	}
	sub, err := wantText(name, a[0])
	if err != nil {
		return 0, err
	}
	s := self.str()
	part, at, ok, err := textRange(name, s, a[1], a[2])
	if err != nil || !ok {
		return -1, err
	}
	i := find(part, sub)
	if i < 0 {
		return -1, nil
	}
	return utf8.RuneCountInString(s[:at+i]), nil
}

func findMethod(name string, find func(s, sub string) int) method {
	return func(m *machine, self Value, args arguments) (Value, error) {
		i, err := findText(name, self, args, find)
		return Int(int64(i)), err
	}
}

func indexMethod(name string, find func(s, sub string) int) method {
	return func(m *machine, self Value, args arguments) (Value, error) {
		i, err := findText(name, self, args, find)
		if err == nil && i < 0 {
			err = valueError("substring not found")
		}
		return Int(int64(i)), err
	}
}

func textCount(m *machine, self Value, args arguments) (Value, error) {
	var a [3]Value
	if err := findParams.bind(args, a[:]); err != nil {
		return self, err
	}
	sub, err := wantText("count", a[0])
	if err != nil {
		return self, err
	}
	part, _, ok, err := textRange("count", self.str(), a[1], a[2])
	if err != nil || !ok {
		return Int(0), err
	}
	return Int(int64(strings.Count(part, sub))), nil
}

var partitionParams = params{fn: "partition", names: []string{"sep"}, required: 1, positionalOnly: true}

func partition(self Value, args arguments, find func(s, sep string) int, fromRight bool) (Value, error) {
	var a [1]Value
	if err := partitionParams.bind(args, a[:]); err != nil {
		return self, err
	}
	sep, err := wantText("partition", a[0])
	if err != nil {
		return self, err
	}
	if sep == "" {
		return self, valueError("empty separator")
	}
	s := self.str()
	parts := [3]string{s, "", ""}
	if i := find(s, sep); i >= 0 {
		parts = [3]string{s[:i], sep, s[i+len(sep):]}
	} else if fromRight {
		parts = [3]string{"", "", s}
	}
	return tuple(likeString(self, parts[0]), likeString(self, parts[1]), likeString(self, parts[2])), nil
}

func textPartition(m *machine, self Value, args arguments) (Value, error) {
	return partition(self, args, strings.Index, false)
}

func textRpartition(m *machine, self Value, args arguments) (Value, error) {
	return partition(self, args, strings.LastIndex, true)
}
