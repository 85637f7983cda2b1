package chattemplate

import "strings"

// simpleTests are the tests without arguments that can't fail.
var simpleTests = map[string]func(Value) bool{
	"defined":   func(v Value) bool { return !v.isUndefined() },
	"undefined": Value.isUndefined,
	"none":      func(v Value) bool { return v.kind == kindNone },
	"boolean":   func(v Value) bool { return v.kind == kindBool },
	"true":      func(v Value) bool { return v.kind == kindBool && v.num != 0 },
	"false":     func(v Value) bool { return v.kind == kindBool && v.num == 0 },
	"integer":   func(v Value) bool { return v.kind == kindInt },
	"float":     func(v Value) bool { return v.kind == kindFloat },
	"number":    Value.isNumber,
	"string":    func(v Value) bool { return v.kind == kindString },
	"mapping":   func(v Value) bool { return v.kind == kindDict },
	"sequence":  isSequence,
	"iterable":  isIterable,
	"callable":  isCallable,
	"escaped":   func(v Value) bool { return v.kind == kindString && (v.safe || v.done) },
}

func isSequence(v Value) bool {
	switch v.kind {
	case kindString, kindList, kindTuple, kindDict, kindRange, kindMissing, kindUndefined:
		// Undefined has a length and answers every attribute but dunder ones; Jinja's test asks for __getitem__, which its class has.
		return true
	}
	return false
}

func isIterable(v Value) bool {
	switch v.kind {
	case kindString, kindList, kindTuple, kindDict, kindRange, kindView, kindIterator, kindMissing, kindUndefined, kindLoop:
		return true
	}
	return false
}

func isCallable(v Value) bool {
	switch v.kind {
	case kindFunction, kindMacro, kindMissing, kindUndefined, kindLoop:
		return true
	case kindObject:
		return (*object)(v.ref).call != nil
	}
	return false
}

// tests are all tests.
var tests map[string]testFunc

func init() {
	tests = map[string]testFunc{
		"odd": parityTest(1), "even": parityTest(0), "divisibleby": testDivisible,
		"lower": caseTest(isLower), "upper": caseTest(isUpper), "sameas": testSame,
		"in":     func(m *machine, v Value, args arguments) (bool, error) { return testCompare(m, opIn, v, args) },
		"filter": nameTest(func(m *machine, name string) bool { return m.template.filter(name) != nil }),
		"test":   nameTest(func(m *machine, name string) bool { return tests[name] != nil }),
	}
	for op, names := range map[compareOperator][]string{
		opEq: {"==", "eq", "equalto"}, opNe: {"!=", "ne"}, opGt: {">", "gt", "greaterthan"}, opGe: {">=", "ge"},
		opLt: {"<", "lt", "lessthan"}, opLe: {"<=", "le"},
	} {
		for _, name := range names {
			tests[name] = func(m *machine, v Value, args arguments) (bool, error) { return testCompare(m, op, v, args) }
		}
	}
	for name, simple := range simpleTests {
		tests[name] = func(m *machine, v Value, args arguments) (bool, error) { return simple(v), args.none(name) }
	}
}

var testParams = params{fn: "test", names: []string{"other"}, required: 1}

func testCompare(m *machine, op compareOperator, v Value, args arguments) (bool, error) {
	var a [1]Value
	if err := testParams.bind(args, a[:]); err != nil {
		return false, err
	}
	return m.compare(op, v, a[0])
}

func parityTest(rest int64) testFunc {
	return func(m *machine, v Value, args arguments) (bool, error) {
		if err := args.none("odd"); err != nil {
			return false, err
		}
		return hasRest(m, v, Int(2), Int(rest))
	}
}

func hasRest(m *machine, v, divisor, rest Value) (bool, error) {
	r, err := m.binary(opMod, v, divisor)
	if err != nil {
		return false, err
	}
	return m.equal(r, rest, 0)
}

func testDivisible(m *machine, v Value, args arguments) (bool, error) {
	var a [1]Value
	if err := testParams.bind(args, a[:]); err != nil {
		return false, err
	}
	return hasRest(m, v, a[0], Int(0))
}

func caseTest(is func(string) bool) testFunc {
	return func(m *machine, v Value, args arguments) (bool, error) {
		s, err := m.str(v)
		if err != nil {
			return false, err
		}
		return is(s), args.none("lower")
	}
}

func testSame(m *machine, v Value, args arguments) (bool, error) {
	var a [1]Value
	if err := testParams.bind(args, a[:]); err != nil {
		return false, err
	}
	other := a[0]
	switch {
	case v.isUndefined() || other.isUndefined():
		return v.kind == other.kind && v.ref == other.ref, nil
	case v.kind == kindString && other.kind == kindString:
		return v.safe == other.safe && strings.Compare(v.str(), other.str()) == 0, nil
	}
	return v == other, nil
}

func nameTest(known func(m *machine, name string) bool) testFunc {
	return func(m *machine, v Value, args arguments) (bool, error) {
		if err := args.none("filter"); err != nil {
			return false, err
		}
		if _, err := hashKey(v, 0); err != nil {
			return false, err
		}
		return v.kind == kindString && known(m, v.str()), nil
	}
}
