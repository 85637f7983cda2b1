package card

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// Options are the parts of a card that a model directory does not tell.
type Options struct {
	// BlockSize is the number of tokens in a KV-cache block. Required.
	BlockSize uint32
	// MigrationLimit is how often a broken stream may move on to another worker.
	MigrationLimit uint32
	// ModelType is what the model can be asked for; 0 means Chat and Completions.
	ModelType ModelType
	// WorkerType is the worker's part; "" means aggregated.
	WorkerType WorkerType
	// Needs are the peers that the worker can't do without.
	Needs []WorkerPool
	// Runtime is what the engine tells; nil means DefaultRuntimeConfig.
	Runtime *RuntimeConfig
	// ChatTemplate is a template file that replaces the model's own; "" is none.
	ChatTemplate string
}

// FromDirectory makes the card of a model whose files lie in a local directory, with a name for clients ("" means the
// directory as given).
func FromDirectory(directory, name string, options Options) (*Card, error) {
	if options.BlockSize == 0 {
		return nil, errors.New("model card: the KV-cache block size must be at least 1")
	}
	absolute, err := filepath.Abs(directory)
	if err != nil {
		return nil, fmt.Errorf("model directory %q: %w", directory, err)
	}
	if name == "" {
		name = directory
	}
	card := &Card{
		DisplayName: name, Slug: Slug(name),
		BlockSize: options.BlockSize, MigrationLimit: options.MigrationLimit,
		ModelType: options.ModelType, ModelInput: TokensInput, WorkerType: options.WorkerType, Needs: options.Needs,
		Runtime: DefaultRuntimeConfig(),
	}
	if name != directory && name != absolute {
		card.SourcePath = absolute // a model that is served by its path needs no other, and real workers write none
	}
	if card.ModelType == 0 && card.WorkerType != PrefillWorker {
		card.ModelType = Chat | Completions
	}
	if card.WorkerType == "" {
		card.WorkerType = AggregatedWorker
	}
	if options.Runtime != nil {
		card.Runtime = *options.Runtime
	}
	if err := card.addFiles(absolute, options.ChatTemplate); err != nil {
		return nil, fmt.Errorf("model directory %q: %w", directory, err)
	}
	if card.ArchitecturalContextLength, err = architecturalContextLength(absolute); err != nil {
		return nil, fmt.Errorf("model directory %q: %w", directory, err)
	}
	card.ContextLength = card.EffectiveContextLength()
	return card, nil
}

func (c *Card) addFiles(directory, customTemplate string) error {
	var err error
	add := func(target **Artifact, kind ArtifactKind, custom bool, names ...string) {
		for _, name := range names {
			if err != nil || *target != nil {
				return
			}
			if !filepath.IsAbs(name) {
				name = filepath.Join(directory, name)
			}
			var file File
			if file, err = describe(name); errors.Is(err, fs.ErrNotExist) {
				err = nil
				continue
			}
			if err == nil {
				*target = &Artifact{Kind: kind, File: file, Custom: custom}
			}
		}
	}
	add(&c.ModelInfo, ConfigJSON, false, "config.json")
	add(&c.Tokenizer, TokenizerJSON, false, "tokenizer.json")
	add(&c.Tokenizer, TikTokenModel, false, "tiktoken.model")
	if found, _ := filepath.Glob(filepath.Join(directory, "*.tiktoken")); len(found) > 0 {
		add(&c.Tokenizer, TikTokenModel, false, found[0])
	}
	add(&c.PromptFormatter, TokenizerConfigJSON, false, "tokenizer_config.json")
	if customTemplate != "" {
		path, pathErr := filepath.Abs(customTemplate)
		if pathErr != nil {
			return pathErr
		}
		add(&c.ChatTemplateFile, ChatTemplateJinja, true, path)
		if err == nil && c.ChatTemplateFile == nil {
			return fmt.Errorf("chat template %q does not exist", customTemplate)
		}
	}
	add(&c.ChatTemplateFile, ChatTemplateJinja, false, "chat_template.jinja")
	add(&c.ChatTemplateFile, ChatTemplateJSON, false, "chat_template.json")
	add(&c.GenerationConfig, GenerationConfigJSON, false, "generation_config.json")
	if err != nil {
		return err
	}
	if c.Tokenizer == nil {
		return errors.New("no tokenizer: want tokenizer.json, tiktoken.model or a .tiktoken file")
	}
	return nil
}

// describe makes the card entry of a local file.
func describe(name string) (File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return File{}, err
	}
	digest, err := digestOf(name)
	if err != nil {
		return File{}, err
	}
	size := uint64(info.Size())
	return File{Path: name, Checksum: checksumPrefix + digest, Size: &size}, nil
}

// architecturalContextLength reads what the model was trained for: config.json, else tokenizer_config.json, else nil.
func architecturalContextLength(directory string) (*uint32, error) {
	var config struct {
		MaxPositions *float64 `json:"max_position_embeddings"`
		Text         struct {
			MaxPositions *float64 `json:"max_position_embeddings"`
		} `json:"text_config"`
	}
	if err := readJSON(filepath.Join(directory, "config.json"), &config); err != nil {
		return nil, err
	}
	var tokenizer struct {
		MaxLength *float64 `json:"model_max_length"`
	}
	if err := readJSON(filepath.Join(directory, "tokenizer_config.json"), &tokenizer); err != nil {
		return nil, err
	}
	for _, tokens := range []*float64{config.MaxPositions, config.Text.MaxPositions, tokenizer.MaxLength} {
		// Tokenizers without a limit say something like 1e30.
		if tokens != nil && *tokens >= 1 && *tokens <= math.MaxUint32 {
			length := uint32(*tokens)
			return &length, nil
		}
	}
	return nil, nil
}

// readJSON fills target from a file; one that does not exist leaves it as it is.
func readJSON(name string, target any) error {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, target); err != nil {
		return fmt.Errorf("%s: %w", strings.TrimPrefix(name, string(filepath.Separator)), err)
	}
	return nil
}
