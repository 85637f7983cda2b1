package kserve

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"signalbox/model/card"
)

// modelVersion is the one version of every model.
const modelVersion = "1"

// platform names what runs the models that bring no configuration of their own.
const platform = "dynamo"

// port is one input or output of a model.
type port struct {
	name     string
	datatype string // as in metadata: "INT32", or "TYPE_INT32" from a Triton configuration
	kind     uint64 // the DataType of a model configuration
	dims     []int64
	optional bool
}

// description is what metadata and configuration tell about a model.
type description struct {
	name, platform  string
	inputs, outputs []port
	// triton is the serialised configuration that the model brought; nil for none. It is returned as it is.
	triton []byte
}

// dataTypes are the values of Triton's DataType in their order.
var dataTypes = []string{"TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16",
	"TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16"}

func dataTypeName(kind uint64) string {
	if kind >= uint64(len(dataTypes)) {
		return dataTypes[0]
	}
	return dataTypes[kind]
}

const (
	typeBool   = 1
	typeString = 13
)

// describe tells about the model of a card.
func describe(c *card.Card) (*description, error) {
	if !c.ModelType.Has(card.TensorBased) {
		return &description{name: c.DisplayName, platform: platform,
			inputs:  []port{{"text_input", "BYTES", typeString, []int64{1}, false}, {"streaming", "BOOL", typeBool, []int64{1}, true}},
			outputs: []port{{"text_output", "BYTES", typeString, []int64{-1}, false}, {"finish_reason", "BYTES", typeString, []int64{-1}, false}}}, nil
	}
	if c.TensorModel == nil {
		return nil, errors.New("no model config is provided")
	}
	var config struct {
		Name            string
		Inputs, Outputs []struct {
			Name     string
			DataType string `json:"data_type"`
			Shape    []int64
		}
		Triton []uint16 `json:"triton_model_config"`
	}
	if err := json.Unmarshal(c.TensorModel, &config); err != nil {
		return nil, fmt.Errorf("its tensor_model_config cannot be read: %w", err)
	}
	if config.Triton != nil {
		packed := make([]byte, len(config.Triton))
		for i, b := range config.Triton {
			packed[i] = byte(b)
		}
		d := &description{triton: packed}
		return d, decode(packed, (*tritonConfig)(d))
	}
	d := &description{name: config.Name, platform: platform}
	for _, input := range config.Inputs {
		t := elementNamed(input.DataType)
		d.inputs = append(d.inputs, port{name: input.Name, datatype: t.datatype, kind: t.kind, dims: input.Shape})
	}
	for _, output := range config.Outputs {
		t := elementNamed(output.DataType)
		d.outputs = append(d.outputs, port{name: output.Name, datatype: t.datatype, kind: t.kind, dims: output.Shape})
	}
	return d, nil
}

// tritonConfig reads what metadata shows of a Triton ModelConfig.
type tritonConfig description

func (c *tritonConfig) field(number protowire.Number, _ protowire.Type, value field) error {
	switch number {
	case 1:
		c.name = string(value.bytes)
	case 2:
		c.platform = string(value.bytes)
	case 5:
		p := tritonPort{dimsAt: 4}
		if err := decode(value.bytes, &p); err != nil {
			return err
		}
		c.inputs = append(c.inputs, p.finished())
	case 6:
		p := tritonPort{dimsAt: 3}
		if err := decode(value.bytes, &p); err != nil {
			return err
		}
		c.outputs = append(c.outputs, p.finished())
	}
	return nil
}

// tritonPort reads ModelInput and ModelOutput, whose dimensions have different numbers.
type tritonPort struct {
	port
	dimsAt protowire.Number
}

func (p *tritonPort) field(number protowire.Number, kind protowire.Type, value field) error {
	switch number {
	case 1:
		p.name = string(value.bytes)
	case 2:
		p.kind = value.number
	case p.dimsAt:
		dims, err := numbers(nil, kind, value, protowire.VarintType)
		for _, d := range dims {
			p.dims = append(p.dims, int64(d))
		}
		return err
	}
	return nil
}

func (p *tritonPort) finished() port {
	p.datatype = dataTypeName(p.kind)
	return p.port
}

// metadataResponse is ModelMetadataResponse.
type metadataResponse struct{ *description }

func (r metadataResponse) appendTo(b []byte) []byte {
	b = appendText(b, 1, r.name)
	b = appendText(b, 2, modelVersion)
	b = appendText(b, 3, r.platform)
	for number, ports := range [][]port{r.inputs, r.outputs} {
		for _, p := range ports {
			inner := appendText(nil, 1, p.name)
			inner = appendText(inner, 2, p.datatype)
			b = appendBytes(b, protowire.Number(4+number), appendShape(inner, 3, p.dims))
		}
	}
	return b
}

// configResponse is ModelConfigResponse.
type configResponse struct{ *description }

func (r configResponse) appendTo(b []byte) []byte {
	if r.triton != nil {
		return appendBytes(b, 1, r.triton)
	}
	config := appendText(nil, 1, r.name)
	config = appendText(config, 2, r.platform)
	for _, p := range r.inputs {
		inner := appendNumber(appendText(nil, 1, p.name), 2, p.kind)
		inner = appendShape(inner, 4, p.dims)
		if p.optional {
			inner = appendNumber(inner, 8, 1)
		}
		config = appendBytes(config, 5, inner)
	}
	for _, p := range r.outputs {
		inner := appendNumber(appendText(nil, 1, p.name), 2, p.kind)
		config = appendBytes(config, 6, appendShape(inner, 3, p.dims))
	}
	config = appendText(config, 17, platform)
	return appendBytes(b, 1, config)
}
