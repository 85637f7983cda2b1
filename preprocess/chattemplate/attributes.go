package chattemplate

import "unicode/utf8"

// attrOp is of.name: an attribute or method, else the element under that key.
type attrOp struct {
	of   op
	name string
	loop loopAttr
	// dictHides: dicts have a method of this name, which hides a key of the same name.
	dictHides bool
	lacking   Value // the undefined value for dicts without such a key
}

func (c *compiler) attr(of op, name string) *attrOp {
	return &attrOp{of: of, name: name, loop: loopAttrs[name], dictHides: isDictAttr(name) && c.template.options.Dialect == Python,
		lacking: lackOf("dict", name)}
}

// lackOf is the undefined value for an attribute that a type does not have.
func lackOf(owner, name string) Value {
	return undefinedValue(&undefined{owner: owner, name: name})
}

func (o *attrOp) eval(m *machine) (Value, error) {
	v, err := o.of.eval(m)
	if err != nil {
		return v, err
	}
	return o.get(m, v)
}

func (o *attrOp) get(m *machine, v Value) (Value, error) {
	switch {
	case v.kind == kindDict && !o.dictHides:
		if value, ok := v.dict().getString(o.name); ok {
			return value, nil
		}
		return o.lacking, nil
	case v.kind == kindLoop && o.loop != loopNone:
		return (*loopContext)(v.ref).attr(m, o.loop)
	}
	return m.getattr(v, o.name)
}

// getattr is v.name in a template.
func (m *machine) getattr(v Value, name string) (Value, error) {
	attr, found, err := m.attribute(v, name)
	if found || err != nil {
		return attr, err
	}
	if v.kind == kindDict {
		if value, ok := v.dict().getString(name); ok {
			return value, nil
		}
	}
	return lackOf(v.typeName(), name), nil
}

// attribute finds an attribute in Python's sense: not an element. What the sandbox hides is found, but undefined.
func (m *machine) attribute(v Value, name string) (attr Value, found bool, err error) {
	var methods map[string]method
	switch v.kind {
	case kindMissing, kindUndefined:
		return Value{}, false, v.undefinedError()
	case kindString:
		methods = textMethods
	case kindDict:
		methods = dictMethods
	case kindList, kindTuple:
		methods = listMethods
	case kindInt, kindBool, kindFloat:
		methods = numberMethods
		if attr, ok := numberAttr(v, name); ok {
			return attr, true, nil
		}
		if (name == "is_integer" || name == "hex" || name == "fromhex") && v.kind != kindFloat || (name == "bit_length" || name == "bit_count") && v.kind == kindFloat {
			return Value{}, false, nil
		}
	case kindNamespace:
		attr, ok := (*namespace)(v.ref).attrs.getString(name)
		return attr, ok, nil
	case kindLoop:
		if a := loopAttrs[name]; a != loopNone {
			attr, err := (*loopContext)(v.ref).attr(m, a)
			return attr, true, err
		}
	case kindMacro:
		attr, ok := (*macro)(v.ref).attr(name)
		return attr, ok, nil
	case kindRange:
		r := (*rangeValue)(v.ref)
		switch name {
		case "start":
			return Int(r.start), true, nil
		case "stop":
			return Int(r.stop), true, nil
		case "step":
			return Int(r.step), true, nil
		}
		methods = listMethods
	case kindObject:
		attr, ok := (*object)(v.ref).attr(name)
		return attr, ok, nil
	}
	call, ok := methods[name]
	switch {
	case ok && call == nil, v.kind == kindList && mutatesList(name):
		return undefinedValue(&undefined{class: "SecurityError",
			hint: "access to attribute '" + name + "' of '" + v.typeName() + "' object is unsafe."}), true, nil
	case !ok:
		return Value{}, false, nil
	}
	return functionValue(name, func(m *machine, args arguments) (Value, error) { return call(m, v, args) }), true, nil
}

func (mc *macro) attr(name string) (Value, bool) {
	def := mc.def
	switch name {
	case "name":
		if def.name == "" {
			return None, true
		}
		return String(def.name), true
	case "arguments":
		names := make([]Value, len(def.params))
		for i, p := range def.params {
			names[i] = String(p)
		}
		return tuple(names...), true
	case "catch_kwargs":
		return Bool(def.kwargs >= 0), true
	case "catch_varargs":
		return Bool(def.varargs >= 0), true
	case "caller":
		return Bool(def.caller >= 0), true
	case "explicit_caller":
		return Bool(def.explicitCaller), true
	}
	return Value{}, false
}

// textItemOp is of["name"] with a constant name.
type textItemOp struct {
	of      op
	key     Value
	name    string
	lacking Value
}

func (o *textItemOp) eval(m *machine) (Value, error) {
	v, err := o.of.eval(m)
	if err != nil {
		return v, err
	}
	if v.kind == kindDict {
		if value, ok := v.dict().getString(o.name); ok {
			return value, nil
		}
		if !isDictAttr(o.name) || m.mini() {
			return o.lacking, nil
		}
	}
	return m.getitem(v, o.key)
}

// indexOp is of[n] with a constant integer.
type indexOp struct {
	of    op
	key   Value
	index int
}

func (o *indexOp) eval(m *machine) (Value, error) {
	v, err := o.of.eval(m)
	if err != nil {
		return v, err
	}
	if v.kind == kindList {
		items := v.items()
		i := o.index
		if i < 0 {
			i += len(items)
		}
		if i >= 0 && i < len(items) {
			return items[i], nil
		}
	}
	return m.getitem(v, o.key)
}

type itemOp struct{ of, key op }

func (o *itemOp) eval(m *machine) (Value, error) {
	v, err := o.of.eval(m)
	if err != nil {
		return v, err
	}
	key, err := o.key.eval(m)
	if err != nil {
		return v, err
	}
	return m.getitem(v, key)
}

// getitem is v[key] in a template: an element, else the attribute of that name, else undefined.
func (m *machine) getitem(v, key Value) (Value, error) {
	if v.isUndefined() {
		return v, v.undefinedError()
	}
	item, found, err := m.element(v, key)
	if found || err != nil {
		return item, err
	}
	if key.kind == kindString {
		attr, found, err := m.attribute(v, key.str())
		if found || err != nil {
			return attr, err
		}
		return lackOf(v.typeName(), key.str()), nil
	}
	start := len(m.out)
	if err := m.appendRepr(key, 0); err != nil {
		return v, err
	}
	name := string(m.out[start:])
	m.out = m.out[:start]
	return undefinedHint(v.typeName() + " object has no element " + name), nil
}

// element finds v[key] in Python's sense.
func (m *machine) element(v, key Value) (Value, bool, error) {
	switch v.kind {
	case kindDict:
		value, ok, err := v.dict().get(key)
		if hasClass(err, "TypeError") {
			return Value{}, false, nil
		}
		return value, ok, err
	case kindList, kindTuple, kindRange, kindString:
		if !key.isSmall() {
			return Value{}, false, nil
		}
	default:
		return Value{}, false, nil
	}
	index := int(key.num)
	switch v.kind {
	case kindString:
		return m.character(v, index)
	case kindRange:
		r := (*rangeValue)(v.ref)
		n := r.length()
		if index < 0 {
			index += n
		}
		if index < 0 || index >= n {
			return Value{}, false, nil
		}
		return Int(r.at(index)), true, nil
	}
	items := v.items()
	if index < 0 {
		index += len(items)
	}
	if index < 0 || index >= len(items) {
		return Value{}, false, nil
	}
	return items[index], true, nil
}

// character returns the character of a string at an index.
func (m *machine) character(v Value, index int) (Value, bool, error) {
	s := v.str()
	if err := m.spendScan(min(len(s), 4*max(index, -index-1))); err != nil {
		return Value{}, false, err
	}
	if index < 0 {
		for index < -1 && s != "" {
			_, size := utf8.DecodeLastRuneInString(s)
			s = s[:len(s)-size]
			index++
		}
		if s == "" {
			return Value{}, false, nil
		}
		_, size := utf8.DecodeLastRuneInString(s)
		return likeString(v, s[len(s)-size:]), true, nil
	}
	start := byteOffset(s, index)
	if start >= len(s) {
		return Value{}, false, nil
	}
	_, size := utf8.DecodeRuneInString(s[start:])
	return likeString(v, s[start:start+size]), true, nil
}

type sliceOp struct{ of, start, stop, step op }

func (o *sliceOp) eval(m *machine) (Value, error) {
	v, err := o.of.eval(m)
	if err != nil {
		return v, err
	}
	var bounds [3]Value
	for i, part := range []op{o.start, o.stop, o.step} {
		bounds[i] = None
		if part != nil {
			if bounds[i], err = part.eval(m); err != nil {
				return v, err
			}
		}
	}
	return m.slice(v, bounds)
}

// slice is v[start:stop:step].
func (m *machine) slice(v Value, bounds [3]Value) (Value, error) {
	if v.isUndefined() {
		return v, v.undefinedError()
	}
	n := 0
	ascii := true
	switch v.kind {
	case kindString:
		if err := m.spendScan(int(v.num)); err != nil {
			return v, err
		}
		if ascii = isASCII(v.str()); ascii {
			n = int(v.num)
		} else {
			n = utf8.RuneCountInString(v.str())
		}
	case kindList, kindTuple:
		n = len(v.items())
	case kindRange:
		n = (*rangeValue)(v.ref).length()
	default:
		return v, typeError("'%s' object can't be sliced", v.typeName())
	}
	start, stop, step, err := sliceBounds(bounds, n)
	if err != nil {
		return v, err
	}
	count := (&rangeValue{int64(start), int64(stop), int64(step)}).length()
	switch v.kind {
	case kindString:
		return m.sliceText(v, ascii, start, count, step)
	case kindRange:
		r := (*rangeValue)(v.ref)
		return rangeOf(r.at(start), r.at(start)+int64(stop-start)*r.step, r.step*int64(step)), nil
	}
	items := v.items()
	var part []Value
	if step == 1 {
		part = items[start : start+count : start+count]
	} else {
		part = make([]Value, 0, count)
		if err := m.allocateValues(count); err != nil {
			return v, err
		}
		for i := 0; i < count; i++ {
			part = append(part, items[start+i*step])
		}
	}
	r := List(part)
	r.kind = v.kind
	return r, m.allocateValues(1)
}

func (m *machine) sliceText(v Value, ascii bool, start, count, step int) (Value, error) {
	s := v.str()
	if count == 0 {
		return likeString(v, ""), nil
	}
	if step == 1 {
		if ascii {
			return likeString(v, s[start:start+count]), nil
		}
		from := byteOffset(s, start)
		return likeString(v, s[from:from+byteOffset(s[from:], count)]), nil
	}
	if err := m.allocate(len(s)*4 + count*4); err != nil {
		return v, err
	}
	runes := []rune(s)
	out := make([]rune, 0, count)
	for i := 0; i < count; i++ {
		out = append(out, runes[start+i*step])
	}
	return likeString(v, string(out)), nil
}

// sliceBounds puts slice bounds into the range that a sequence of n elements has.
func sliceBounds(bounds [3]Value, n int) (start, stop, step int, err error) {
	step = 1
	get := func(v Value, low, high, otherwise int) (int, error) {
		if v.kind == kindNone {
			return otherwise, nil
		}
		if !v.isInteger() {
			return 0, typeError("slice indices must be integers or None, not %s", v.typeName())
		}
		i := v.num
		if !v.isSmall() {
			i = int64(v.big().Sign()) << 62
		}
		if i < 0 {
			i += int64(n)
		}
		return int(min(max(i, int64(low)), int64(high))), nil
	}
	if s := bounds[2]; s.kind != kindNone {
		if !s.isInteger() {
			return 0, 0, 0, typeError("slice indices must be integers or None, not %s", s.typeName())
		}
		if s.isSmall() {
			step = int(max(min(s.num, 1<<40), -1<<40))
		} else {
			step = s.big().Sign() << 40
		}
		if step == 0 {
			return 0, 0, 0, valueError("slice step cannot be zero")
		}
	}
	low, high, first, last := 0, n, 0, n
	if step < 0 {
		low, high, first, last = -1, n-1, n-1, -1
	}
	if start, err = get(bounds[0], low, high, first); err != nil {
		return
	}
	stop, err = get(bounds[1], low, high, last)
	return
}
