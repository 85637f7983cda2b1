// Package card is the model deployment card: what a worker tells the fleet about the model that it serves, and where the
// model's tokenizer, template and configuration are to be found.
//
// It reads cards as leniently as their format allows, writes them for our own workers, computes the checksum by which
// workers are grouped, and fetches the files that a card names. It must not know how a card is stored, nor what a tokenizer
// or a template does.
package card

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Card is a model deployment card. Pointers and nil slices stand for members that are absent or null.
type Card struct {
	// DisplayName is the model name that clients use.
	DisplayName string `json:"display_name"`
	// Slug is DisplayName in a form fit for file names and subjects; see Slug.
	Slug string `json:"slug"`
	// SourcePath is the Hugging Face repository or the local path that the model came from; "" means DisplayName.
	SourcePath string `json:"source_path,omitempty"`

	// ModelInfo is config.json.
	ModelInfo *Artifact `json:"model_info,omitempty"`
	// Tokenizer is nil only for models whose input is text or tensors.
	Tokenizer *Artifact `json:"tokenizer,omitempty"`
	// PromptFormatter is the usual place of the chat template, tokenizer_config.json as a rule.
	PromptFormatter *Artifact `json:"prompt_formatter,omitempty"`
	// ChatTemplateFile is a chat template in a file of its own; it wins over the one in PromptFormatter.
	ChatTemplateFile *Artifact `json:"chat_template_file,omitempty"`
	// GenerationConfig has default sampling parameters and end-of-sequence ids.
	GenerationConfig *Artifact `json:"gen_config,omitempty"`
	// ExtraFiles are further files of the model, listed when the worker serves its files itself.
	ExtraFiles []File `json:"extra_files,omitempty"`
	// PromptContext lists extras for the template; nil and empty differ in the checksum.
	PromptContext []PromptContext `json:"prompt_context,omitzero"`

	// ArchitecturalContextLength is what the model was trained for, in tokens.
	ArchitecturalContextLength *uint32 `json:"architectural_max_context_length,omitempty"`
	// ContextLength is the effective length as older workers give it, in tokens. See EffectiveContextLength.
	ContextLength uint32 `json:"context_length"`
	// BlockSize is the number of tokens in a KV-cache block.
	BlockSize uint32 `json:"kv_cache_block_size"`
	// MigrationLimit is how often a broken stream may move on to another worker.
	MigrationLimit uint32 `json:"migration_limit"`

	ModelType  ModelType    `json:"model_type"`
	ModelInput ModelInput   `json:"model_input"`
	WorkerType WorkerType   `json:"worker_type"`
	Needs      []WorkerPool `json:"needs"`

	// LoRA is set on the card of an adapter.
	LoRA *LoRA `json:"lora,omitempty"`
	// Aliases are further names of the model.
	Aliases []string `json:"aliases,omitempty"`
	// UserData is not interpreted.
	UserData json.RawMessage `json:"user_data,omitempty"`

	Runtime RuntimeConfig `json:"runtime_config"`

	// TensorModel describes the inputs and outputs of a KServe tensor model.
	TensorModel json.RawMessage `json:"tensor_model_config,omitempty"`
	// MediaDecoder and MediaFetcher say how the frontend is to load images and videos.
	MediaDecoder json.RawMessage `json:"media_decoder"`
	MediaFetcher json.RawMessage `json:"media_fetcher"`
	// RouterConfig replaces the frontend's router settings for this worker's set. Kept as written, for its bytes are hashed.
	RouterConfig json.RawMessage `json:"router_config,omitempty"`
	// IndexerIdentity tells which KV-cache indexes are compatible.
	IndexerIdentity *IndexerIdentity `json:"indexer_identity,omitempty"`
}

// LoRA describes an adapter.
type LoRA struct {
	Name string `json:"name"`
	// MaxGPUCount is how many adapters the worker holds on its device at a time.
	MaxGPUCount *uint32 `json:"max_gpu_lora_count,omitempty"`
}

// IndexerIdentity names what the blocks in a KV-cache index depend on. A nil map is an absent one.
type IndexerIdentity struct {
	Semantics    map[string]string `json:"semantics,omitzero"`
	RoutingScope map[string]string `json:"routing_scope,omitzero"`
}

// required are the members without which no frontend accepts a card.
var required = []string{"display_name", "slug", "kv_cache_block_size", "migration_limit", "model_type", "model_input"}

// Parse reads a card. Members that it does not know are ignored; one that is required and missing, or of the wrong type, is
// an error that names it.
func Parse(data []byte) (*Card, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, fmt.Errorf("model card is not a JSON object: %w", err)
	}
	for _, name := range required {
		if raw, present := members[name]; !present || isNull(raw) {
			return nil, fmt.Errorf("model card: member %q is missing", name)
		}
	}
	card := Card{Runtime: DefaultRuntimeConfig()}
	if err := json.Unmarshal(data, &card); err != nil {
		return nil, fmt.Errorf("model card: %w", err)
	}
	for _, raw := range []*json.RawMessage{
		&card.UserData, &card.TensorModel, &card.MediaDecoder, &card.MediaFetcher, &card.RouterConfig,
	} {
		if isNull(*raw) {
			*raw = nil
		}
	}
	if err := card.check(); err != nil {
		return nil, fmt.Errorf("model card %q: %w", card.DisplayName, err)
	}
	return &card, nil
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

// Marshal writes the card as compact JSON.
func (c *Card) Marshal() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("model card %q: %w", c.DisplayName, err)
	}
	written := *c
	if written.Needs == nil {
		written.Needs = []WorkerPool{}
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(written); err != nil {
		return nil, fmt.Errorf("model card %q: %w", c.DisplayName, err)
	}
	return bytes.TrimSuffix(body.Bytes(), []byte("\n")), nil
}

func (c *Card) check() error {
	if c.DisplayName == "" {
		return fmt.Errorf(`"display_name" is empty`)
	}
	if bad := strings.IndexFunc(c.Slug, func(r rune) bool { return !inSlug(r) }); bad >= 0 {
		return fmt.Errorf(`"slug" is %q; only a-z, 0-9, '-' and '_' are allowed`, c.Slug)
	}
	if c.LoRA != nil && c.LoRA.Name == "" {
		return fmt.Errorf(`"lora" has no name`)
	}
	return nil
}

// Slug makes a name fit for file names: lower case, every character but letters, digits, '-' and '_' replaced by '_', no '_' in front.
func Slug(name string) string {
	slug := strings.Map(func(r rune) rune {
		if inSlug(r) {
			return r
		}
		return '_'
	}, strings.ToLower(name))
	return strings.TrimLeft(slug, "_")
}

func inSlug(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

// EffectiveContextLength is the number of tokens that prompt and answer may have together; 0 means unknown or unlimited.
func (c *Card) EffectiveContextLength() uint32 {
	switch {
	case c.Runtime.ContextLength != nil:
		return *c.Runtime.ContextLength
	case c.ArchitecturalContextLength != nil:
		return *c.ArchitecturalContextLength
	}
	return c.ContextLength
}

// Role is the part that the worker plays. Cards without a worker type tell it by their model type.
func (c *Card) Role() WorkerType {
	switch {
	case c.WorkerType != "":
		return c.WorkerType
	case c.ModelType.Has(Prefill):
		return PrefillWorker
	}
	return AggregatedWorker
}

// Source is where the model came from: SourcePath, or DisplayName when there is none.
func (c *Card) Source() string {
	if c.SourcePath != "" {
		return c.SourcePath
	}
	return c.DisplayName
}

// Names lists all names under which the model can be asked for, the display name first.
func (c *Card) Names() []string { return append([]string{c.DisplayName}, c.Aliases...) }
