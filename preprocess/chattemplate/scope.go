package chattemplate

// Jinja decides at compile time where each name lives. A loop, macro, set block, filter block or with block has a scope of its
// own; what it assigns is not seen outside, and begins each time with the value that the name has outside. An if block
// has none. The same analysis is done here, and every name that is assigned becomes a numbered slot.

// functionScope is the storage that one activation of a macro, call block, recursive loop or the template itself needs.
type functionScope struct {
	outer    *functionScope
	slots    int
	hasInner bool // functions are defined inside, which may outlive an activation and see its slots
}

func (f *functionScope) newSlot() int {
	f.slots++
	return f.slots - 1
}

type startValue uint8

const (
	startsAsParameter startValue = iota // set by whoever enters the scope
	startsAsGlobal                      // the template's input of that name
	startsAsOuter                       // the value of the name in the scope outside
	startsUnset
)

// variable is a name in a scope.
type variable struct {
	name    string
	fn      *functionScope
	slot    int // -1: never assigned, read from the template's input
	starts  startValue
	outside *variable // for startsAsOuter
}

type scope struct {
	compiler *compiler
	fn       *functionScope
	parent   *scope
	names    map[string]*variable
	order    []*variable
	stored   map[string]bool
	branches int // if blocks around the statement that is looked at
}

func (c *compiler) newScope(parent *scope, fn *functionScope) *scope {
	return &scope{compiler: c, fn: fn, parent: parent, names: map[string]*variable{}, stored: map[string]bool{}}
}

// find returns the variable that a name means here, or nil.
func (s *scope) find(name string) *variable {
	for ; s != nil; s = s.parent {
		if v := s.names[name]; v != nil {
			return v
		}
	}
	return nil
}

func (s *scope) define(name string, starts startValue) *variable {
	v := s.names[name]
	if v == nil {
		v = &variable{name: name, fn: s.fn, slot: -1}
		s.names[name] = v
		s.order = append(s.order, v)
	}
	v.starts = starts
	if v.slot < 0 && starts != startsAsGlobal {
		v.slot = s.fn.newSlot()
	}
	return v
}

func (s *scope) parameter(name string) *variable {
	s.stored[name] = true
	return s.define(name, startsAsParameter)
}

func (s *scope) load(name string) {
	if s.find(name) == nil {
		s.define(name, startsAsGlobal)
	}
}

func (s *scope) store(name string) {
	if s.stored[name] {
		return
	}
	s.stored[name] = true
	var outside *variable
	if s.parent != nil {
		outside = s.parent.find(name)
	}
	v := s.names[name]
	switch {
	case outside != nil && (v == nil || s.branches > 0):
		v = s.define(name, startsAsOuter)
		v.outside = outside
	case v != nil || s.branches > 0:
		v = s.define(name, startsAsGlobal)
	default:
		v = s.define(name, startsUnset)
	}
	if v.slot < 0 {
		v.slot = s.fn.newSlot()
	}
}

// analyze notes the names that statements of this scope read and assign; it stops at inner scopes.
func (s *scope) analyze(body []stmt) {
	for _, st := range body {
		switch st := st.(type) {
		case *outputStmt:
			s.reads(st.parts...)
		case *ifStmt:
			for i, test := range st.tests {
				s.reads(test)
				s.branches++
				s.analyze(st.bodies[i])
				s.branches--
			}
			s.branches++
			s.analyze(st.other)
			s.branches--
		case *forStmt:
			s.reads(st.over)
		case *setStmt:
			s.reads(st.value)
			s.assigns(st.target)
		case *setBlockStmt:
			s.assigns(st.target)
		case *withStmt:
			s.reads(st.values...)
		case *filterStmt:
			s.reads(st.filter)
		case *macroStmt:
			s.store(st.name)
		case *callStmt:
			s.reads(st.call)
		}
	}
}

func (s *scope) assigns(target expr) {
	switch t := target.(type) {
	case *nameExpr:
		s.store(t.name)
	case *namespaceRef:
		s.load(t.name)
	case *tupleExpr:
		for _, item := range t.items {
			s.assigns(item)
		}
	}
}

// parameters declares the names of a loop's target.
func (s *scope) parameters(target expr) {
	switch t := target.(type) {
	case *nameExpr:
		s.parameter(t.name)
	case *tupleExpr:
		for _, item := range t.items {
			s.parameters(item)
		}
	}
}

func (s *scope) reads(exprs ...expr) {
	for _, e := range exprs {
		walk(e, func(name string) { s.load(name) })
	}
}

// walk calls visit for every name that an expression reads.
func walk(e expr, visit func(name string)) {
	each := func(list []expr) {
		for _, item := range list {
			walk(item, visit)
		}
	}
	args := func(a *callArgs) {
		each(a.positional)
		each(a.values)
		walk(a.star, visit)
		walk(a.doubleStar, visit)
	}
	switch e := e.(type) {
	case *nameExpr:
		visit(e.name)
	case *namespaceRef:
		visit(e.name)
	case *tupleExpr:
		each(e.items)
	case *listExpr:
		each(e.items)
	case *dictExpr:
		each(e.keys)
		each(e.values)
	case *condExpr:
		walk(e.test, visit)
		walk(e.then, visit)
		walk(e.otherwise, visit)
	case *andExpr:
		walk(e.left, visit)
		walk(e.right, visit)
	case *orExpr:
		walk(e.left, visit)
		walk(e.right, visit)
	case *notExpr:
		walk(e.of, visit)
	case *compareExpr:
		walk(e.first, visit)
		each(e.rest)
	case *binaryExpr:
		walk(e.left, visit)
		walk(e.right, visit)
	case *unaryExpr:
		walk(e.of, visit)
	case *concatExpr:
		each(e.parts)
	case *attrExpr:
		walk(e.of, visit)
	case *itemExpr:
		walk(e.of, visit)
		walk(e.key, visit)
	case *sliceExpr:
		walk(e.of, visit)
		walk(e.start, visit)
		walk(e.stop, visit)
		walk(e.step, visit)
	case *callExpr:
		walk(e.callee, visit)
		args(&e.args)
	case *filterExpr:
		if e != nil {
			walk(e.of, visit)
			args(&e.args)
		}
	case *testExpr:
		walk(e.of, visit)
		args(&e.args)
	}
}

// readsName tells whether statements, those in inner scopes included, read a name before they assign it.
func readsName(body []stmt, name string) bool {
	r := nameReader{name: name}
	r.body(body)
	return r.read
}

type nameReader struct {
	name     string
	read     bool
	assigned bool
}

func (r *nameReader) exprs(list ...expr) {
	for _, e := range list {
		walk(e, func(name string) {
			if name == r.name && !r.assigned {
				r.read = true
			}
		})
	}
}

func (r *nameReader) target(e expr) {
	switch t := e.(type) {
	case *nameExpr:
		if t.name == r.name {
			r.assigned = true
		}
	case *tupleExpr:
		for _, item := range t.items {
			r.target(item)
		}
	}
}

func (r *nameReader) params(s signature) {
	for _, p := range s.params {
		if p == r.name {
			r.assigned = true
		}
	}
	r.exprs(s.defaults...)
}

func (r *nameReader) body(body []stmt) {
	for _, st := range body {
		if r.read {
			return
		}
		switch st := st.(type) {
		case *outputStmt:
			r.exprs(st.parts...)
		case *ifStmt:
			for i, test := range st.tests {
				r.exprs(test)
				r.body(st.bodies[i])
			}
			r.body(st.other)
		case *forStmt:
			r.target(st.target)
			r.exprs(st.over)
			r.body(st.body)
			r.body(st.other)
			r.exprs(st.filter)
		case *setStmt:
			r.target(st.target)
			r.exprs(st.value)
		case *setBlockStmt:
			r.target(st.target)
			r.exprs(st.filter)
			r.body(st.body)
		case *withStmt:
			for _, name := range st.names {
				r.target(&nameExpr{name: name})
			}
			r.exprs(st.values...)
			r.body(st.body)
		case *filterStmt:
			r.body(st.body)
			r.exprs(st.filter)
		case *scopeStmt:
			r.body(st.body)
		case *macroStmt:
			r.params(st.signature)
			r.body(st.body)
		case *callStmt:
			r.exprs(st.call)
			r.params(st.signature)
			r.body(st.body)
		}
	}
}
