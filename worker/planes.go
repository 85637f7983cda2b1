package worker

import (
	"encoding/binary"
	"net"
	"strconv"

	"signalbox/discovery"
	"signalbox/transport/tcp"
	"signalbox/transport/zmq"
)

// RequestPlane is where a worker's requests come from.
type RequestPlane interface {
	// Serve gives the requests for an instance's endpoint to the handler until stop is called, and returns how others reach it.
	Serve(instanceID uint64, endpoint discovery.EndpointID, handler tcp.Handler) (transport discovery.Transport, stop func(), err error)
}

// EventPlane is where a worker's events go.
type EventPlane interface {
	// Open makes the way out of one publisher, and returns how subscribers find it.
	Open(scope discovery.EventScope, topic string) (EventOutlet, discovery.EventTransport, error)
}

// EventOutlet is one publisher's way out.
type EventOutlet interface {
	// Publish sends an envelope; frame has [EnvelopeHead] bytes of room before it. Calls come one after the other.
	Publish(publisher, sequence uint64, frame []byte)
	Close() error
}

// EnvelopeHead is the room before an envelope for what a plane writes there, in bytes.
const EnvelopeHead = 5

// OnTCP returns the request plane of a listener: frontends connect to it.
func OnTCP(server *tcp.Server) RequestPlane { return tcpRequests{server} }

type tcpRequests struct{ server *tcp.Server }

// Serve implements RequestPlane.
func (p tcpRequests) Serve(instanceID uint64, endpoint discovery.EndpointID, handler tcp.Handler) (discovery.Transport, func(), error) {
	path := requestPath(instanceID, endpoint)
	p.server.Handle(path, handler)
	return discovery.Transport{TCP: p.server.Address() + "/" + path}, func() { p.server.Handle(path, nil) }, nil
}

// Bus is a connection to a message bus: *nats.Conn of package transport/nats is one.
type Bus interface {
	// Serve acknowledges each request on the subject and hands it to take, until stop is called. The description is for who asks the
	// bus what is served.
	Serve(subject, description string, take func(message []byte)) (stop func(), err error)
	// Publish sends a message to all who have subscribed to the subject.
	Publish(subject string, message []byte) error
}

// RequestsOn returns the request plane of a bus. The server runs the requests and calls the frontends back.
func RequestsOn(bus Bus, server *tcp.Server) RequestPlane { return busRequests{bus, server} }

type busRequests struct {
	bus    Bus
	server *tcp.Server
}

// Serve implements RequestPlane.
func (p busRequests) Serve(instanceID uint64, endpoint discovery.EndpointID, handler tcp.Handler) (discovery.Transport, func(), error) {
	path := requestPath(instanceID, endpoint)
	subject := endpoint.Namespace + "_" + endpoint.Component + "." + endpoint.Name + "-" + discovery.FormatID(instanceID)
	p.server.Handle(path, handler)
	stop, err := p.bus.Serve(subject, "Dynamo component "+endpoint.Component+" in namespace "+endpoint.Namespace, func(message []byte) { p.server.Take(path, message) })
	if err != nil {
		p.server.Handle(path, nil)
		return discovery.Transport{}, nil, err
	}
	return discovery.Transport{NATS: subject}, func() {
		stop()
		p.server.Handle(path, nil)
	}, nil
}

// EventsOn returns the event plane of a bus.
func EventsOn(bus Bus) EventPlane { return busEvents{bus} }

type busEvents struct{ bus Bus }

// Open implements EventPlane.
func (p busEvents) Open(scope discovery.EventScope, topic string) (EventOutlet, discovery.EventTransport, error) {
	return busOutlet{p.bus, scope.Subject(topic)}, discovery.EventTransport{NATSSubjectPrefix: scope.SubjectPrefix()}, nil
}

// busOutlet publishes bare envelopes under the subject that all publishers of an endpoint's topic share.
type busOutlet struct {
	bus     Bus
	subject string
}

// Publish implements EventOutlet. A message that is lost is missed by its sequence, and asked for.
func (o busOutlet) Publish(_, _ uint64, frame []byte) {
	_ = o.bus.Publish(o.subject, frame[EnvelopeHead:])
}

// Close implements EventOutlet: the connection is not the outlet's.
func (o busOutlet) Close() error { return nil }

// zmqEvents gives each publisher a socket of its own, at the host's address.
type zmqEvents struct{ host string }

// Open implements EventPlane.
func (p zmqEvents) Open(_ discovery.EventScope, topic string) (EventOutlet, discovery.EventTransport, error) {
	socket, err := zmq.Listen("0.0.0.0:0")
	if err != nil {
		return nil, discovery.EventTransport{}, err
	}
	endpoint := "tcp://" + net.JoinHostPort(p.host, strconv.Itoa(socket.Port()))
	return zmqOutlet{socket, []byte(topic)}, discovery.EventTransport{ZMQ: endpoint}, nil
}

type zmqOutlet struct {
	socket *zmq.Publisher
	topic  []byte
}

// Publish implements EventOutlet: topic, publisher, sequence, and the envelope behind a version and its length.
func (o zmqOutlet) Publish(publisher, sequence uint64, frame []byte) {
	frame[0] = 1
	binary.BigEndian.PutUint32(frame[1:], uint32(len(frame)-EnvelopeHead))
	o.socket.Publish(o.topic, binary.BigEndian.AppendUint64(nil, publisher), binary.BigEndian.AppendUint64(nil, sequence), frame)
}

// Close implements EventOutlet.
func (o zmqOutlet) Close() error { return o.socket.Close() }
