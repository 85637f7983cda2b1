package chattemplate

import (
	"math"
	"math/big"
	"math/bits"
)

// dictMethods are the methods of Python's dict; nil marks those that the sandbox refuses.
var dictMethods map[string]method

// listMethods are the methods of lists and tuples.
var listMethods map[string]method

// numberMethods are the methods of int and float.
var numberMethods map[string]method

func init() {
	dictMethods = map[string]method{
		"get": dictGet, "items": viewMethod("items", fromPairs), "keys": viewMethod("keys", fromKeys), "values": viewMethod("values", fromValues),
		"copy": dictCopy, "fromkeys": dictFromkeysMethod,
		"clear": nil, "pop": nil, "popitem": nil, "setdefault": nil, "update": nil,
	}
	listMethods = map[string]method{
		"count": listCount, "index": listIndex, "copy": listCopy,
	}
	numberMethods = map[string]method{
		"is_integer": floatIsInteger, "bit_length": intBitLength, "bit_count": intBitCount, "conjugate": numberSelf,
		"as_integer_ratio": unsupportedMethod("as_integer_ratio"), "hex": unsupportedMethod("hex"), "fromhex": unsupportedMethod("fromhex"),
	}
}

func isDictAttr(name string) bool {
	switch name {
	case "get", "items", "keys", "values", "copy", "fromkeys", "clear", "pop", "popitem", "setdefault", "update":
		return true
	}
	return false
}

func mutatesList(name string) bool {
	switch name {
	case "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort":
		return true
	}
	return false
}

func dictGet(m *machine, self Value, args arguments) (Value, error) {
	if len(args.names) > 0 || len(args.positional) == 0 || len(args.positional) > 2 {
		return self, typeError("get expected 1 or 2 positional arguments")
	}
	v, ok, err := self.dict().get(args.positional[0])
	switch {
	case ok || err != nil:
		return v, err
	case len(args.positional) == 2:
		return args.positional[1], nil
	}
	return None, nil
}

func viewMethod(name string, part iteratorSource) method {
	return func(m *machine, self Value, args arguments) (Value, error) {
		return viewValue(self.dict(), part), args.none(name)
	}
}

func dictCopy(m *machine, self Value, args arguments) (Value, error) { return self, args.none("copy") }

func dictFromkeysMethod(m *machine, self Value, args arguments) (Value, error) {
	return dictFromkeys(m, args)
}

var fromkeysParams = params{fn: "fromkeys", names: []string{"iterable", "value"}, required: 1, positionalOnly: true}

func dictFromkeys(m *machine, args arguments) (Value, error) {
	var a [2]Value
	if err := fromkeysParams.bind(args, a[:]); err != nil {
		return Value{}, err
	}
	value := None
	if a[1].kind != kindMissing {
		value = a[1]
	}
	d := &dict{}
	err := m.each(a[0], func(key Value) error {
		if err := m.allocate(entryBytes); err != nil {
			return err
		}
		return d.set(key, value)
	})
	return dictValue(d), err
}

var listCountParams = params{fn: "count", names: []string{"value"}, required: 1, positionalOnly: true}

func listCount(m *machine, self Value, args arguments) (Value, error) {
	var a [1]Value
	if err := listCountParams.bind(args, a[:]); err != nil {
		return self, err
	}
	n := int64(0)
	err := m.each(self, func(item Value) error {
		eq, err := m.same(item, a[0], 0)
		if eq {
			n++
		}
		return err
	})
	return Int(n), err
}

var listIndexParams = params{fn: "index", names: []string{"value", "start", "stop"}, required: 1, positionalOnly: true}

func listIndex(m *machine, self Value, args arguments) (Value, error) {
	var a [3]Value
	if err := listIndexParams.bind(args, a[:]); err != nil {
		return self, err
	}
	items, err := m.list(self)
	if err != nil {
		return self, err
	}
	bounds := [3]Value{None, None, None}
	for i := 1; i < 3; i++ {
		if a[i].kind != kindMissing {
			bounds[i-1] = a[i]
		}
	}
	start, stop, _, err := sliceBounds(bounds, len(items))
	if err != nil {
		return self, err
	}
	for i := start; i < stop; i++ {
		if err := m.spend(1); err != nil {
			return self, err
		}
		if eq, err := m.same(items[i], a[0], 0); err != nil {
			return self, err
		} else if eq {
			return Int(int64(i)), nil
		}
	}
	return self, valueError("value is not in list")
}

func listCopy(m *machine, self Value, args arguments) (Value, error) {
	if self.kind != kindList {
		return self, typeError("'%s' object has no attribute 'copy'", self.typeName())
	}
	return self, args.none("copy")
}

func numberAttr(v Value, name string) (Value, bool) {
	switch name {
	case "real":
		if v.kind == kindBool {
			return Int(v.num), true
		}
		return v, true
	case "imag":
		if v.kind == kindFloat {
			return Float(0), true
		}
		return Int(0), true
	case "numerator":
		if v.kind == kindFloat {
			return v, false
		}
		return Value{kind: kindInt, num: v.num, ref: v.ref}, true
	case "denominator":
		return Int(1), v.kind != kindFloat
	}
	return v, false
}

func numberSelf(m *machine, self Value, args arguments) (Value, error) {
	if self.kind == kindBool {
		return Int(self.num), args.none("conjugate")
	}
	return self, args.none("conjugate")
}

func floatIsInteger(m *machine, self Value, args arguments) (Value, error) {
	f := self.float()
	return Bool(f == math.Trunc(f) && !math.IsInf(f, 0)), args.none("is_integer")
}

func intBitLength(m *machine, self Value, args arguments) (Value, error) {
	return Int(int64(self.bigInt().BitLen())), args.none("bit_length")
}

func intBitCount(m *machine, self Value, args arguments) (Value, error) {
	n := 0
	for _, word := range new(big.Int).Abs(self.bigInt()).Bits() {
		n += bits.OnesCount(uint(word))
	}
	return Int(int64(n)), args.none("bit_count")
}
