package chattemplate

import (
	"math"
	"math/big"
	"strings"
)

func (m *machine) compare(sign compareOperator, a, b Value) (bool, error) {
	switch sign {
	case opEq:
		return m.equal(a, b, 0)
	case opNe:
		eq, err := m.equal(a, b, 0)
		return !eq, err
	case opIn:
		return m.contains(b, a)
	case opNotIn:
		in, err := m.contains(b, a)
		return !in, err
	}
	order, ordered, err := m.order(sign, a, b, 0)
	if err != nil || !ordered {
		return false, err
	}
	switch sign {
	case opLt:
		return order < 0, nil
	case opLe:
		return order <= 0, nil
	case opGt:
		return order > 0, nil
	}
	return order >= 0, nil
}

// equal is Python's ==.
func (m *machine) equal(a, b Value, depth int) (bool, error) {
	if depth > maxValueDepth {
		return false, recursionError()
	}
	switch {
	case a.kind == kindString && b.kind == kindString:
		if a.num != b.num {
			return false, nil
		}
		if a.num > 1024 {
			if err := m.spend(a.num >> 8); err != nil {
				return false, err
			}
		}
		return a.str() == b.str(), nil
	case a.isNumber() && b.isNumber():
		order, ordered := compareNumbers(a, b)
		return ordered && order == 0, nil
	case a.kind != b.kind:
		return a.isUndefined() && b.isUndefined(), nil
	}
	switch a.kind {
	case kindMissing, kindUndefined, kindNone:
		return true, nil
	case kindList, kindTuple:
		x, y := a.items(), b.items()
		if len(x) != len(y) {
			return false, nil
		}
		if a.ref == b.ref {
			return true, nil
		}
		if err := m.spend(int64(len(x))); err != nil {
			return false, err
		}
		for i := range x {
			if eq, err := m.same(x[i], y[i], depth+1); !eq || err != nil {
				return false, err
			}
		}
		return true, nil
	case kindDict:
		return m.equalDicts(a.dict(), b.dict(), depth)
	case kindRange:
		x, y := (*rangeValue)(a.ref), (*rangeValue)(b.ref)
		n := x.length()
		return n == y.length() && (n == 0 || x.start == y.start && (n == 1 || x.step == y.step)), nil
	case kindView:
		return m.equalViews((*dictView)(a.ref), (*dictView)(b.ref), depth)
	}
	return a.ref == b.ref, nil
}

// same is how containers compare their elements: identical ones are equal without asking (which matters for nan).
func (m *machine) same(a, b Value, depth int) (bool, error) {
	if a.ref != nil && a.kind == b.kind && a.ref == b.ref && a.num == b.num {
		return true, nil
	}
	return m.equal(a, b, depth)
}

func (m *machine) equalDicts(x, y *dict, depth int) (bool, error) {
	if len(x.entries) != len(y.entries) {
		return false, nil
	}
	if err := m.spend(int64(len(x.entries))); err != nil {
		return false, err
	}
	for i := range x.entries {
		other, ok, err := y.get(x.entries[i].Key)
		if err != nil || !ok {
			return false, err
		}
		if eq, err := m.same(x.entries[i].Value, other, depth+1); !eq || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (m *machine) equalViews(x, y *dictView, depth int) (bool, error) {
	if x.part == fromValues || x.part != y.part {
		return x == y, nil
	}
	if x.part == fromPairs {
		return m.equalDicts(x.of, y.of, depth)
	}
	if len(x.of.entries) != len(y.of.entries) {
		return false, nil
	}
	if err := m.spend(int64(len(x.of.entries))); err != nil {
		return false, err
	}
	for i := range x.of.entries {
		if _, ok, err := y.of.get(x.of.entries[i].Key); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// compareNumbers orders two numbers exactly; nan is not ordered.
func compareNumbers(a, b Value) (order int, ordered bool) {
	if a.isSmall() && b.isSmall() {
		switch {
		case a.num < b.num:
			return -1, true
		case a.num > b.num:
			return 1, true
		}
		return 0, true
	}
	if a.kind == kindFloat && b.kind == kindFloat {
		x, y := a.float(), b.float()
		switch {
		case x < y:
			return -1, true
		case x > y:
			return 1, true
		}
		return 0, x == y
	}
	if a.isInteger() && b.isInteger() {
		return a.bigInt().Cmp(b.bigInt()), true
	}
	if b.kind == kindFloat {
		order, ordered = compareNumbers(b, a)
		return -order, ordered
	}
	f := a.float()
	switch {
	case math.IsNaN(f):
		return 0, false
	case math.IsInf(f, 1):
		return 1, true
	case math.IsInf(f, -1):
		return -1, true
	}
	// big.Float holds both exactly with enough precision.
	x := new(big.Float).SetFloat64(f)
	y := new(big.Float).SetInt(b.bigInt())
	return x.Cmp(y), true
}

// order compares for <, <=, > and >=.
func (m *machine) order(sign compareOperator, a, b Value, depth int) (order int, ordered bool, err error) {
	if depth > maxValueDepth {
		return 0, false, recursionError()
	}
	switch {
	case a.isUndefined():
		return 0, false, a.undefinedError()
	case b.isUndefined():
		return 0, false, b.undefinedError()
	case a.kind == kindString && b.kind == kindString:
		if err := m.spendScan(min(int(a.num), int(b.num))); err != nil {
			return 0, false, err
		}
		return strings.Compare(a.str(), b.str()), true, nil
	case a.isNumber() && b.isNumber():
		order, ordered = compareNumbers(a, b)
		return order, ordered, nil
	case (a.kind == kindList || a.kind == kindTuple) && a.kind == b.kind:
		x, y := a.items(), b.items()
		for i := 0; i < len(x) && i < len(y); i++ {
			if err := m.spend(1); err != nil {
				return 0, false, err
			}
			eq, err := m.same(x[i], y[i], depth+1)
			if err != nil {
				return 0, false, err
			}
			if !eq {
				return m.order(sign, x[i], y[i], depth+1)
			}
		}
		return len(x) - len(y), true, nil
	}
	return 0, false, typeError("'%s' not supported between instances of '%s' and '%s'", compareSigns[sign], a.typeName(), b.typeName())
}

// contains is Python's "item in container".
func (m *machine) contains(container, item Value) (bool, error) {
	switch container.kind {
	case kindString:
		if item.kind != kindString && m.mini() {
			text, err := m.str(item)
			return err == nil && strings.Contains(container.str(), text), err
		}
		if item.kind != kindString {
			return false, typeError("'in <string>' requires string as left operand, not %s", item.typeName())
		}
		if err := m.spendScan(int(container.num)); err != nil {
			return false, err
		}
		return strings.Contains(container.str(), item.str()), nil
	case kindDict:
		i, err := container.dict().find(item)
		return i >= 0, err
	case kindList, kindTuple:
		for _, v := range container.items() {
			if err := m.spend(1); err != nil {
				return false, err
			}
			if eq, err := m.same(v, item, 0); eq || err != nil {
				return eq, err
			}
		}
		return false, nil
	case kindRange:
		if item.isSmall() {
			return (*rangeValue)(container.ref).index(item.num) >= 0, nil
		}
	case kindView:
		view := (*dictView)(container.ref)
		switch view.part {
		case fromKeys:
			i, err := view.of.find(item)
			return i >= 0, err
		case fromPairs:
			if item.kind != kindTuple || len(item.items()) != 2 {
				return false, nil
			}
			v, ok, err := view.of.get(item.items()[0])
			if err != nil || !ok {
				return false, err
			}
			return m.same(v, item.items()[1], 0)
		}
	}
	it, err := m.iterate(container)
	if err != nil || container.kind == kindNone {
		return false, typeError("argument of type '%s' is not iterable", container.typeName())
	}
	for {
		v, ok, err := it.next(m)
		if err != nil || !ok {
			return false, err
		}
		if err := m.spend(1); err != nil {
			return false, err
		}
		if eq, err := m.same(v, item, 0); eq || err != nil {
			return eq, err
		}
	}
}
