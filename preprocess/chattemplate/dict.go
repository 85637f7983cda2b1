package chattemplate

import (
	"math"
	"strconv"
	"strings"
	"unsafe"
)

// Entry is one key of a dict with its value.
type Entry struct{ Key, Value Value }

// indexFrom is the size from which a dict has an index: below, looking at every key is faster.
const indexFrom = 9

// dict keeps its entries in the order in which the keys came first.
type dict struct {
	entries []Entry
	index   map[string]int32 // by hashKey, only from indexFrom entries on
}

// Dict builds a dict value.
type Dict struct{ d *dict }

// NewDict returns a builder with room for capacity entries.
func NewDict(capacity int) *Dict {
	return &Dict{&dict{entries: make([]Entry, 0, capacity)}}
}

// Set gives key a value; a key that is there keeps its place.
func (b *Dict) Set(key string, value Value) { b.d.setString(String(key), value) }

// Value returns the dict. The builder must not be used any more.
func (b *Dict) Value() Value { return dictValue(b.d) }

func dictValue(d *dict) Value { return Value{kind: kindDict, ref: unsafe.Pointer(d)} }

func (d *dict) getString(key string) (Value, bool) {
	if i := d.findString(key); i >= 0 {
		return d.entries[i].Value, true
	}
	return Value{}, false
}

func (d *dict) findString(key string) int {
	if d.index != nil {
		if i, ok := d.index[key]; ok {
			return int(i)
		}
		return -1
	}
	for i := range d.entries {
		k := &d.entries[i].Key
		if k.kind == kindString && int(k.num) == len(key) && k.str() == key {
			return i
		}
	}
	return -1
}

func (d *dict) setString(key Value, value Value) {
	if i := d.findString(key.str()); i >= 0 {
		d.entries[i].Value = value
		return
	}
	d.append(key, value)
}

func (d *dict) append(key, value Value) {
	d.entries = append(d.entries, Entry{key, value})
	if d.index != nil {
		if k, err := hashKey(key, 0); err == nil {
			d.index[k] = int32(len(d.entries) - 1)
		}
	} else if len(d.entries) >= indexFrom {
		d.buildIndex()
	}
}

func (d *dict) buildIndex() {
	d.index = make(map[string]int32, len(d.entries))
	for i := range d.entries {
		if k, err := hashKey(d.entries[i].Key, 0); err == nil {
			if _, dup := d.index[k]; !dup {
				d.index[k] = int32(i)
			}
		}
	}
}

// get looks up any key; an unhashable one is a TypeError.
func (d *dict) get(key Value) (Value, bool, error) {
	if key.kind == kindString {
		v, ok := d.getString(key.str())
		return v, ok, nil
	}
	i, err := d.find(key)
	if err != nil || i < 0 {
		return Value{}, false, err
	}
	return d.entries[i].Value, true, nil
}

func (d *dict) find(key Value) (int, error) {
	if key.kind == kindString {
		return d.findString(key.str()), nil
	}
	want, err := hashKey(key, 0)
	if err != nil {
		return -1, err
	}
	if d.index != nil {
		if i, ok := d.index[want]; ok {
			return int(i), nil
		}
		return -1, nil
	}
	for i := range d.entries {
		if have, err := hashKey(d.entries[i].Key, 0); err == nil && have == want {
			return i, nil
		}
	}
	return -1, nil
}

func (d *dict) set(key, value Value) error {
	i, err := d.find(key)
	if err != nil {
		return err
	}
	if i >= 0 {
		d.entries[i].Value = value
		return nil
	}
	d.append(key, value)
	return nil
}

// hashKey maps keys to strings so that equal keys in Python's sense (1, 1.0 and true) give equal strings. A string that
// does not begin with NUL maps to itself.
func hashKey(key Value, depth int) (string, error) {
	switch key.kind {
	case kindString:
		s := key.str()
		if strings.HasPrefix(s, "\x00") {
			return "\x00s" + s, nil
		}
		return s, nil
	case kindBool:
		return "\x00i" + strconv.FormatInt(key.num, 10), nil
	case kindInt:
		if key.ref != nil {
			return "\x00i" + key.big().String(), nil
		}
		return "\x00i" + strconv.FormatInt(key.num, 10), nil
	case kindFloat:
		f := key.float()
		if f == math.Trunc(f) && !math.IsInf(f, 0) {
			return "\x00i" + floatToInt(f).intText(), nil
		}
		return "\x00f" + strconv.FormatFloat(f, 'g', -1, 64), nil
	case kindNone:
		return "\x00n", nil
	case kindMissing, kindUndefined:
		return "\x00u", nil
	case kindTuple:
		if depth > maxValueDepth {
			return "", recursionError()
		}
		var b strings.Builder
		b.WriteString("\x00t")
		for _, item := range key.items() {
			part, err := hashKey(item, depth+1)
			if err != nil {
				return "", err
			}
			if b.Len() > 1<<20 {
				return "", &RenderError{Class: "MemoryError", Message: "a tuple used as a key is too large"}
			}
			b.WriteString(strconv.Itoa(len(part)))
			b.WriteByte(':')
			b.WriteString(part)
		}
		return b.String(), nil
	case kindList, kindDict, kindView:
		return "", typeError("unhashable type: '%s'", key.typeName())
	}
	return "\x00p" + strconv.FormatUint(uint64(uintptr(key.ref)), 16), nil
}

func recursionError() error {
	return &RenderError{Class: "RecursionError", Message: "a value is nested too deep"}
}
