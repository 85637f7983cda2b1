package card

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ModelType is the set of things that a model can be asked for.
type ModelType uint16

// The flags of ModelType, in the order in which they are written.
const (
	Chat ModelType = 1 << iota
	Completions
	Embedding
	TensorBased
	Prefill
	Images
	Audios
	Videos
	Realtime
	Classify
	Pooling
)

var modelTypeNames = []string{
	"Chat", "Completions", "Embedding", "TensorBased", "Prefill", "Images", "Audios", "Videos", "Realtime", "Classify", "Pooling",
}

// Has says whether all of the flags are set.
func (t ModelType) Has(flags ModelType) bool { return t&flags == flags }

// Names lists the names of the flags that are set.
func (t ModelType) Names() []string {
	var names []string
	for i, name := range modelTypeNames {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String writes the flags as cards have them: "Chat | Completions". "" is the empty set.
func (t ModelType) String() string { return strings.Join(t.Names(), " | ") }

// MarshalText writes what String does.
func (t ModelType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads flags joined with "|". Flags of newer versions are ignored.
func (t *ModelType) UnmarshalText(text []byte) error {
	*t = 0
	for name := range strings.SplitSeq(string(text), "|") {
		if i := slices.Index(modelTypeNames, strings.TrimSpace(name)); i >= 0 {
			*t |= 1 << i
		}
	}
	return nil
}

// ModelInput is the form in which a worker wants its requests.
type ModelInput string

// The forms of input.
const (
	// TextInput workers get the OpenAI request as it is.
	TextInput ModelInput = "Text"
	// TokensInput workers get a rendered and tokenized prompt.
	TokensInput ModelInput = "Tokens"
	// TensorInput workers get KServe messages.
	TensorInput ModelInput = "Tensor"
)

// UnmarshalText refuses unknown forms: a request in the wrong form would fail at the worker.
func (i *ModelInput) UnmarshalText(text []byte) error {
	switch input := ModelInput(text); input {
	case TextInput, TokensInput, TensorInput:
		*i = input
		return nil
	}
	return fmt.Errorf("model_input is %q; want Text, Tokens or Tensor", text)
}

// WorkerType is the part that a worker plays in serving a model; "" is not given.
type WorkerType string

// The parts.
const (
	PrefillWorker    WorkerType = "prefill"
	DecodeWorker     WorkerType = "decode"
	EncodeWorker     WorkerType = "encode"
	AggregatedWorker WorkerType = "aggregated"
)

// WorkerPool is one way to meet a worker's needs: all of these parts have to be there.
type WorkerPool []WorkerType

var workerTypes = []WorkerType{"", PrefillWorker, DecodeWorker, EncodeWorker, AggregatedWorker}

// ordinal is the type's code in the checksum.
func (t WorkerType) ordinal() byte { return byte(max(slices.Index(workerTypes, t), 0)) }

// MarshalJSON writes null for a type that is not given.
func (t WorkerType) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}

// UnmarshalJSON refuses unknown types: a worker must not be taken for what it is not.
func (t *WorkerType) UnmarshalJSON(data []byte) error {
	var name *string
	if err := json.Unmarshal(data, &name); err != nil {
		return fmt.Errorf("worker type %s is not a string", data)
	}
	*t = ""
	if name == nil {
		return nil
	}
	if *name == "" || !slices.Contains(workerTypes, WorkerType(*name)) {
		return fmt.Errorf("worker type is %q; want prefill, decode, encode or aggregated", *name)
	}
	*t = WorkerType(*name)
	return nil
}

// PromptContext is an extra that the prompt formatter adds.
type PromptContext string

// The known extras.
const (
	OpenAIChat     PromptContext = "oai_chat"
	Llama3DateTime PromptContext = "llama3_date_time"
	openAIChatName               = "OaiChat"
	llama3DateName               = "Llama3DateTime"
)

// UnmarshalText refuses unknown extras.
func (p *PromptContext) UnmarshalText(text []byte) error {
	switch extra := PromptContext(text); extra {
	case OpenAIChat, Llama3DateTime:
		*p = extra
		return nil
	}
	return fmt.Errorf("prompt_context has %q; want oai_chat or llama3_date_time", text)
}
