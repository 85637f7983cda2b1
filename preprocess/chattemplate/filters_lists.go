package chattemplate

import (
	"sort"
	"strings"
)

func filterList(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("list"); err != nil {
		return v, err
	}
	items, err := m.list(v)
	return List(items), err
}

func filterFirst(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("first"); err != nil {
		return v, err
	}
	it, err := m.iterate(v)
	if err != nil {
		return v, err
	}
	item, ok, err := it.next(m)
	if err == nil && !ok {
		return undefinedHint("No first item, sequence was empty."), nil
	}
	return item, err
}

func filterLast(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("last"); err != nil {
		return v, err
	}
	items, err := m.list(v)
	if err != nil {
		return v, err
	}
	if len(items) == 0 {
		return undefinedHint("No last item, sequence was empty."), nil
	}
	return items[len(items)-1], nil
}

func filterReverse(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("reverse"); err != nil {
		return v, err
	}
	if v.kind == kindString {
		if err := m.allocate(int(v.num)); err != nil {
			return v, err
		}
		runes := []rune(v.str())
		for i, j := 0, len(runes)-1; i < j; i, j = i+1, j-1 {
			runes[i], runes[j] = runes[j], runes[i]
		}
		return likeString(v, string(runes)), nil
	}
	items, err := m.list(v)
	if err != nil {
		return v, err
	}
	reversed := make([]Value, len(items))
	for i, item := range items {
		reversed[len(items)-1-i] = item
	}
	if v.kind == kindIterator {
		return List(reversed), nil // Python has to read an iterator to its end, and gives the list that it made of it
	}
	at := 0
	return iteratorValue(generator(func(*machine) (Value, bool, error) {
		if at == len(reversed) {
			return Value{}, false, nil
		}
		at++
		return reversed[at-1], true, nil
	})), nil
}

var joinParams = params{fn: "join", names: []string{"d", "attribute"}}

func filterJoin(m *machine, v Value, args arguments) (Value, error) {
	var a [2]Value
	if err := joinParams.bind(args, a[:]); err != nil {
		return v, err
	}
	separator := ""
	if a[0].kind != kindMissing {
		var err error
		if separator, err = m.str(a[0]); err != nil {
			return v, err
		}
	}
	pick, err := m.attributePath(a[1])
	if err != nil {
		return v, err
	}
	var parts []Value
	err = m.each(v, func(item Value) error {
		part, err := pick(item)
		if err != nil {
			return err
		}
		text, err := m.str(part)
		if err != nil {
			return err
		}
		parts = append(parts, String(text))
		return m.allocateValues(1)
	})
	if err != nil {
		return v, err
	}
	return m.join(parts, separator)
}

// sorted sorts items by their keys, keeping the order of equals.
func (m *machine) sorted(items []Value, pick func(Value) (Value, error), reverse bool) ([]Value, error) {
	type keyed struct{ key, item Value }
	list := make([]keyed, len(items))
	for i, item := range items {
		key, err := pick(item)
		if err != nil {
			return nil, err
		}
		list[i] = keyed{key, item}
	}
	var failure error
	sort.SliceStable(list, func(i, j int) bool {
		if failure != nil {
			return false
		}
		x, y := list[i].key, list[j].key
		if reverse {
			x, y = y, x
		}
		less, err := m.compare(opLt, x, y)
		if err == nil {
			err = m.spend(1)
		}
		if err != nil {
			failure = err
		}
		return less
	})
	if failure != nil {
		return nil, failure
	}
	out := make([]Value, len(list))
	for i, entry := range list {
		out[i] = entry.item
	}
	return out, nil
}

var sortParams = params{fn: "sort", names: []string{"reverse", "case_sensitive", "attribute"}}

func filterSort(m *machine, v Value, args arguments) (Value, error) {
	var a [3]Value
	if err := sortParams.bind(args, a[:]); err != nil {
		return v, err
	}
	items, err := m.list(v)
	if err != nil {
		return v, err
	}
	pick, err := m.sortKeys(a[2], a[1].Truthy())
	if err != nil {
		return v, err
	}
	out, err := m.sorted(items, pick, a[0].Truthy())
	return List(out), err
}

// sortKeys returns the key of the sort filter, which is a list: of one value, or of those of several attributes ("a,b").
func (m *machine) sortKeys(path Value, caseSensitive bool) (func(Value) (Value, error), error) {
	paths := []Value{path}
	if path.kind == kindString {
		paths = paths[:0]
		for part := range strings.SplitSeq(path.str(), ",") {
			paths = append(paths, String(part))
		}
	}
	picks := make([]func(Value) (Value, error), len(paths))
	for i, part := range paths {
		var err error
		if picks[i], err = m.sortKey(part, caseSensitive); err != nil {
			return nil, err
		}
	}
	return func(v Value) (Value, error) {
		if err := m.allocateValues(len(picks)); err != nil {
			return v, err
		}
		keys := make([]Value, len(picks))
		for i, pick := range picks {
			var err error
			if keys[i], err = pick(v); err != nil {
				return v, err
			}
		}
		return List(keys), nil
	}, nil
}

var uniqueParams = params{fn: "unique", names: []string{"case_sensitive", "attribute"}}

func filterUnique(m *machine, v Value, args arguments) (Value, error) {
	var a [2]Value
	if err := uniqueParams.bind(args, a[:]); err != nil {
		return v, err
	}
	pick, err := m.sortKey(a[1], a[0].Truthy())
	if err != nil {
		return v, err
	}
	seen := &dict{}
	var out []Value
	err = m.each(v, func(item Value) error {
		key, err := pick(item)
		if err != nil {
			return err
		}
		_, known, err := seen.get(key)
		if err != nil || known {
			return err
		}
		out = append(out, item)
		if err := m.allocate(indexedBytes); err != nil {
			return err
		}
		return seen.set(key, True)
	})
	return List(out), err
}

var batchParams = params{fn: "batch", names: []string{"linecount", "fill_with"}, required: 1}

func filterBatch(m *machine, v Value, args arguments) (Value, error) {
	var a [2]Value
	if err := batchParams.bind(args, a[:]); err != nil {
		return v, err
	}
	size, err := wantInt("batch", a[0])
	if err != nil {
		return v, err
	}
	var out, row []Value
	err = m.each(v, func(item Value) error {
		if len(row) == size && len(row) > 0 {
			out = append(out, List(row))
			row = nil
		}
		row = append(row, item)
		return m.allocateValues(2)
	})
	if err != nil {
		return v, err
	}
	if len(row) > 0 {
		if a[1].kind > kindNone {
			if err := m.allocateValues(max(size, 0)); err != nil {
				return v, err
			}
			for len(row) < size {
				row = append(row, a[1])
			}
		}
		out = append(out, List(row))
	}
	return List(out), nil
}

var sliceParams = params{fn: "slice", names: []string{"slices", "fill_with"}, required: 1}

func filterSlice(m *machine, v Value, args arguments) (Value, error) {
	var a [2]Value
	if err := sliceParams.bind(args, a[:]); err != nil {
		return v, err
	}
	slices, err := wantInt("slice", a[0])
	if err != nil {
		return v, err
	}
	items, err := m.list(v)
	if err != nil {
		return v, err
	}
	if slices == 0 {
		return v, &RenderError{Class: "ZeroDivisionError", Message: "integer division or modulo by zero"}
	}
	if err := m.allocateValues(max(slices, 0)); err != nil {
		return v, err
	}
	var out []Value
	each, extra, at := len(items)/max(slices, 1), len(items)%max(slices, 1), 0
	for i := range max(slices, 0) {
		size := each
		if i < extra {
			size++
		}
		row := append([]Value(nil), items[at:at+size]...)
		at += size
		if a[1].kind > kindNone && i >= extra {
			row = append(row, a[1])
		}
		out = append(out, List(row))
	}
	return List(out), nil
}

var groupByParams = params{fn: "groupby", names: []string{"attribute", "default", "case_sensitive"}, required: 1}

func filterGroupBy(m *machine, v Value, args arguments) (Value, error) {
	var a [3]Value
	if err := groupByParams.bind(args, a[:]); err != nil {
		return v, err
	}
	items, err := m.list(v)
	if err != nil {
		return v, err
	}
	plain, err := m.attributePath(a[0])
	if err != nil {
		return v, err
	}
	withDefault := func(item Value) (Value, error) {
		key, err := plain(item)
		if err == nil && key.isUndefined() && a[1].kind != kindMissing {
			return a[1], nil
		}
		return key, err
	}
	fold := func(item Value) (Value, error) {
		key, err := withDefault(item)
		if err == nil && key.kind == kindString && !a[2].Truthy() {
			return String(lower(key.str())), nil
		}
		return key, err
	}
	ordered, err := m.sorted(items, fold, false)
	if err != nil {
		return v, err
	}
	var out []Value
	var group []Value
	var current Value
	flush := func() error {
		if len(group) == 0 {
			return nil
		}
		key, err := withDefault(group[0])
		out = append(out, tuple(key, List(group)))
		group = nil
		return err
	}
	for _, item := range ordered {
		key, err := fold(item)
		if err != nil {
			return v, err
		}
		if len(group) > 0 {
			same, err := m.equal(key, current, 0)
			if err != nil {
				return v, err
			}
			if !same {
				if err := flush(); err != nil {
					return v, err
				}
			}
		}
		current = key
		group = append(group, item)
	}
	err = flush()
	return List(out), err
}

func filterItems(m *machine, v Value, args arguments) (Value, error) {
	if err := args.none("items"); err != nil {
		return v, err
	}
	switch {
	case v.isUndefined():
		return List(nil), nil
	case v.kind != kindDict:
		return v, typeError("Can only get item pairs from a mapping.")
	}
	if err := m.allocateValues(3 * v.Len()); err != nil {
		return v, err
	}
	pairs := make([]Value, 0, v.Len())
	for _, entry := range v.dict().entries {
		pairs = append(pairs, tuple(entry.Key, entry.Value))
	}
	return List(pairs), nil
}

var dictSortParams = params{fn: "dictsort", names: []string{"case_sensitive", "by", "reverse"}}

func filterDictSort(m *machine, v Value, args arguments) (Value, error) {
	var a [3]Value
	if err := dictSortParams.bind(args, a[:]); err != nil {
		return v, err
	}
	position := 0
	if a[1].kind != kindMissing {
		switch a[1].Str() {
		case "key":
		case "value":
			position = 1
		default:
			return v, &RenderError{Class: "FilterArgumentError", Message: "You can only sort by either \"key\" or \"value\""}
		}
	}
	if v.isUndefined() {
		return v, v.undefinedError()
	}
	pairs, err := filterItems(m, v, arguments{})
	if err != nil {
		return v, err
	}
	pick, err := m.sortKey(Int(int64(position)), a[0].Truthy())
	if err != nil {
		return v, err
	}
	out, err := m.sorted(pairs.items(), pick, a[2].Truthy())
	return List(out), err
}

var attrParams = params{fn: "attr", names: []string{"name"}, required: 1}

func filterAttr(m *machine, v Value, args arguments) (Value, error) {
	var a [1]Value
	if err := attrParams.bind(args, a[:]); err != nil {
		return v, err
	}
	name, err := m.str(a[0])
	if err != nil {
		return v, err
	}
	attr, found, err := m.attribute(v, name)
	if err == nil && !found {
		return lackOf(v.typeName(), name), nil
	}
	return attr, err
}

// filterMap is map('filter', …) and map(attribute='path', default=…).
func filterMap(m *machine, v Value, args arguments) (Value, error) {
	if !v.Truthy() {
		return List(nil), nil // Jinja looks at nothing else then, not even at what the value is
	}
	transform, err := m.mapping(args)
	if err != nil {
		return v, err
	}
	it, err := m.iterate(v)
	if err != nil {
		return v, err
	}
	return iteratorValue(generator(func(m *machine) (Value, bool, error) {
		item, ok, err := it.next(m)
		if err != nil || !ok {
			return item, ok, err
		}
		item, err = transform(item)
		return item, true, err
	})), nil
}

func (m *machine) mapping(args arguments) (func(Value) (Value, error), error) {
	if len(args.positional) == 0 {
		var attribute, fallback Value
		for i, name := range args.names {
			switch name {
			case "attribute":
				attribute = args.named[i]
			case "default":
				fallback = args.named[i]
			default:
				return nil, &RenderError{Class: "FilterArgumentError", Message: "Unexpected keyword argument '" + name + "'"}
			}
		}
		if attribute.kind == kindMissing {
			return nil, &RenderError{Class: "FilterArgumentError", Message: "map requires a filter argument"}
		}
		pick, err := m.attributePath(attribute)
		if err != nil {
			return nil, err
		}
		return func(v Value) (Value, error) {
			found, err := pick(v)
			if err == nil && found.isUndefined() && fallback.kind != kindMissing {
				return fallback, nil
			}
			return found, err
		}, nil
	}
	name, err := wantText("map", args.positional[0])
	if err != nil {
		return nil, err
	}
	f := m.template.filter(name)
	if f == nil {
		return nil, &RenderError{Class: "TemplateRuntimeError", Message: "No filter named '" + name + "'."}
	}
	rest := arguments{positional: append([]Value(nil), args.positional[1:]...), names: args.names, named: append([]Value(nil), args.named...)}
	return func(v Value) (Value, error) { return f(m, v, rest) }, nil
}

// selectFilter is select, reject, selectattr and rejectattr.
func selectFilter(keep, byAttribute bool) filterFunc {
	return func(m *machine, v Value, args arguments) (Value, error) {
		if !v.Truthy() {
			return List(nil), nil
		}
		holds, err := m.selection(args, byAttribute)
		if err != nil {
			return v, err
		}
		it, err := m.iterate(v)
		if err != nil {
			return v, err
		}
		return iteratorValue(generator(func(m *machine) (Value, bool, error) {
			for {
				item, ok, err := it.next(m)
				if err != nil || !ok {
					return item, ok, err
				}
				if err := m.spend(1); err != nil {
					return item, false, err
				}
				selected, err := holds(item)
				if err != nil {
					return item, false, err
				}
				if selected == keep {
					return item, true, nil
				}
			}
		})), nil
	}
}

func (m *machine) selection(args arguments, byAttribute bool) (func(Value) (bool, error), error) {
	positional := args.positional
	pick := func(v Value) (Value, error) { return v, nil }
	if byAttribute {
		if len(positional) == 0 {
			return nil, &RenderError{Class: "FilterArgumentError", Message: "Missing parameter for attribute name"}
		}
		var err error
		if pick, err = m.attributePath(positional[0]); err != nil {
			return nil, err
		}
		positional = positional[1:]
	}
	if len(positional) == 0 {
		return func(v Value) (bool, error) {
			v, err := pick(v)
			if err != nil {
				return false, err
			}
			return m.truthy(v)
		}, nil
	}
	name, err := wantText("select", positional[0])
	if err != nil {
		return nil, err
	}
	test := tests[name]
	if test == nil {
		return nil, &RenderError{Class: "TemplateRuntimeError", Message: "No test named '" + name + "'."}
	}
	rest := arguments{positional: append([]Value(nil), positional[1:]...), names: args.names, named: append([]Value(nil), args.named...)}
	return func(v Value) (bool, error) {
		v, err := pick(v)
		if err != nil {
			return false, err
		}
		return test(m, v, rest)
	}, nil
}
