package upstream

import (
	"context"

	"signalbox/inference"
	"signalbox/internal/jsonbody"
	"signalbox/internal/jsontape"
)

// Send asks the server with tokens and returns its answer as soon as the server has begun it.
func (c *Client) Send(ctx context.Context, s *Server, r *inference.Request) (inference.Stream, error) {
	if err := unsupported(s, r); err != nil {
		return nil, err
	}
	var reading dialect
	var text []byte
	var err error
	path, top := completionsPath, uint32(0)
	if n := r.Output.Logprobs; n != nil {
		top = *n
	}
	switch s.About.Kind {
	case SGLang:
		text, err = sglang{}.body(s, r)
		path, reading = sglangPath, sglang{}
	case LlamaCpp:
		d := llamacpp{eos: r.EOSTokenIDs, top: top}
		text, err = d.body(s, r)
		path, reading = llamacppPath, d
	default:
		d := completions{vllm: s.About.Kind == VLLM, top: top}
		text, err = d.body(s, r)
		reading = d
	}
	if err != nil {
		return nil, err
	}
	made, err := c.post(ctx, s, path, text, r, reading)
	if err != nil {
		return nil, err
	}
	made.usageFollows = path == completionsPath
	if made.whole {
		failure := made.wrong(&inference.Error{Kind: inference.ProtocolViolation, Message: "server " + s.URL + " answered without a stream"})
		_ = made.Close()
		return nil, failure
	}
	return made, nil
}

// Forward sends a body in OpenAI's own shape and returns what the server answers, event by event or whole: each output has a Body. What
// the body asks for tells the route. The model's name in it is replaced by the server's.
func (c *Client) Forward(ctx context.Context, s *Server, id string, text []byte) (inference.Stream, error) {
	document, err := jsontape.Parse(text)
	if err != nil {
		return nil, &inference.Error{Kind: inference.InvalidArgument, Message: "a body for server " + s.URL, Cause: err}
	}
	root := document.Root()
	path := ""
	switch {
	case root.Get("messages").Exists():
		path = "/v1/chat/completions"
	case root.Get("prompt").Exists():
		path = completionsPath
	case root.Get("input").Exists():
		path = "/v1/embeddings"
	default:
		return nil, inference.Errorf(inference.InvalidArgument, "a body for server %s has neither messages, prompt nor input", s.URL)
	}
	made, err := c.post(ctx, s, path, renamed(root, s.About.Model), &inference.Request{ID: id}, asItIs{})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// renamed is the body with another model. Extensions that no plain server knows are left out.
func renamed(root jsontape.Node, model string) []byte {
	b := jsonbody.New(len(root.Raw()) + len(model) + 16)
	b.Str("model", model)
	for key, value := range root.Members {
		if key == "model" || key == "nvext" {
			continue
		}
		b.Raw(key, value.Raw())
	}
	return b.Done()
}
