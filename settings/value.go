package settings

import (
	"errors"
)

// value is a field of a settings struct together with the way to read it from text and to show it.
type value interface {
	// reset puts the default into the field.
	reset()
	// set parses text into the field. The note is not empty when another value than the one given was taken.
	// The error says only what is allowed ("must be ..."); the caller knows the name.
	set(text string) (note string, err error)
	// allowed describes the accepted values for people, for example "a whole number from 0 to 65535".
	allowed() string
	// show returns the current value for the dump: nil, bool, int, float64, string or []string.
	show() any
	// fallback returns the default in the same form.
	fallback() any
}

// switcher is a value that a flag sets by its mere presence.
type switcher interface{ turn(on bool) }

// appender is a value that collects all its flags instead of keeping the last.
type appender interface{ extend(text string) error }

// Optional is a value that may be absent, which is different from being zero.
type Optional[T any] struct {
	Value T
	Set   bool
}

// Get returns the value and whether there is one.
func (o Optional[T]) Get() (T, bool) { return o.Value, o.Set }

// Or returns the value, or the given one if there is none.
func (o Optional[T]) Or(other T) T {
	if o.Set {
		return o.Value
	}
	return other
}

// Some returns an optional value that is set.
func Some[T any](v T) Optional[T] { return Optional[T]{Value: v, Set: true} }

// single is a value that always has one.
type single[T any] struct {
	field    *T
	standard T
	parser   parser[T]
}

// required binds a field that has a default.
func required[T any](field *T, standard T, p parser[T]) value {
	return &single[T]{field: field, standard: standard, parser: p}
}

func (v *single[T]) reset()          { *v.field = v.standard }
func (v *single[T]) allowed() string { return v.parser.allowed }
func (v *single[T]) show() any       { return v.parser.show(*v.field) }
func (v *single[T]) fallback() any   { return v.parser.show(v.standard) }

func (v *single[T]) set(text string) (string, error) {
	parsed, note, err := v.parser.read(text)
	if err != nil {
		return "", err
	}
	*v.field = parsed
	return note, nil
}

// maybe is a value that can be unset. The words "None" and "" unset it when its nullable mark is on; an empty text
// unsets it too when the parser takes plain text, since an empty name names nothing.
type maybe[T any] struct {
	field    *Optional[T]
	parser   parser[T]
	nullable bool
}

// optional binds a field without default.
func optional[T any](field *Optional[T], p parser[T]) value {
	return &maybe[T]{field: field, parser: p}
}

// nullable binds a field without default that the words "None" and "" unset, so that a flag can undo a variable.
func nullable[T any](field *Optional[T], p parser[T]) value {
	return &maybe[T]{field: field, parser: p, nullable: true}
}

func (v *maybe[T]) reset()        { *v.field = Optional[T]{} }
func (v *maybe[T]) fallback() any { return nil }

func (v *maybe[T]) allowed() string {
	if v.nullable {
		return v.parser.allowed + `, or "None" for unset`
	}
	return v.parser.allowed
}

func (v *maybe[T]) show() any {
	if !v.field.Set {
		return nil
	}
	return v.parser.show(v.field.Value)
}

func (v *maybe[T]) set(text string) (string, error) {
	if (v.nullable && (text == "" || text == "None")) || (v.parser.emptyUnsets && text == "") {
		*v.field = Optional[T]{}
		return "", nil
	}
	parsed, note, err := v.parser.read(text)
	if err != nil {
		if v.nullable {
			err = errors.New(err.Error() + `, or "None" for unset`)
		}
		return "", err
	}
	*v.field = Some(parsed)
	return note, nil
}

// truth is a switch: --x, --no-x, and a truthy or falsy word in a variable.
type truth struct {
	field    *bool
	standard bool
}

// toggle binds a switch.
func toggle(field *bool, standard bool) value { return &truth{field: field, standard: standard} }

func (v *truth) reset()          { *v.field = v.standard }
func (v *truth) turn(on bool)    { *v.field = on }
func (v *truth) allowed() string { return truthAllowed }
func (v *truth) show() any       { return *v.field }
func (v *truth) fallback() any   { return v.standard }

func (v *truth) set(text string) (string, error) {
	on, err := readTruth(text)
	if err != nil {
		return "", err
	}
	*v.field = on
	return "", nil
}

// words is a list: a variable separates its members by white space, a flag adds one each time.
type words struct{ field *[]string }

// collection binds a list that is empty by default.
func collection(field *[]string) value { return &words{field: field} }

func (v *words) reset()          { *v.field = nil }
func (v *words) allowed() string { return "words separated by white space" }
func (v *words) show() any       { return append([]string{}, *v.field...) }
func (v *words) fallback() any   { return []string{} }

func (v *words) set(text string) (string, error) {
	*v.field = splitWords(text)
	return "", nil
}

func (v *words) extend(text string) error {
	*v.field = append(*v.field, text)
	return nil
}
