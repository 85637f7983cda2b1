package chattemplate

import (
	"strings"
	"time"
)

// machine is the state of one render.
type machine struct {
	template *Template
	out      []byte  // what was printed; captured bodies are cut off its end
	input    []Value // the values of template.inputs
	act      activation
	stack    []Value // arguments and parts that are being collected
	frames   []Value // slots of the running macros
	depth    int     // running macros and recursive loops
	now      time.Time

	steps     int64 // left
	allocated int64 // bytes left
	limits    Limits
}

// activation is the storage of one run of a function: the template itself, a macro, a call block or a recursive loop.
type activation struct {
	slots []Value
	outer *activation // of the function in which this one is defined
	self  *activation // this activation, if functions defined inside may refer to it
}

// action is a compiled statement.
type action interface {
	run(m *machine) (flow, error)
}

// flow says how a statement ended.
type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

// op is a compiled expression.
type op interface {
	eval(m *machine) (Value, error)
}

// emitter is an op that can print its value without making it first.
type emitter interface {
	emit(m *machine) error
}

// block is a sequence of statements with the number of steps it costs, inner blocks not included.
type block struct {
	actions []action
	cost    int64
}

func (b *block) run(m *machine) (flow, error) {
	if err := m.spend(b.cost); err != nil {
		return 0, err
	}
	for _, a := range b.actions {
		if f, err := a.run(m); f != flowNext || err != nil {
			return f, err
		}
	}
	return flowNext, nil
}

// spend takes steps off the budget.
func (m *machine) spend(steps int64) error {
	if m.steps -= steps; m.steps < 0 {
		return &LimitError{Limit: "Steps", Max: m.limits.Steps}
	}
	return nil
}

// spendScan pays for looking at so many bytes.
func (m *machine) spendScan(bytes int) error { return m.spend(int64(bytes) >> 6) }

// allocate pays for bytes before they are allocated.
func (m *machine) allocate(bytes int) error {
	if bytes < 0 || int64(bytes) > m.allocated {
		return &LimitError{Limit: "AllocatedBytes", Max: m.limits.AllocatedBytes}
	}
	m.allocated -= int64(bytes)
	return m.spend(int64(bytes) >> 6)
}

// Sizes that are charged for what is allocated.
const (
	valueBytes = 24
	entryBytes = 2 * valueBytes
	// indexedBytes is an entry of a large dict: itself, its hash key and its place in the index, each grown by doubling.
	indexedBytes = 6 * entryBytes
	stringCost   = 16
)

func (m *machine) allocateValues(n int) error {
	if n > 1<<40 {
		n = 1 << 40
	}
	return m.allocate(n*valueBytes + stringCost)
}

func (m *machine) write(s string) error {
	m.out = append(m.out, s...)
	return m.checkOutput()
}

func (m *machine) checkOutput() error {
	if int64(len(m.out)) > m.limits.OutputBytes {
		return &LimitError{Limit: "OutputBytes", Max: m.limits.OutputBytes}
	}
	return nil
}

// print writes str(v).
func (m *machine) print(v Value) error {
	switch v.kind {
	case kindString:
		return m.write(v.str())
	case kindMissing, kindUndefined:
		return nil
	}
	if err := m.appendStr(v); err != nil {
		return err
	}
	return m.checkOutput()
}

func (m *machine) printOp(o op) error {
	if e, ok := o.(emitter); ok {
		return e.emit(m)
	}
	v, err := o.eval(m)
	if err != nil {
		return err
	}
	return m.print(v)
}

// capture returns what was printed since the output had the given length, and takes it off the output.
func (m *machine) capture(from int) (Value, error) {
	n := len(m.out) - from
	if err := m.allocate(n + stringCost); err != nil {
		return Value{}, err
	}
	s := string(m.out[from:])
	m.out = m.out[:from]
	return String(s), nil
}

// join returns the concatenation of strings.
func (m *machine) join(parts []Value, separator string) (Value, error) {
	n := 0
	for _, p := range parts {
		n += int(p.num) + len(separator)
	}
	if err := m.allocate(n + stringCost); err != nil {
		return Value{}, err
	}
	var b strings.Builder
	b.Grow(n)
	for i, p := range parts {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(p.str())
	}
	return String(b.String()), nil
}

// enterFunction makes room for a function's slots and switches to it; the returned activation is to be given back to
// leaveFunction.
func (m *machine) enterFunction(fn *functionScope, outer *activation) (activation, error) {
	caller := m.act
	if m.depth >= m.limits.Depth {
		return caller, &LimitError{Limit: "Depth", Max: int64(m.limits.Depth)}
	}
	m.depth++
	if fn.hasInner {
		if err := m.allocateValues(fn.slots); err != nil {
			return caller, err
		}
		act := &activation{slots: make([]Value, fn.slots), outer: outer}
		act.self = act
		m.act = *act
		return caller, nil
	}
	base := len(m.frames)
	if base+fn.slots <= cap(m.frames) {
		m.frames = m.frames[:base+fn.slots]
		clear(m.frames[base:])
	} else {
		m.frames = append(m.frames, make([]Value, fn.slots)...)
	}
	m.act = activation{slots: m.frames[base : base+fn.slots : base+fn.slots], outer: outer}
	return caller, nil
}

func (m *machine) leaveFunction(fn *functionScope, caller activation) {
	if !fn.hasInner {
		m.frames = m.frames[:len(m.frames)-fn.slots]
	}
	m.act = caller
	m.depth--
}
