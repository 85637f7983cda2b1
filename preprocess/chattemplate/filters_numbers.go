package chattemplate

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// truncate is Python's int() of a float.
func truncate(f float64) (Value, error) {
	switch {
	case math.IsNaN(f):
		return Value{}, valueError("cannot convert float NaN to integer")
	case math.IsInf(f, 0):
		return Value{}, overflowError("cannot convert float infinity to integer")
	}
	f = math.Trunc(f)
	if math.Abs(f) < 1<<62 {
		return Int(int64(f)), nil
	}
	exact, _ := new(big.Float).SetFloat64(f).Int(nil)
	return BigInt(exact), nil
}

var intParams = params{fn: "int", names: []string{"default", "base"}}

func filterInt(m *machine, v Value, args arguments) (Value, error) {
	var a [2]Value
	if err := intParams.bind(args, a[:]); err != nil {
		return v, err
	}
	fallback := Int(0)
	if a[0].kind != kindMissing {
		fallback = a[0]
	}
	base := 10
	if a[1].kind != kindMissing {
		var err error
		if base, err = wantInt("int", a[1]); err != nil {
			return v, err
		}
	}
	switch v.kind {
	case kindMissing, kindUndefined:
		return v, v.undefinedError()
	case kindInt:
		return v, nil
	case kindBool:
		return Int(v.num), nil
	case kindFloat:
		if number, err := truncate(v.float()); err == nil {
			return number, nil
		}
	case kindString:
		if err := m.spendScan(int(v.num)); err != nil {
			return v, err
		}
		if number, ok := parseInt(v.str(), base); ok {
			return number, nil
		}
		if number, ok := parseFloat(v.str()); ok {
			if whole, err := truncate(number); err == nil {
				return whole, nil
			}
		}
	}
	return fallback, nil
}

var floatParams = params{fn: "float", names: []string{"default"}}

func filterFloat(m *machine, v Value, args arguments) (Value, error) {
	var a [1]Value
	if err := floatParams.bind(args, a[:]); err != nil {
		return v, err
	}
	fallback := Float(0)
	if a[0].kind != kindMissing {
		fallback = a[0]
	}
	switch {
	case v.isUndefined():
		return v, v.undefinedError()
	case v.isNumber():
		if number, err := v.number(); err == nil {
			return Float(number), nil
		}
	case v.kind == kindString:
		if err := m.spendScan(int(v.num)); err != nil {
			return v, err
		}
		if number, ok := parseFloat(v.str()); ok {
			return Float(number), nil
		}
	}
	return fallback, nil
}

func filterAbs(_ *machine, v Value, args arguments) (Value, error) {
	if err := args.none("abs"); err != nil {
		return v, err
	}
	switch {
	case v.isUndefined():
		return v, v.undefinedError()
	case v.kind == kindFloat:
		return Float(math.Abs(v.float())), nil
	case v.isInteger():
		return BigInt(new(big.Int).Abs(v.bigInt())), nil
	}
	return v, typeError("bad operand type for abs(): '%s'", v.typeName())
}

var roundParams = params{fn: "round", names: []string{"precision", "method"}}

func filterRound(_ *machine, v Value, args arguments) (Value, error) {
	var a [2]Value
	if err := roundParams.bind(args, a[:]); err != nil {
		return v, err
	}
	precision, method := 0, "common"
	var err error
	if a[0].kind != kindMissing {
		if precision, err = wantInt("round", a[0]); err != nil {
			return v, err
		}
	}
	if a[1].kind != kindMissing {
		if method, err = wantText("round", a[1]); err != nil {
			return v, err
		}
	}
	if v.isUndefined() {
		return v, v.undefinedError()
	}
	if !v.isNumber() {
		return v, typeError("type %s doesn't define __round__ method", v.typeName())
	}
	number, err := v.number()
	if err != nil {
		return v, err
	}
	switch method {
	case "common":
		if v.isInteger() && precision >= 0 {
			return BigInt(v.bigInt()), nil // round() of an int, or of a bool, is an int
		}
		if v.isInteger() {
			return roundInt(v.bigInt(), -precision), nil
		}
		return Float(roundHalfEven(number, precision)), nil
	case "ceil":
		scale := math.Pow(10, float64(precision))
		return Float(math.Ceil(number*scale) / scale), nil
	case "floor":
		scale := math.Pow(10, float64(precision))
		return Float(math.Floor(number*scale) / scale), nil
	}
	return v, &RenderError{Class: "FilterArgumentError", Message: "method must be common, ceil or floor"}
}

// roundInt rounds an integer to a multiple of a power of ten, halves to the even one.
func roundInt(n *big.Int, zeros int) Value {
	if zeros > maxIntDigits {
		return Int(0)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(zeros)), nil)
	quotient, rest := new(big.Int).DivMod(n, unit, new(big.Int))
	switch rest.Lsh(rest, 1).Cmp(unit) {
	case 1:
		quotient.Add(quotient, big.NewInt(1))
	case 0:
		quotient.Add(quotient, big.NewInt(int64(quotient.Bit(0))))
	}
	return BigInt(quotient.Mul(quotient, unit))
}

// roundHalfEven rounds the exact decimal value, as Python's round() does.
func roundHalfEven(number float64, precision int) float64 {
	if precision < 0 {
		scale := math.Pow(10, float64(-precision))
		return math.RoundToEven(number/scale) * scale
	}
	if precision > 300 || math.IsInf(number, 0) || math.IsNaN(number) {
		return number
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(number, 'f', precision, 64), 64)
	if err != nil {
		return number
	}
	return rounded
}

var fileSizeParams = params{fn: "filesizeformat", names: []string{"binary"}}

func filterFileSize(_ *machine, v Value, args arguments) (Value, error) {
	var a [1]Value
	if err := fileSizeParams.bind(args, a[:]); err != nil {
		return v, err
	}
	size, ok := v.float64()
	if !ok {
		return v, typeError("float() argument must be a string or a real number, not '%s'", v.typeName())
	}
	base, units := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if a[0].Truthy() {
		base, units = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	switch {
	case size == 1:
		return String("1 Byte"), nil
	case size < base:
		return String(strconv.FormatInt(int64(size), 10) + " Bytes"), nil
	}
	unit := base
	for i, name := range units {
		unit *= base
		if size < unit || i == len(units)-1 {
			return String(strconv.FormatFloat(base*size/unit, 'f', 1, 64) + " " + name), nil
		}
	}
	return v, nil
}

// float64 is the number of a number, or of a text that is one.
func (v Value) float64() (float64, bool) {
	if v.kind == kindString {
		return parseFloat(v.str())
	}
	if !v.isNumber() {
		return 0, false
	}
	number, err := v.number()
	return number, err == nil
}

var sumParams = params{fn: "sum", names: []string{"attribute", "start"}}

func filterSum(m *machine, v Value, args arguments) (Value, error) {
	var a [2]Value
	if err := sumParams.bind(args, a[:]); err != nil {
		return v, err
	}
	total := Int(0)
	if a[1].kind != kindMissing {
		total = a[1]
	}
	pick, err := m.attributePath(a[0])
	if err != nil {
		return v, err
	}
	err = m.each(v, func(item Value) error {
		part, err := pick(item)
		if err != nil {
			return err
		}
		total, err = m.add(total, part)
		return err
	})
	return total, err
}

var minMaxParams = params{fn: "min", names: []string{"case_sensitive", "attribute"}}

// minMaxFilter is min with sign -1 and max with sign 1.
func minMaxFilter(name string, sign int) filterFunc {
	return func(m *machine, v Value, args arguments) (Value, error) {
		var a [2]Value
		if err := minMaxParams.bind(args, a[:]); err != nil {
			return v, err
		}
		pick, err := m.sortKey(a[1], a[0].Truthy())
		if err != nil {
			return v, err
		}
		best, bestKey, any := Value{}, Value{}, false
		err = m.each(v, func(item Value) error {
			key, err := pick(item)
			if err != nil {
				return err
			}
			if any {
				order, ordered, err := m.order(opLt, key, bestKey, 0)
				if err != nil {
					return err
				}
				if !ordered || order*sign <= 0 {
					return nil
				}
			}
			best, bestKey, any = item, key, true
			return nil
		})
		if err == nil && !any {
			return undefinedHint("No aggregated item, sequence was empty."), nil
		}
		return best, err
	}
}

// attributePath returns a function that follows a dotted path ("a.b.0") into a value; without a path it returns the value.
func (m *machine) attributePath(path Value) (func(Value) (Value, error), error) {
	switch path.kind {
	case kindMissing, kindNone:
		return func(v Value) (Value, error) { return v, nil }, nil
	case kindInt:
		return func(v Value) (Value, error) { return m.getitem(v, path) }, nil
	}
	text, err := wantText("attribute", path)
	if err != nil {
		return nil, err
	}
	var steps []Value
	for _, part := range strings.Split(text, ".") {
		if index, err := strconv.Atoi(part); err == nil {
			steps = append(steps, Int(int64(index)))
		} else {
			steps = append(steps, String(part))
		}
	}
	return func(v Value) (Value, error) {
		for _, step := range steps {
			var err error
			if v, err = m.getitem(v, step); err != nil {
				return v, err
			}
		}
		return v, nil
	}, nil
}

// sortKey is attributePath whose texts compare without case unless caseSensitive.
func (m *machine) sortKey(path Value, caseSensitive bool) (func(Value) (Value, error), error) {
	pick, err := m.attributePath(path)
	if err != nil || caseSensitive {
		return pick, err
	}
	return func(v Value) (Value, error) {
		key, err := pick(v)
		if err == nil && key.kind == kindString {
			if err := m.allocate(int(key.num)); err != nil {
				return key, err
			}
			return String(lower(key.str())), nil
		}
		return key, err
	}, nil
}
