package card

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const checksumPrefix = "blake3:"

// File is one of the model's files: where it is and what is in it.
type File struct {
	// Path is a local path or an http, https, hf or file URL.
	Path string `json:"path"`
	// Checksum is "blake3:" and 64 hex digits.
	Checksum string `json:"checksum"`
	// Size is the number of bytes, where the worker tells it.
	Size *uint64 `json:"size,omitempty"`
}

// Digest returns the checksum's hex digits.
func (f File) Digest() string { return strings.TrimPrefix(f.Checksum, checksumPrefix) }

// BaseName returns the file's name without folders, whether Path is a path or a URL.
func (f File) BaseName() string {
	if location, err := url.Parse(f.Path); err == nil && location.Scheme != "" {
		return path.Base(location.Path)
	}
	return filepath.Base(f.Path)
}

// UnmarshalJSON also checks the checksum, for it becomes a file name.
func (f *File) UnmarshalJSON(data []byte) error {
	type plain File
	var read plain
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	if read.Path == "" {
		return errors.New("file without a path")
	}
	digest, prefixed := strings.CutPrefix(read.Checksum, checksumPrefix)
	if raw, err := hex.DecodeString(digest); !prefixed || err != nil || len(raw) != 32 {
		return fmt.Errorf("file %q has the checksum %q; want blake3: and 64 hex digits", read.Path, read.Checksum)
	}
	read.Checksum = strings.ToLower(read.Checksum)
	*f = File(read)
	return nil
}

// ArtifactKind tells how an artifact's file is to be read.
type ArtifactKind string

// The kinds, by the member of the card that may hold them.
const (
	// ModelInfo.
	ConfigJSON ArtifactKind = "hf_config_json"

	// Tokenizer.
	TokenizerJSON ArtifactKind = "hf_tokenizer_json"
	TikTokenModel ArtifactKind = "tik_token_model"

	// PromptFormatter and ChatTemplateFile.
	TokenizerConfigJSON ArtifactKind = "hf_tokenizer_config_json"
	ChatTemplateJinja   ArtifactKind = "hf_chat_template"
	ChatTemplateJSON    ArtifactKind = "hf_chat_template_json"

	// GenerationConfig.
	GenerationConfigJSON ArtifactKind = "hf_generation_config_json"
)

var artifactKinds = []ArtifactKind{
	ConfigJSON, TokenizerJSON, TikTokenModel, TokenizerConfigJSON, ChatTemplateJinja, ChatTemplateJSON, GenerationConfigJSON,
}

// Artifact is a file together with its kind.
type Artifact struct {
	Kind ArtifactKind
	File File
	// Custom marks a chat template that the operator chose instead of the model's own.
	Custom bool
}

// wireTemplate is the form of chat templates: the file one level deeper, beside the flag.
type wireTemplate struct {
	Custom bool  `json:"is_custom"`
	File   *File `json:"file"`
}

// MarshalJSON writes an object whose only member is the kind.
func (a Artifact) MarshalJSON() ([]byte, error) {
	if a.Kind == ChatTemplateJinja || a.Kind == ChatTemplateJSON {
		return json.Marshal(map[ArtifactKind]wireTemplate{a.Kind: {Custom: a.Custom, File: &a.File}})
	}
	return json.Marshal(map[ArtifactKind]File{a.Kind: a.File})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Artifact) UnmarshalJSON(data []byte) error {
	var members map[ArtifactKind]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	if len(members) != 1 {
		return fmt.Errorf("artifact %.100s: want an object with one member, one of %v", data, artifactKinds)
	}
	for kind, body := range members {
		if kind == "hf_chat_template_jinja" {
			kind = ChatTemplateJinja
		}
		if !slices.Contains(artifactKinds, kind) {
			return fmt.Errorf("artifact of kind %q; want one of %v", kind, artifactKinds)
		}
		*a = Artifact{Kind: kind}
		if kind == ChatTemplateJinja || kind == ChatTemplateJSON {
			var template wireTemplate
			if err := json.Unmarshal(body, &template); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			if template.File != nil {
				a.File, a.Custom = *template.File, template.Custom
				return nil
			}
		}
		if err := json.Unmarshal(body, &a.File); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}
