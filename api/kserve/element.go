package kserve

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"signalbox/internal/jsontape"
)

// element is a type of tensor elements: its names in the protocol and at the worker, and where the protocol keeps its values.
type element struct {
	datatype string // in the protocol
	worker   string // at the worker
	kind     uint64 // in model configurations
	member   protowire.Number
	size     int // bytes in raw contents; 0 for byte strings, which carry their length
	signed   bool
}

var elements = []element{
	{"BOOL", "Bool", 1, boolContents, 1, false},
	{"UINT8", "Uint8", 2, uintContents, 1, false},
	{"UINT16", "Uint16", 3, uintContents, 2, false},
	{"UINT32", "Uint32", 4, uintContents, 4, false},
	{"UINT64", "Uint64", 5, uint64Contents, 8, false},
	{"INT8", "Int8", 6, intContents, 1, true},
	{"INT16", "Int16", 7, intContents, 2, true},
	{"INT32", "Int32", 8, intContents, 4, true},
	{"INT64", "Int64", 9, int64Contents, 8, true},
	{"FP32", "Float32", 11, fp32Contents, 4, false},
	{"FP64", "Float64", 12, fp64Contents, 8, false},
	{"BYTES", "Bytes", 13, bytesContents, 0, false},
}

func elementOf(datatype string) (element, bool) {
	for _, e := range elements {
		if e.datatype == datatype {
			return e, true
		}
	}
	return element{}, false
}

// elementNamed finds a type by the worker's name; the zero element for an unknown one.
func elementNamed(worker string) element {
	for _, e := range elements {
		if e.worker == worker {
			return e
		}
	}
	return element{}
}

// extend widens the low bits of a raw element to 64 bits.
func (e element) extend(v uint64) uint64 {
	if !e.signed {
		return v
	}
	shift := 64 - 8*e.size
	return uint64(int64(v<<shift) >> shift)
}

// maxElements bounds a tensor; beyond it the message itself would be over its limit.
const maxElements = 1 << 28

// count is the number of elements that a shape has; an error names the tensor.
func count(name string, shape []int64) (int, error) {
	total := int64(1)
	for _, d := range shape {
		switch {
		case d < 0:
			return 0, mistakef("Shape of '%s' contains negative dimension: %d", name, d)
		case d > maxElements || total*d > maxElements:
			return 0, mistakef("Shape of '%s' has more than %d elements", name, maxElements)
		}
		total *= d
	}
	return int(total), nil
}

// splitRaw cuts raw contents into elements: little-endian numbers, or byte strings behind their 4-byte length.
func (e element) splitRaw(name string, raw []byte, want int) (*contents, error) {
	wrong := func(got int) error {
		return mistakef("Raw input element count for '%s' does not match expected size, expected %d elements, got %d elements", name, want, got)
	}
	c := &contents{}
	if e.size == 0 {
		for rest := raw; len(rest) > 0; {
			if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
				return nil, mistakef("Invalid length-prefixed BYTES input for '%s', it ends inside an element", name)
			}
			length := int(binary.LittleEndian.Uint32(rest))
			c.bytes = append(c.bytes, rest[4:4+length])
			rest = rest[4+length:]
		}
		if len(c.bytes) != want {
			return nil, wrong(len(c.bytes))
		}
		return c, nil
	}
	if len(raw) != want*e.size {
		return nil, wrong(len(raw) / e.size)
	}
	values := make([]uint64, want)
	for i := range values {
		values[i] = e.readRaw(raw[i*e.size:])
	}
	c.numbers = map[protowire.Number][]uint64{e.member: values}
	return c, nil
}

func (e element) readRaw(raw []byte) uint64 {
	var v uint64
	for i := range e.size {
		v |= uint64(raw[i]) << (8 * i)
	}
	if e.member == boolContents && v != 0 {
		return 1
	}
	return e.extend(v)
}

// joinRaw is the reverse of splitRaw.
func (e element) joinRaw(c *contents) []byte {
	var raw []byte
	for _, element := range c.bytes {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(len(element)))
		raw = append(raw, element...)
	}
	for _, v := range c.numbers[e.member] {
		for i := range e.size {
			raw = append(raw, byte(v>>(8*i)))
		}
	}
	return raw
}

// appendJSON appends the elements as the worker reads them: a byte string is a list of numbers.
func (e element) appendJSON(b []byte, c *contents) ([]byte, error) {
	b = append(b, '[')
	for i, element := range c.bytes {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		for j, v := range element {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(v), 10)
		}
		b = append(b, ']')
	}
	for i, v := range c.numbers[e.member] {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case e.member == boolContents:
			b = strconv.AppendBool(b, v != 0)
		case e.member == fp32Contents || e.member == fp64Contents:
			value, bits := math.Float64frombits(v), 64
			if e.member == fp32Contents {
				value, bits = float64(math.Float32frombits(uint32(v))), 32
			}
			if math.IsNaN(value) || math.IsInf(value, 0) {
				return nil, fmt.Errorf("element %d is %v, which a request to a worker cannot carry", i, value)
			}
			b = strconv.AppendFloat(b, value, 'g', -1, bits)
		case e.signed:
			b = strconv.AppendInt(b, e.narrowSigned(v), 10)
		default:
			b = strconv.AppendUint(b, e.narrow(v), 10)
		}
	}
	return append(b, ']'), nil
}

// narrow keeps the bits that the type has: the protocol carries small integers in wider ones.
func (e element) narrow(v uint64) uint64 { return v << (64 - 8*e.size) >> (64 - 8*e.size) }

func (e element) narrowSigned(v uint64) int64 { return int64(e.extend(e.narrow(v))) }

// readJSON reads a worker's elements.
func (e element) readJSON(list jsontape.Node) (*contents, error) {
	c := &contents{}
	if list.Kind() != jsontape.Array {
		return nil, fmt.Errorf("values are no list")
	}
	values := make([]uint64, 0, list.Len())
	for i, node := range list.Elements {
		bad := fmt.Errorf("value %d is not of type %s", i, e.worker)
		switch {
		case e.size == 0:
			text, ok := readByteString(node)
			if !ok {
				return nil, bad
			}
			c.bytes = append(c.bytes, text)
		case e.member == boolContents:
			v, ok := node.Bool()
			if !ok {
				return nil, bad
			}
			values = append(values, bit(v))
		case e.member == fp32Contents || e.member == fp64Contents:
			v, ok := node.Float()
			if !ok {
				return nil, bad
			}
			if e.member == fp32Contents {
				values = append(values, uint64(math.Float32bits(float32(v))))
			} else {
				values = append(values, math.Float64bits(v))
			}
		case e.signed:
			v, err := strconv.ParseInt(string(node.Raw()), 10, 8*e.size)
			if err != nil {
				return nil, bad
			}
			values = append(values, uint64(v))
		default:
			v, err := strconv.ParseUint(string(node.Raw()), 10, 8*e.size)
			if err != nil {
				return nil, bad
			}
			values = append(values, v)
		}
	}
	if e.size > 0 {
		c.numbers = map[protowire.Number][]uint64{e.member: values}
	}
	return c, nil
}

func bit(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}

func readByteString(list jsontape.Node) ([]byte, bool) {
	if list.Kind() != jsontape.Array {
		return nil, false
	}
	text := make([]byte, 0, list.Len())
	for _, node := range list.Elements {
		v, ok := node.Uint()
		if !ok || v > math.MaxUint8 {
			return nil, false
		}
		text = append(text, byte(v))
	}
	return text, true
}
