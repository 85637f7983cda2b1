package openai

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"signalbox/api/problem"
	"signalbox/internal/jsontape"
)

// Classify answers POST /v1/classify.
func (a *API) Classify(w http.ResponseWriter, r *http.Request) {
	f, ok := a.acceptForward(w, r, "classify", Classify, judgePooling)
	if !ok {
		return
	}
	defer f.items.Close()
	f.answerJSON(w, r)
}

// Rerank answers POST /v1/rerank: the query and the documents go to a model that scores texts.
func (a *API) Rerank(w http.ResponseWriter, r *http.Request) {
	f, ok := a.acceptForward(w, r, "classify", Classify, func(f *forwarded) *problem.Problem {
		f.name = f.fields.RequiredString("model")
		for _, name := range []string{"query", "documents"} {
			if !f.fields.Object().Get(name).Present() {
				f.fields.Missing(name)
			}
		}
		f.fields.Int64("top_n")
		return nil
	})
	if !ok {
		return
	}
	defer f.items.Close()
	f.answerJSON(w, r)
}

func judgePooling(f *forwarded) *problem.Problem {
	f.name = f.fields.RequiredString("model")
	if f.fields.Problem == nil {
		checkEmbeddingInput(f.fields)
	}
	for _, name := range []string{"user", "request_id"} {
		f.fields.String(name)
	}
	for _, name := range []string{"priority", "truncate_prompt_tokens"} {
		f.fields.Int64(name)
	}
	for _, name := range []string{"use_activation", "add_special_tokens"} {
		f.fields.Bool(name)
	}
	if salt := f.fields.String("cache_salt"); salt != nil && *salt == "" {
		return problem.Invalid("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
	}
	return nil
}

// Words of /v1/pooling, the default first.
var (
	poolingEncodings  = []string{"float", "base64", "bytes", "bytes_only"}
	poolingTypes      = []string{"float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"}
	poolingEndianness = []string{"native", "big", "little"}
	poolingWidths     = map[string]int{"float32": 4, "float16": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}
)

// Pooling answers POST /v1/pooling: vectors as JSON, or as bytes with their description in a header.
func (a *API) Pooling(w http.ResponseWriter, r *http.Request) {
	var encoding, kind, endianness string
	f, ok := a.acceptForward(w, r, "pooling", Pooling, func(f *forwarded) *problem.Problem {
		p := judgePooling(f)
		word := func(name string, words []string) string {
			given := f.fields.String(name)
			if given == nil {
				return words[0]
			}
			if !slices.Contains(words, *given) {
				f.fields.Fail(name, "unknown variant `%s`, expected one of `%s`", *given, strings.Join(words, "`, `"))
			}
			return *given
		}
		encoding, kind, endianness = word("encoding_format", poolingEncodings), word("embed_dtype", poolingTypes), word("endianness", poolingEndianness)
		if f.fields.Uint32("dimensions") != nil && p == nil {
			p = problem.Invalid("dimensions", "dimensions is currently not supported")
		}
		return p
	})
	if !ok {
		return
	}
	defer f.items.Close()
	if !strings.HasPrefix(encoding, "bytes") {
		f.answerJSON(w, r)
		return
	}
	answer, err := f.whole(r.Context())
	var packed []byte
	var description []byte
	if err == nil {
		packed, description, err = packVectors(answer, kind, endianness)
	}
	if err != nil {
		f.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if encoding == "bytes" {
		w.Header().Set("Metadata", string(description))
	}
	_, _ = w.Write(packed)
	f.observed.End(embeddingUsage(answer), nil, false)
}

// packedVector describes one vector's place in a binary answer.
type packedVector struct {
	Index      uint32   `json:"index"`
	Type       string   `json:"embed_dtype"`
	Endianness string   `json:"endianness"`
	Start      int      `json:"start"`
	End        int      `json:"end"`
	Shape      []uint64 `json:"shape"`
}

// packVectors turns an answer whose vectors are base64 into their bytes, one after another.
func packVectors(answer []byte, kind, endianness string) (packed, description []byte, err error) {
	var read struct {
		ID      string `json:"id"`
		Created uint64 `json:"created"`
		Model   string `json:"model"`
		Data    []struct {
			Index uint32
			Data  *string
			Shape []uint64
		} `json:"data"`
		Usage struct {
			Prompt uint32 `json:"prompt_tokens"`
			Total  uint32 `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(answer, &read); err != nil {
		return nil, nil, fmt.Errorf("the worker's vectors are not base64: %w", err)
	}
	vectors := []packedVector{}
	for _, item := range read.Data {
		if item.Data == nil {
			return nil, nil, errors.New("a vector of the worker is missing")
		}
		raw, err := base64.StdEncoding.DecodeString(*item.Data)
		if err != nil {
			return nil, nil, fmt.Errorf("vector %d: %w", item.Index, err)
		}
		want := poolingWidths[kind]
		for _, d := range item.Shape {
			if d > uint64(len(raw)) {
				return nil, nil, fmt.Errorf("vector %d has %d bytes and shape %v of %s", item.Index, len(raw), item.Shape, kind)
			}
			want *= int(d)
		}
		if item.Shape == nil || want != len(raw) {
			return nil, nil, fmt.Errorf("vector %d has %d bytes and shape %v of %s", item.Index, len(raw), item.Shape, kind)
		}
		vectors = append(vectors, packedVector{item.Index, kind, endianness, len(packed), len(packed) + len(raw), item.Shape})
		packed = append(packed, raw...)
	}
	description, err = json.Marshal(struct {
		ID      string         `json:"id"`
		Created uint64         `json:"created"`
		Model   string         `json:"model"`
		Data    []packedVector `json:"data"`
		Usage   any            `json:"usage"`
	}{read.ID, read.Created, read.Model, vectors, map[string]uint32{"prompt_tokens": read.Usage.Prompt, "total_tokens": read.Usage.Total}})
	return packed, description, err
}

func audioFailed(answer []byte) bool {
	document, err := jsontape.Parse(answer)
	return err == nil && document.Root().Get("status").Text() == "failed"
}
