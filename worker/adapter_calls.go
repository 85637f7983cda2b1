package worker

import (
	"context"
	"encoding/json"
	"errors"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/transport/tcp"
	"signalbox/transport/wire"
)

// The endpoints beside the worker's own by which adapters are loaded, unloaded and listed.
const (
	loadEndpoint   = "load_lora"
	unloadEndpoint = "unload_lora"
	listEndpoint   = "list_loras"
)

// adapterWish is the body of a call: a name, and for loading where the adapter is.
type adapterWish struct {
	Name   string `json:"lora_name"`
	Source *struct {
		URI string `json:"uri"`
	} `json:"source"`
}

// adapterAnswer is the answer to a call.
type adapterAnswer struct {
	Status  string            `json:"status"` // success or error
	Message string            `json:"message,omitempty"`
	Name    string            `json:"lora_name,omitempty"`
	ID      uint64            `json:"lora_id,omitempty"`
	Loaded  map[string]uint64 `json:"loras,omitzero"`
	Count   *int              `json:"count,omitempty"`
}

func refusedAdapter(name string, err error) adapterAnswer {
	return adapterAnswer{Status: "error", Message: err.Error(), Name: name}
}

// adapterCall does what one of the endpoints is for. Mistakes are part of the answer.
func (w *Worker) adapterCall(ctx context.Context, endpoint string, body []byte) adapterAnswer {
	var wish adapterWish
	if endpoint != listEndpoint {
		if err := json.Unmarshal(body, &wish); err != nil {
			return refusedAdapter("", adapterError("the request is not understood: %v", err))
		}
		if wish.Name == "" {
			return refusedAdapter("", adapterError("'lora_name' is required and must be a string"))
		}
	}
	switch endpoint {
	case loadEndpoint:
		switch {
		case wish.Source == nil:
			return refusedAdapter("", adapterError("'source' object is required in request"))
		case wish.Source.URI == "":
			return refusedAdapter("", adapterError("'source.uri' is required and must be a string"))
		}
		already, err := w.LoadAdapter(ctx, wish.Name)
		if err != nil {
			return refusedAdapter(wish.Name, err)
		}
		text := "LoRA adapter '" + wish.Name + "' loaded successfully"
		if already {
			text = "LoRA adapter '" + wish.Name + "' already loaded"
		}
		return adapterAnswer{Status: "success", Message: text, Name: wish.Name, ID: AdapterID(wish.Name)}
	case unloadEndpoint:
		if err := w.UnloadAdapter(ctx, wish.Name); err != nil {
			return refusedAdapter("", err)
		}
		return adapterAnswer{Status: "success", Message: "LoRA adapter '" + wish.Name + "' unloaded successfully", Name: wish.Name, ID: AdapterID(wish.Name)}
	}
	loaded := w.Adapters()
	count := len(loaded)
	return adapterAnswer{Status: "success", Loaded: loaded, Count: &count}
}

// adapterHandler answers calls of an endpoint on the request plane.
func (w *Worker) adapterHandler(endpoint string) tcp.Handler {
	return func(ctx context.Context, call *tcp.Call) error {
		body := call.Body
		if call.Codec == inference.MessagePack {
			text, err := wire.AppendJSON(nil, body)
			if err != nil {
				return &inference.Error{Kind: inference.InvalidArgument, Message: endpoint + ": " + err.Error(), Cause: err}
			}
			body = text
		}
		value, err := json.Marshal(w.adapterCall(ctx, endpoint, body))
		if err == nil && call.Codec == inference.MessagePack {
			value, err = wire.AppendMessagePack(nil, value)
		}
		if err != nil {
			return err
		}
		call.EmitValue(value)
		return call.Flush()
	}
}

// serveAdapters opens and registers the endpoints of adapters.
func (w *Worker) serveAdapters(ctx context.Context) error {
	e, id := w.options.Endpoint, w.instance.InstanceID
	for _, name := range []string{loadEndpoint, unloadEndpoint, listEndpoint} {
		endpoint := discovery.EndpointID{Namespace: e.Namespace, Component: e.Component, Name: name}
		transport, stop, err := w.options.Requests.Serve(id, endpoint, w.adapterHandler(name))
		if err != nil {
			return err
		}
		w.stops = append(w.stops, stop)
		if err := w.register(ctx, &discovery.Instance{Namespace: e.Namespace, Component: e.Component, Endpoint: name, InstanceID: id,
			Transport: transport, DeviceType: "cuda", Codec: inference.MessagePack.String()}); err != nil {
			return err
		}
	}
	return nil
}

// withdrawAdapters takes the adapters out of discovery. Whoever loads one at this moment sees it go with the worker.
func (w *Worker) withdrawAdapters(ctx context.Context) error {
	w.adapters.mu.Lock()
	var records []*discovery.Model
	for _, adapter := range w.adapters.loaded {
		if !adapter.leaving {
			records = append(records, adapter.record)
		}
	}
	w.adapters.mu.Unlock()
	var err error
	for _, record := range records {
		err = errors.Join(err, discovery.Withdraw(ctx, w.options.Backend, record))
	}
	return err
}
