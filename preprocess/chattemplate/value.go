package chattemplate

import (
	"math"
	"math/big"
	"unsafe"
)

// Kind is the type of a Value.
type Kind uint8

// The kinds of values that templates are given. Everything that exists only while a template runs (macros, namespaces,
// iterators ...) is KindOther.
const (
	KindUndefined Kind = iota
	KindNone
	KindBool
	KindInt
	KindFloat
	KindString
	KindList
	KindTuple
	KindDict
	KindOther
)

// kind tells apart all values, inside the package.
type kind uint8

const (
	kindMissing   kind = iota // no value at all: an unset variable, an argument not given
	kindUndefined             // ref: *undefined
	kindNone
	kindBool      // num: 0 or 1
	kindInt       // num, or ref: *big.Int when it does not fit into 64 bits
	kindFloat     // num: its bits
	kindString    // num: length in bytes, ref: first byte; safe: marked as HTML-safe
	kindList      // ref: *list
	kindTuple     // ref: *list
	kindDict      // ref: *dict
	kindRange     // ref: *rangeValue
	kindIterator  // ref: *iterator
	kindView      // ref: *dictView
	kindNamespace // ref: *namespace
	kindFunction  // ref: *function
	kindMacro     // ref: *macro
	kindLoop      // ref: *loopContext
	kindObject    // ref: *object
)

// Value is one value of a template: a Python object, immutable except for namespaces and iterators. The zero Value is
// undefined. Values may be shared between goroutines.
//
// It is three words wide, so that strings and numbers need no allocation of their own.
type Value struct {
	kind kind
	safe bool // a string that counts as safe HTML, Python's Markup
	done bool // a string that MiniJinja's escape filter leaves as it is, without Markup's habit of escaping what is added
	num  int64
	ref  unsafe.Pointer
}

// list is the storage of lists and tuples.
type list struct{ items []Value }

// undefined says how an undefined value came about, for the message of the error that its use gives.
type undefined struct {
	name  string // variable or attribute
	owner string // Python type name of the object that lacks the attribute; empty for variables
	hint  string // a whole message, instead of the two
	class string // exception class; empty means UndefinedError
}

var missing = Value{}

// None is Python's None, JSON's null.
var None = Value{kind: kindNone}

// True and False are the booleans.
var (
	True  = Value{kind: kindBool, num: 1}
	False = Value{kind: kindBool}
)

// Bool returns the boolean b.
func Bool(b bool) Value {
	if b {
		return True
	}
	return False
}

// Int returns the integer i.
func Int(i int64) Value { return Value{kind: kindInt, num: i} }

// Float returns the floating point number f.
func Float(f float64) Value { return Value{kind: kindFloat, num: int64(math.Float64bits(f))} }

// String returns the string s, which should be UTF-8.
func String(s string) Value {
	return Value{kind: kindString, num: int64(len(s)), ref: unsafe.Pointer(unsafe.StringData(s))}
}

// List returns a list of items. The slice is kept: it must not be changed any more.
func List(items []Value) Value { return Value{kind: kindList, ref: unsafe.Pointer(&list{items})} }

func tuple(items ...Value) Value { return Value{kind: kindTuple, ref: unsafe.Pointer(&list{items})} }

// BigInt returns the integer i, which is kept: it must not be changed any more.
func BigInt(i *big.Int) Value {
	if i.IsInt64() {
		return Int(i.Int64())
	}
	return Value{kind: kindInt, ref: unsafe.Pointer(i)}
}

// likeString returns the string s, safe if v is.
func likeString(v Value, s string) Value {
	r := String(s)
	r.safe, r.done = v.safe, v.done
	return r
}

func undefinedVariable(name string) Value { return undefinedValue(&undefined{name: name}) }

func undefinedHint(hint string) Value { return undefinedValue(&undefined{hint: hint}) }

func undefinedValue(u *undefined) Value {
	return Value{kind: kindUndefined, ref: unsafe.Pointer(u)}
}

// Kind returns the type of v.
func (v Value) Kind() Kind {
	switch v.kind {
	case kindMissing, kindUndefined:
		return KindUndefined
	case kindNone:
		return KindNone
	case kindBool:
		return KindBool
	case kindInt:
		return KindInt
	case kindFloat:
		return KindFloat
	case kindString:
		return KindString
	case kindList:
		return KindList
	case kindTuple:
		return KindTuple
	case kindDict:
		return KindDict
	}
	return KindOther
}

// Str returns the text of a string value, else "".
func (v Value) Str() string {
	if v.kind != kindString {
		return ""
	}
	return v.str()
}

// Int64 returns the number of an integer value that fits into 64 bits.
func (v Value) Int64() (int64, bool) { return v.num, v.kind == kindInt && v.ref == nil }

// BigInt returns the number of an integer value that does not fit into 64 bits. It must not be changed.
func (v Value) BigInt() (*big.Int, bool) {
	if v.kind != kindInt || v.ref == nil {
		return nil, false
	}
	return v.big(), true
}

// Float64 returns the number of a float value.
func (v Value) Float64() (float64, bool) { return v.float(), v.kind == kindFloat }

// IsTrue tells whether v is the boolean true. (See Truthy for Python's idea of truth.)
func (v Value) IsTrue() bool { return v == True }

// Items returns the elements of a list or tuple, else nil. They must not be changed.
func (v Value) Items() []Value {
	if v.kind == kindList || v.kind == kindTuple {
		return v.items()
	}
	return nil
}

// Len returns the number of elements of a list, tuple or dict, else 0.
func (v Value) Len() int {
	switch v.kind {
	case kindList, kindTuple:
		return len(v.items())
	case kindDict:
		return len(v.dict().entries)
	}
	return 0
}

// Get returns the value that a dict has under a string key.
func (v Value) Get(key string) (Value, bool) {
	if v.kind != kindDict {
		return Value{}, false
	}
	return v.dict().getString(key)
}

// Entries returns the keys and values of a dict in their order, else nil. They must not be changed.
func (v Value) Entries() []Entry {
	if v.kind != kindDict {
		return nil
	}
	return v.dict().entries
}

func (v Value) str() string       { return unsafe.String((*byte)(v.ref), int(v.num)) }
func (v Value) float() float64    { return math.Float64frombits(uint64(v.num)) }
func (v Value) items() []Value    { return (*list)(v.ref).items }
func (v Value) dict() *dict       { return (*dict)(v.ref) }
func (v Value) big() *big.Int     { return (*big.Int)(v.ref) }
func (v Value) isUndefined() bool { return v.kind <= kindUndefined }

func (v Value) undefinedInfo() *undefined {
	if v.kind == kindUndefined && v.ref != nil {
		return (*undefined)(v.ref)
	}
	return &undefined{hint: "value is undefined"}
}

// undefinedError is the error for any use of an undefined value beyond printing, testing and looping.
func (v Value) undefinedError() error {
	u := v.undefinedInfo()
	class := u.class
	if class == "" {
		class = "UndefinedError"
	}
	switch {
	case u.hint != "":
		return &RenderError{Class: class, Message: u.hint}
	case u.owner != "":
		return &RenderError{Class: class, Message: "'" + u.owner + " object' has no attribute '" + u.name + "'"}
	}
	return &RenderError{Class: class, Message: "'" + u.name + "' is undefined"}
}

// typeName is the name of v's Python type, for messages.
func (v Value) typeName() string {
	switch v.kind {
	case kindMissing, kindUndefined:
		return "Undefined"
	case kindNone:
		return "NoneType"
	case kindBool:
		return "bool"
	case kindInt:
		return "int"
	case kindFloat:
		return "float"
	case kindString:
		if v.safe {
			return "Markup"
		}
		return "str"
	case kindList:
		return "list"
	case kindTuple:
		return "tuple"
	case kindDict:
		return "dict"
	case kindRange:
		return "range"
	case kindIterator:
		return (*iterator)(v.ref).typeName
	case kindView:
		return (*dictView)(v.ref).typeName()
	case kindNamespace:
		return "Namespace"
	case kindFunction:
		return "function"
	case kindMacro:
		return "Macro"
	case kindLoop:
		return "LoopContext"
	case kindObject:
		return (*object)(v.ref).typeName
	}
	return "object"
}

// Truthy tells whether v counts as true in a condition, as in Python: none, false, zero and whatever is empty do not.
func (v Value) Truthy() bool {
	switch v.kind {
	case kindMissing, kindUndefined, kindNone:
		return false
	case kindBool:
		return v.num != 0
	case kindInt:
		return v.num != 0 || v.ref != nil
	case kindFloat:
		return v.float() != 0
	case kindString:
		return v.num != 0
	case kindList, kindTuple:
		return len(v.items()) != 0
	case kindDict:
		return len(v.dict().entries) != 0
	case kindRange:
		return (*rangeValue)(v.ref).length() != 0
	case kindView:
		return len((*dictView)(v.ref).of.entries) != 0
	}
	return true
}
