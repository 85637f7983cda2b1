package chattemplate

// Limits bound what one render may cost. A zero field means its default.
type Limits struct {
	// Steps bounds the time: the number of elementary operations (operators, look-ups, calls, loop turns; long strings count
	// one more per 64 bytes looked at). Default 100 million, about one to three seconds.
	Steps int64
	// OutputBytes bounds the length of the rendered text. Default 64 MiB.
	OutputBytes int64
	// AllocatedBytes bounds the memory: the sum of the sizes of all strings, lists and dicts that the template makes, whether or
	// not they are still in use. Default 1 GiB.
	AllocatedBytes int64
	// Depth bounds how deep macros and recursive loops may call each other. Default 200.
	Depth int
}

// Bounds that are fixed, because Python has similar ones or because no template comes near them.
const (
	// maxSourceBytes bounds a template's source.
	maxSourceBytes = 4 << 20
	// maxNesting bounds how deep expressions and blocks may be nested in a template's source.
	maxNesting = 150
	// maxValueDepth bounds how deep values may be nested when they are read, printed, compared or hashed.
	maxValueDepth = 1000
	// maxRange is the sandbox's bound on the length of range().
	maxRange = 100000
	// maxIntBits bounds integers; Python refuses to print those above 4300 digits (about 14 300 bits).
	maxIntBits = 1 << 16
	// maxIntDigits is Python's bound on the digits of an integer that is printed or read.
	maxIntDigits = 4300
)

func (l Limits) withDefaults() Limits {
	if l.Steps <= 0 {
		l.Steps = 100_000_000
	}
	if l.OutputBytes <= 0 {
		l.OutputBytes = 64 << 20
	}
	if l.AllocatedBytes <= 0 {
		l.AllocatedBytes = 1 << 30
	}
	if l.Depth <= 0 {
		l.Depth = 200
	}
	return l
}
