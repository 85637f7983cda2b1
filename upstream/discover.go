package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// maxDocument bounds what is read of a server's description, in bytes. Metrics of an engine with many models take most.
const maxDocument = 4 << 20

// listedModel is one entry of /v1/models.
type listedModel struct {
	ID      string  `json:"id"`
	OwnedBy string  `json:"owned_by"`
	Parent  *string `json:"parent"` // of an adapter
	// Length is the context in tokens as vLLM and SGLang name it, Window as this product and Dynamo do.
	Length int64 `json:"max_model_len"`
	Window int64 `json:"context_window"`
	Meta   struct {
		Trained int64 `json:"n_ctx_train"`
	} `json:"meta"`
}

// describe asks a server what it serves.
func (c *Client) describe(ctx context.Context, config Config) (About, error) {
	s := &Server{Config: config}
	var list struct {
		Data []listedModel `json:"data"`
	}
	if err := c.getJSON(ctx, s, "/v1/models", &list); err != nil {
		return About{}, err
	}
	chosen, err := choose(list.Data, config.Model)
	if err != nil {
		return About{}, err
	}
	about := About{Kind: kindOfOwner(chosen.OwnedBy), Model: chosen.ID, Adapter: chosen.Parent != nil, ContextLength: tokens(max(chosen.Length, chosen.Window))}
	if config.Kind != "" {
		about.Kind = config.Kind
	}
	switch about.Kind {
	case VLLM:
		c.describeVLLM(ctx, s, &about)
	case SGLang:
		c.describeSGLang(ctx, s, &about)
	case LlamaCpp:
		c.describeLlamaCpp(ctx, s, &about)
		if about.ContextLength == 0 {
			about.ContextLength = tokens(chosen.Meta.Trained)
		}
	}
	return about, nil
}

// choose finds the model to use: the one that is named, else the first that is no adapter.
func choose(models []listedModel, name string) (*listedModel, error) {
	var names []string
	for i := range models {
		m := &models[i]
		if name == m.ID && name != "" || name == "" && m.ID != "" && m.Parent == nil {
			return m, nil
		}
		names = append(names, m.ID)
	}
	if name == "" {
		return nil, fmt.Errorf("it lists no model")
	}
	return nil, fmt.Errorf("it lists no model %q; it has %q", name, names)
}

// kindOfOwner tells a server by what it writes into its models.
func kindOfOwner(owner string) Kind {
	switch owner {
	case "vllm":
		return VLLM
	case "sglang":
		return SGLang
	case "llamacpp":
		return LlamaCpp
	}
	return OpenAI
}

// tokens is a number of tokens that a server gives; 0 for what cannot be one.
func tokens(count int64) uint32 {
	if count < 1 || count > math.MaxUint32 {
		return 0
	}
	return uint32(count)
}

func (c *Client) getJSON(ctx context.Context, s *Server, path string, into any) error {
	text, status, err := c.get(ctx, s, path, maxDocument)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("GET %s: %d %s", path, status, errorText(text))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

// What follows completes the description. What a server does not tell stays unknown: older releases lack a route or two.

func (c *Client) describeVLLM(ctx context.Context, s *Server, about *About) {
	var version struct {
		Version string `json:"version"`
	}
	if c.getJSON(ctx, s, "/version", &version) == nil {
		about.Version = version.Version
	}
	text, status, err := c.get(ctx, s, "/metrics", maxDocument)
	if err != nil || status != http.StatusOK {
		return
	}
	labels := metricLabels(text, "vllm:cache_config_info")
	about.BlockSize = tokens(whole(labels["block_size"]))
	about.Blocks = uint64(max(0, whole(labels["num_gpu_blocks"])))
}

func (c *Client) describeSGLang(ctx context.Context, s *Server, about *About) {
	var info struct {
		Version  string `json:"version"`
		PageSize int64  `json:"page_size"`
		Tokens   int64  `json:"max_total_num_tokens"`
		Length   int64  `json:"context_length"`
		Running  int64  `json:"max_running_requests"`
		Internal []struct {
			Tokens int64 `json:"max_total_num_tokens"`
		} `json:"internal_states"`
	}
	if c.getJSON(ctx, s, "/get_server_info", &info) != nil && c.getJSON(ctx, s, "/server_info", &info) != nil {
		return
	}
	about.Version, about.BlockSize = info.Version, tokens(info.PageSize)
	if about.ContextLength == 0 {
		about.ContextLength = tokens(info.Length)
	}
	total := info.Tokens
	if total == 0 && len(info.Internal) > 0 {
		total = info.Internal[0].Tokens
	}
	if total > 0 && info.PageSize > 0 {
		about.Blocks = uint64(total / info.PageSize)
	}
	about.Slots = uint64(max(0, info.Running))
	// A page of one token is a block that shares everything and costs most: what is predicted is predicted in larger ones.
	if about.BlockSize == 1 && s.Events == "" {
		about.BlockSize, about.Blocks = defaultBlock, about.Blocks/defaultBlock
	}
}

func (c *Client) describeLlamaCpp(ctx context.Context, s *Server, about *About) {
	var props struct {
		Build    string `json:"build_info"`
		Slots    int64  `json:"total_slots"`
		Defaults struct {
			Context int64 `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if c.getJSON(ctx, s, "/props", &props) != nil {
		return
	}
	about.Version, about.Slots = props.Build, uint64(max(0, props.Slots))
	if props.Defaults.Context > 0 {
		about.ContextLength = tokens(props.Defaults.Context)
		about.Blocks = uint64(props.Defaults.Context) * max(1, about.Slots) / defaultBlock
	}
}

// whole reads a whole number; 0 for anything else.
func whole(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return value
}

// metricLabels returns the labels of the first sample of a metric in Prometheus' text format; nil when it is not there.
func metricLabels(text []byte, name string) map[string]string {
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte(name+"{"))
		if !ok {
			continue
		}
		labels := make(map[string]string)
		for {
			key, after, found := bytes.Cut(rest, []byte(`="`))
			end := bytes.IndexByte(after, '"')
			if !found || end < 0 {
				return labels
			}
			for end > 0 && after[end-1] == '\\' { // a quote inside
				more := bytes.IndexByte(after[end+1:], '"')
				if more < 0 {
					return labels
				}
				end += 1 + more
			}
			labels[strings.Trim(string(key), ", ")] = string(after[:end])
			rest = after[end+1:]
		}
	}
	return nil
}
