package chattemplate

import (
	"math"
	"strings"
	"unsafe"
)

// globals are the names that templates find without being given them.
var globals map[string]Value

func init() {
	globals = map[string]Value{
		"range":           functionValue("range", globalRange),
		"namespace":       functionValue("namespace", globalNamespace),
		"dict":            Value{kind: kindObject, ref: unsafe.Pointer(&object{typeName: "TemplateDict", attr: dictAttr, call: globalDict})},
		"cycler":          functionValue("cycler", globalCycler),
		"joiner":          functionValue("joiner", globalJoiner),
		"lipsum":          functionValue("lipsum", globalLipsum),
		"raise_exception": functionValue("raise_exception", globalRaise),
		"strftime_now":    functionValue("strftime_now", globalStrftimeNow),
	}
}

func globalRange(m *machine, args arguments) (Value, error) {
	if len(args.names) > 0 {
		return Value{}, typeError("range() takes no keyword arguments")
	}
	n := [3]int64{0, 0, 1}
	given := args.positional
	if len(given) < 1 || len(given) > 3 {
		return Value{}, typeError("range expected 1 to 3 arguments, got %d", len(given))
	}
	for i, v := range given {
		number, err := wantInt("range", v)
		if err != nil {
			return Value{}, err
		}
		if number > math.MaxInt64/4 || number < math.MinInt64/4 {
			return Value{}, overflowError("range bound %d is too large", number)
		}
		n[i] = int64(number)
	}
	if len(given) == 1 {
		n[0], n[1] = 0, n[0]
	}
	if n[2] == 0 {
		return Value{}, valueError("range() arg 3 must not be zero")
	}
	v := rangeOf(n[0], n[1], n[2])
	if (*rangeValue)(v.ref).length() > maxRange {
		return Value{}, overflowError("Range too big. The sandbox blocks ranges larger than %d.", maxRange)
	}
	return v, nil
}

// fillDict does what Python's dict() does with its arguments.
func fillDict(m *machine, args arguments) (*dict, error) {
	d := &dict{}
	if len(args.positional) > 1 {
		return nil, typeError("dict expected at most 1 argument, got %d", len(args.positional))
	}
	for _, from := range args.positional {
		if from.kind == kindDict {
			if err := m.allocate(from.Len() * entryBytes); err != nil {
				return nil, err
			}
			for _, e := range from.Entries() {
				if err := d.set(e.Key, e.Value); err != nil {
					return nil, err
				}
			}
			continue
		}
		if err := m.each(from, func(pair Value) error {
			items, err := m.list(pair)
			if err != nil {
				return err
			}
			if len(items) != 2 {
				return valueError("dictionary update sequence element has length %d; 2 is required", len(items))
			}
			if err := m.allocate(entryBytes); err != nil {
				return err
			}
			return d.set(items[0], items[1])
		}); err != nil {
			return nil, err
		}
	}
	if err := m.allocate(len(args.names)*entryBytes + entryBytes); err != nil {
		return nil, err
	}
	for i, name := range args.names {
		d.setString(String(name), args.named[i])
	}
	return d, nil
}

func globalDict(m *machine, args arguments) (Value, error) {
	d, err := fillDict(m, args)
	if err != nil {
		return Value{}, err
	}
	return dictValue(d), nil
}

func dictAttr(name string) (Value, bool) {
	if name == "fromkeys" {
		return functionValue("fromkeys", dictFromkeys), true
	}
	return Value{}, false
}

func globalNamespace(m *machine, args arguments) (Value, error) {
	d, err := fillDict(m, args)
	if err != nil {
		return Value{}, err
	}
	for _, e := range d.entries {
		if e.Key.kind == kindString && strings.HasPrefix(e.Key.str(), "_") {
			return Value{}, &RenderError{Class: "SecurityError", Message: "underscore-prefixed attribute '" + e.Key.str() + "' on a namespace"}
		}
	}
	return Value{kind: kindNamespace, ref: unsafe.Pointer(&namespace{*d})}, nil
}

func globalRaise(m *machine, args arguments) (Value, error) {
	var a [1]Value
	if err := raiseParams.bind(args, a[:]); err != nil {
		return Value{}, err
	}
	message, err := m.str(a[0])
	if err != nil {
		return Value{}, err
	}
	return Value{}, &RaisedError{Message: strings.Clone(message)}
}

var raiseParams = params{fn: "raise_exception", names: []string{"message"}, required: 1}

func globalStrftimeNow(m *machine, args arguments) (Value, error) {
	var a [1]Value
	if err := strftimeParams.bind(args, a[:]); err != nil {
		return Value{}, err
	}
	format, err := wantText("strftime", a[0])
	if err != nil {
		return Value{}, err
	}
	if err := m.allocate(16*len(format) + stringCost); err != nil {
		return Value{}, err
	}
	return String(strftime(m.clock(), format)), nil
}

var strftimeParams = params{fn: "strftime_now", names: []string{"format"}, required: 1}

func globalLipsum(*machine, arguments) (Value, error) {
	return Value{}, &RenderError{Class: "NotSupported", Message: "lipsum() is not supported in chat templates: its text is random"}
}

func globalCycler(m *machine, args arguments) (Value, error) {
	if len(args.positional) == 0 || len(args.names) > 0 {
		return Value{}, &RenderError{Class: "RuntimeError", Message: "at least one item has to be provided"}
	}
	if err := m.allocateValues(len(args.positional)); err != nil {
		return Value{}, err
	}
	items := append([]Value(nil), args.positional...)
	pos := 0
	return Value{kind: kindObject, ref: unsafe.Pointer(&object{typeName: "Cycler", attr: func(name string) (Value, bool) {
		switch name {
		case "current":
			return items[pos], true
		case "pos":
			return Int(int64(pos)), true
		case "items":
			return tuple(items...), true
		case "reset":
			return functionValue(name, func(m *machine, args arguments) (Value, error) {
				pos = 0
				return None, args.none("reset")
			}), true
		case "next":
			return functionValue(name, func(m *machine, args arguments) (Value, error) {
				v := items[pos]
				pos = (pos + 1) % len(items)
				return v, args.none("next")
			}), true
		}
		return Value{}, false
	}})}, nil
}

var joinerParams = params{fn: "joiner", names: []string{"sep"}}

func globalJoiner(m *machine, args arguments) (Value, error) {
	sep := [1]Value{}
	if err := joinerParams.bind(args, sep[:]); err != nil {
		return Value{}, err
	}
	if sep[0].kind == kindMissing {
		sep[0] = String(", ")
	}
	used := false
	return Value{kind: kindObject, ref: unsafe.Pointer(&object{typeName: "Joiner", attr: func(name string) (Value, bool) {
		switch name {
		case "sep":
			return sep[0], true
		case "used":
			return Bool(used), true
		}
		return Value{}, false
	}, call: func(m *machine, args arguments) (Value, error) {
		if err := args.none("joiner"); err != nil || used {
			return sep[0], err
		}
		used = true
		return String(""), nil
	}})}, nil
}
