package chattemplate

import (
	"math"
	"math/big"
	"math/bits"
	"strings"
)

func unsupported(sign binaryOperator, a, b Value) error {
	switch {
	case a.isUndefined():
		return a.undefinedError()
	case b.isUndefined():
		return b.undefinedError()
	}
	return typeError("unsupported operand type(s) for %s: '%s' and '%s'", binarySigns[sign], a.typeName(), b.typeName())
}

func negate(v Value, negative bool) (Value, error) {
	switch {
	case v.isUndefined():
		return v, v.undefinedError()
	case v.kind == kindFloat:
		if negative {
			return Float(-v.float()), nil
		}
		return v, nil
	case v.isSmall() && v.num != math.MinInt64:
		if negative {
			return Int(-v.num), nil
		}
		return Int(v.num), nil
	case v.isInteger():
		if negative {
			return BigInt(new(big.Int).Neg(v.bigInt())), nil
		}
		return v, nil
	}
	sign := "+"
	if negative {
		sign = "-"
	}
	return v, typeError("bad operand type for unary %s: '%s'", sign, v.typeName())
}

func (m *machine) binary(sign binaryOperator, a, b Value) (Value, error) {
	switch sign {
	case opAdd:
		return m.add(a, b)
	case opMul:
		return m.multiply(a, b)
	case opMod:
		if a.kind == kindString {
			return m.formatPercent(a, b)
		}
	}
	if !a.isNumber() || !b.isNumber() {
		return Value{}, unsupported(sign, a, b)
	}
	return m.arithmetic(sign, a, b)
}

func (m *machine) add(a, b Value) (Value, error) {
	switch {
	case a.kind == kindString && b.kind == kindString:
		if a.safe != b.safe {
			return m.addSafe(a, b)
		}
		v, err := m.join([]Value{a, b}, "")
		v.safe = a.safe
		return v, err
	case a.isNumber() && b.isNumber():
		return m.arithmetic(opAdd, a, b)
	case (a.kind == kindList || a.kind == kindTuple) && a.kind == b.kind:
		x, y := a.items(), b.items()
		if err := m.allocateValues(len(x) + len(y)); err != nil {
			return Value{}, err
		}
		sum := make([]Value, 0, len(x)+len(y))
		v := List(append(append(sum, x...), y...))
		v.kind = a.kind
		return v, nil
	}
	return Value{}, unsupported(opAdd, a, b)
}

// addSafe adds safe HTML and another string, which is escaped.
func (m *machine) addSafe(a, b Value) (Value, error) {
	for _, v := range []*Value{&a, &b} {
		if !v.safe {
			escaped, err := m.escape(*v)
			if err != nil {
				return escaped, err
			}
			*v = escaped
		}
	}
	v, err := m.join([]Value{a, b}, "")
	v.safe = true
	return v, err
}

// safe returns a string that the escape filter leaves alone.
func (m *machine) safe(s string) Value {
	v := String(s)
	v.safe, v.done = !m.mini(), m.mini()
	return v
}

// escape returns v as safe HTML.
func (m *machine) escape(v Value) (Value, error) {
	if v.kind == kindString && (v.safe || v.done) {
		return v, nil
	}
	s, err := m.str(v)
	if err != nil {
		return v, err
	}
	if err := m.allocate(5 * len(s)); err != nil {
		return v, err
	}
	return m.safe(escapeHTML(s)), nil
}

func (m *machine) multiply(a, b Value) (Value, error) {
	if a.isNumber() && b.isNumber() {
		return m.arithmetic(opMul, a, b)
	}
	if a.isInteger() {
		a, b = b, a
	}
	if !b.isInteger() || a.kind != kindString && a.kind != kindList && a.kind != kindTuple {
		return Value{}, unsupported(opMul, a, b)
	}
	if !b.isSmall() {
		return Value{}, overflowError("cannot fit 'int' into an index-sized integer")
	}
	n := max(b.num, 0)
	size := int64(valueBytes)
	if a.kind == kindString {
		size = a.num
	} else {
		size *= int64(len(a.items()))
	}
	if hi, lo := bits.Mul64(uint64(n), uint64(size)); hi != 0 || lo > math.MaxInt64/2 {
		return Value{}, m.allocate(-1)
	}
	if err := m.allocate(int(n*size) + stringCost); err != nil {
		return Value{}, err
	}
	if a.kind == kindString {
		return likeString(a, strings.Repeat(a.str(), int(n))), nil
	}
	var items []Value
	if size > 0 {
		items = make([]Value, 0, int(n)*len(a.items()))
		for i := int64(0); i < n; i++ {
			items = append(items, a.items()...)
		}
	}
	v := List(items)
	v.kind = a.kind
	return v, nil
}

func (m *machine) arithmetic(sign binaryOperator, a, b Value) (Value, error) {
	if a.kind == kindFloat || b.kind == kindFloat || sign == opDiv {
		return floatArithmetic(sign, a, b)
	}
	if a.isSmall() && b.isSmall() {
		if v, ok, err := smallArithmetic(sign, a.num, b.num); ok || err != nil {
			return v, err
		}
	}
	return m.bigArithmetic(sign, a.bigInt(), b.bigInt())
}

var (
	errZeroDivision = RenderError{Class: "ZeroDivisionError", Message: "division by zero"}
)

func zeroDivision() error {
	e := errZeroDivision
	return &e
}

// smallArithmetic is arithmetic of 64-bit integers; ok is false if the result may not fit.
func smallArithmetic(sign binaryOperator, a, b int64) (v Value, ok bool, err error) {
	switch sign {
	case opAdd:
		sum := a + b
		return Int(sum), (sum > a) == (b > 0), nil
	case opSub:
		diff := a - b
		return Int(diff), (diff < a) == (b > 0), nil
	case opMul:
		const half = 1 << 31
		return Int(a * b), a > -half && a < half && b > -half && b < half, nil
	case opFloorDiv, opMod:
		if b == 0 {
			return Value{}, false, zeroDivision()
		}
		if a == math.MinInt64 {
			return Value{}, false, nil
		}
		q, r := a/b, a%b
		if r != 0 && (r < 0) != (b < 0) {
			q--
			r += b
		}
		if sign == opMod {
			return Int(r), true, nil
		}
		return Int(q), true, nil
	}
	return Value{}, false, nil
}

func (m *machine) bigArithmetic(sign binaryOperator, a, b *big.Int) (Value, error) {
	size := int64(max(a.BitLen(), b.BitLen()))
	if err := m.allocate(int(size/8) + stringCost); err != nil {
		return Value{}, err
	}
	r := new(big.Int)
	switch sign {
	case opAdd:
		r.Add(a, b)
	case opSub:
		r.Sub(a, b)
	case opMul:
		if a.BitLen()+b.BitLen() > maxIntBits {
			return Value{}, tooLarge()
		}
		r.Mul(a, b)
	case opFloorDiv, opMod:
		if b.Sign() == 0 {
			return Value{}, zeroDivision()
		}
		q, rest := new(big.Int).QuoRem(a, b, r)
		if rest.Sign() != 0 && (rest.Sign() < 0) != (b.Sign() < 0) {
			q.Sub(q, big.NewInt(1))
			rest.Add(rest, b)
		}
		if sign == opFloorDiv {
			r = q
		} else {
			r = rest
		}
	case opPow:
		return m.power(a, b)
	}
	if r.BitLen() > maxIntBits {
		return Value{}, tooLarge()
	}
	return BigInt(r), nil
}

func tooLarge() error {
	return overflowError("an integer of more than %d bits", maxIntBits)
}

func (m *machine) power(a, b *big.Int) (Value, error) {
	if b.Sign() < 0 {
		return floatArithmetic(opPow, BigInt(a), BigInt(b))
	}
	if a.BitLen() > 1 {
		if !b.IsInt64() || int64(a.BitLen()-1)*b.Int64() > maxIntBits || b.Int64() > maxIntBits {
			return Value{}, tooLarge()
		}
	} else {
		// 0, 1 and -1 depend only on whether the exponent is zero, or even.
		b = big.NewInt(int64(b.Bit(0)) + int64(2*min(b.Sign(), 1)))
	}
	return BigInt(new(big.Int).Exp(a, b, nil)), nil
}

func floatArithmetic(sign binaryOperator, a, b Value) (Value, error) {
	x, err := a.number()
	if err == nil {
		var y float64
		if y, err = b.number(); err == nil {
			return floats(sign, x, y, a, b)
		}
	}
	if sign == opDiv && a.isInteger() && b.isInteger() {
		return divideBig(a.bigInt(), b.bigInt())
	}
	return Value{}, err
}

// divideBig is the true division of integers of which one is beyond the range of floats.
func divideBig(a, b *big.Int) (Value, error) {
	if b.Sign() == 0 {
		return Value{}, zeroDivision()
	}
	f, _ := new(big.Rat).SetFrac(a, b).Float64()
	if math.IsInf(f, 0) {
		return Value{}, overflowError("integer division result too large for a float")
	}
	return Float(f), nil
}

func floats(sign binaryOperator, x, y float64, a, b Value) (Value, error) {
	switch sign {
	case opAdd:
		return Float(x + y), nil
	case opSub:
		return Float(x - y), nil
	case opMul:
		return Float(x * y), nil
	case opDiv:
		if y == 0 {
			return Value{}, zeroDivision()
		}
		const exact = 1 << 53
		if a.isInteger() && b.isInteger() && (math.Abs(x) >= exact || math.Abs(y) >= exact) {
			return divideBig(a.bigInt(), b.bigInt())
		}
		return Float(x / y), nil
	case opFloorDiv, opMod:
		if y == 0 {
			return Value{}, zeroDivision()
		}
		q, r := floatDivMod(x, y)
		if sign == opMod {
			return Float(r), nil
		}
		return Float(q), nil
	}
	return floatPower(x, y)
}

// floatDivMod divides rounding down, as Python does.
func floatDivMod(x, y float64) (q, r float64) {
	r = math.Mod(x, y)
	q = (x - r) / y
	if r != 0 {
		if (y < 0) != (r < 0) {
			r += y
			q--
		}
	} else {
		r = math.Copysign(0, y)
	}
	if q != 0 {
		floor := math.Floor(q)
		if q-floor > 0.5 {
			floor++
		}
		return floor, r
	}
	return math.Copysign(0, x/y), r
}

func floatPower(x, y float64) (Value, error) {
	if x == 0 && y < 0 {
		return Value{}, &RenderError{Class: "ZeroDivisionError", Message: "0.0 cannot be raised to a negative power"}
	}
	if x < 0 && y != math.Trunc(y) && !math.IsInf(x, 0) && !math.IsInf(y, 0) && !math.IsNaN(y) {
		return Value{}, &RenderError{Class: "NotSupported", Message: "a negative number to a fractional power is complex"}
	}
	r := math.Pow(x, y)
	if math.IsInf(r, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		return Value{}, overflowError("(34, 'Numerical result out of range')")
	}
	return Float(r), nil
}
