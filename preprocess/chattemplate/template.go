package chattemplate

import (
	"sync"
	"time"
)

// Options say how a template is compiled and run. The zero Options are those of transformers.
type Options struct {
	// Limits bound each render.
	Limits Limits
	// Now is the clock of strftime_now; nil means time.Now. Its time zone is the one that is printed.
	Now func() time.Time
	// Filters are additional filters, or other definitions of existing ones. They get the value, and the call's positional
	// arguments; what they return must not change afterwards.
	Filters map[string]func(value Value, args []Value) (Value, error)
	// Dialect is whose idea of Jinja is followed; the zero Dialect is Python's.
	Dialect Dialect
}

// Template is a compiled chat template. It may be used by any number of goroutines at once.
type Template struct {
	body    *block
	root    *functionScope
	loads   []load
	inputs  []string // names that the template reads from its input
	options Options
	limits  Limits
	pool    sync.Pool // of *machine
	source  string
}

// Compile compiles a template's source. Errors are of type *SyntaxError.
func Compile(source string, options Options) (*Template, error) {
	body, err := parse(source)
	if err != nil {
		return nil, err
	}
	t := &Template{options: options, limits: options.Limits.withDefaults(), source: source}
	c := &compiler{template: t, inputs: map[string]int{}}
	if err := c.compile(body); err != nil {
		return nil, err
	}
	return t, nil
}

// Source returns the text that the template was compiled from.
func (t *Template) Source() string { return t.source }

// Render renders the template with the variables in a dict. The error is a *RaisedError if the template refused the input, a
// *LimitError if the render cost too much, else a *RenderError.
func (t *Template) Render(variables Value) (string, error) {
	m, err := t.render(variables)
	if err != nil {
		t.release(m)
		return "", err
	}
	s := string(m.out)
	t.release(m)
	return s, nil
}

// AppendRender is Render that appends the text to a buffer.
func (t *Template) AppendRender(buffer []byte, variables Value) ([]byte, error) {
	m, err := t.render(variables)
	if err == nil {
		buffer = append(buffer, m.out...)
	}
	t.release(m)
	return buffer, err
}

func (t *Template) render(variables Value) (*machine, error) {
	m, _ := t.pool.Get().(*machine)
	if m == nil {
		m = &machine{template: t, limits: t.limits, input: make([]Value, len(t.inputs))}
	}
	m.steps, m.allocated = t.limits.Steps, t.limits.AllocatedBytes
	for i, name := range t.inputs {
		if v, ok := variables.Get(name); ok {
			m.input[i] = v
		} else {
			m.input[i] = globals[name]
		}
	}
	act := &activation{slots: make([]Value, t.root.slots)}
	act.self = act
	m.act = *act
	if err := m.load(t.loads); err != nil {
		return m, err
	}
	_, err := t.body.run(m)
	return m, err
}

// maxPooledBytes is the largest output buffer that is kept for the next render.
const maxPooledBytes = 1 << 20

// release forgets the values of a render, so that they can be collected, and keeps the buffers.
func (t *Template) release(m *machine) {
	if cap(m.out) > maxPooledBytes {
		m.out = nil
	}
	m.out = m.out[:0]
	clear(m.input)
	clear(m.stack[:cap(m.stack)])
	clear(m.frames[:cap(m.frames)])
	m.stack, m.frames = m.stack[:0], m.frames[:0]
	m.act = activation{}
	m.depth = 0
	m.now = time.Time{}
	t.pool.Put(m)
}
