package frontend

import (
	"context"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/transport/tcp"
)

// TCP reaches workers over the TCP request plane, and by the client's courier those that are named by a subject.
type TCP struct{ *tcp.Client }

// Forward implements Transport.
func (t TCP) Forward(target inference.Target) Forwarder { return tcpForwarder{t.Client, target} }

// Target implements Transport.
func (t TCP) Target(instance *discovery.Instance) (inference.Target, bool) {
	address := instance.Transport.TCP
	if address == "" && t.Client.Carries() {
		address = instance.Transport.NATS
	}
	if address == "" {
		return inference.Target{}, false
	}
	t.Client.Back(instance.InstanceID)
	target := inference.Target{WorkerID: instance.InstanceID, Address: address}
	if instance.Codec == inference.MessagePack.String() {
		target.Codec = inference.MessagePack
	}
	return target, true
}

type tcpForwarder struct {
	client *tcp.Client
	target inference.Target
}

// SendRaw implements Forwarder.
func (f tcpForwarder) SendRaw(ctx context.Context, id string, body []byte) (inference.Stream, error) {
	return f.client.SendRaw(ctx, f.target, id, body)
}
