package kserve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"signalbox/api/openai"
	"signalbox/api/problem"
	"signalbox/model/card"
)

// Transport limits that no flag changes. They stop clients that hold connections without using them.
const (
	handshakeTimeout = 10 * time.Second
	probeInterval    = 60 * time.Second
	probeTimeout     = 20 * time.Second
	defaultStall     = 30 * time.Second
)

// Models finds the models that are served.
type Models interface {
	// Find returns the model with the name or alias; nil when there is none.
	Find(name string) openai.Model
	// Card returns the card of the model with the name or alias; nil when there is none.
	Card(name string) *card.Card
	// AnyReady tells whether some model can be served now.
	AnyReady() bool
}

// Options configure the service.
type Options struct {
	Host string // a name or an address; "" for all
	Port int    // 0 lets the system choose
	// TLS switches encryption on; nil serves plain HTTP/2.
	TLS *tls.Config
	// Limit bounds one request message in bytes; 0 means 192 MiB.
	Limit int
	// Stall is how long a client may take nothing of its answer before it is dropped; 0 means 30 s.
	Stall time.Duration
	// ConnectionWindow and StreamWindow are HTTP/2 flow-control windows in bytes; 0 leaves them to grow by themselves.
	ConnectionWindow, StreamWindow int32
	// MetadataPrefix begins the metadata that travels to the worker; "" is the usual one.
	MetadataPrefix string
	// DisableExtensions ignores routing metadata.
	DisableExtensions bool
	// OverloadStatus is the HTTP status of refusals for load, which workers may send too; 0 is the usual one.
	OverloadStatus int
	// Completions judges the sampling parameters of text requests.
	Completions *openai.API
	Observer    openai.Observer
	// Draining tells that the service shuts down; Track counts a running request until its result is called. Nil means never.
	Draining func() bool
	Track    func() (done func())
}

// Service is the running gRPC service. Use Start, then Shutdown exactly once.
type Service struct {
	models   Models
	options  Options
	mapper   problem.Mapper
	server   *grpc.Server
	listener net.Listener
	base     context.Context // ends with the drain time
	cancel   context.CancelFunc
	done     chan struct{}
	serveErr error
}

// Start listens and serves.
func Start(models Models, options Options) (*Service, error) {
	if options.Limit <= 0 {
		options.Limit = 192 << 20
	}
	if options.Stall <= 0 {
		options.Stall = defaultStall
	}
	if options.Draining == nil {
		options.Draining = func() bool { return false }
	}
	if options.Track == nil {
		options.Track = func() func() { return func() {} }
	}
	address := net.JoinHostPort(options.Host, strconv.Itoa(options.Port))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for gRPC on %s (--http-host, --http-port): %w", address, err)
	}
	settings := []grpc.ServerOption{grpc.ForceServerCodecV2(codec{}), grpc.MaxRecvMsgSize(options.Limit), grpc.MaxSendMsgSize(1<<31 - 1),
		grpc.ConnectionTimeout(handshakeTimeout), grpc.KeepaliveParams(keepalive.ServerParameters{Time: probeInterval, Timeout: probeTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true})}
	if options.TLS != nil {
		settings = append(settings, grpc.Creds(credentials.NewTLS(options.TLS)))
	}
	if options.ConnectionWindow > 0 {
		settings = append(settings, grpc.InitialConnWindowSize(options.ConnectionWindow))
	}
	if options.StreamWindow > 0 {
		settings = append(settings, grpc.InitialWindowSize(options.StreamWindow))
	}
	s := &Service{models: models, options: options, listener: listener, mapper: problem.Mapper{OverloadStatus: options.OverloadStatus},
		server: grpc.NewServer(settings...), done: make(chan struct{})}
	s.base, s.cancel = context.WithCancel(context.Background())
	s.server.RegisterService(&serviceDescription, s)
	go func() { // ends when Shutdown stops the server
		defer close(s.done)
		s.serveErr = s.server.Serve(listener)
	}()
	return s, nil
}

// Address returns where the service listens.
func (s *Service) Address() string { return s.listener.Addr().String() }

// Shutdown ends what still runs and returns when all is gone. Requests were given their time before: see Options.Track.
func (s *Service) Shutdown() error {
	s.cancel()
	const lastWords = 2 * time.Second
	timer := time.AfterFunc(lastWords, s.server.Stop)
	defer timer.Stop()
	s.server.GracefulStop()
	<-s.done
	if errors.Is(s.serveErr, grpc.ErrServerStopped) {
		return nil
	}
	return s.serveErr
}

// withBase returns a context that ends with the call or with the service.
func (s *Service) withBase(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.base, cancel)
	return ctx, func() { stop(); cancel() }
}

// headers are the call's metadata as HTTP headers, which is how the rest of the product knows them.
func headers(ctx context.Context) http.Header {
	h := http.Header{}
	incoming, _ := metadata.FromIncomingContext(ctx)
	for name, values := range incoming {
		for _, value := range values {
			h.Add(name, value)
		}
	}
	return h
}

// asStatus turns a problem into the status that ends a call.
func asStatus(p *problem.Problem) error {
	message := p.Message
	if p.Detail != "" {
		message = p.Detail
	}
	code := codes.Internal
	switch {
	case p.Overload, p.Status == http.StatusTooManyRequests:
		code = codes.ResourceExhausted
	case p.Status == problem.StatusClientClosed:
		code = codes.Canceled
	case p.Status == http.StatusNotFound:
		code = codes.NotFound
	case p.Status == http.StatusNotImplemented:
		code = codes.Unimplemented
	case p.Status == http.StatusServiceUnavailable:
		code = codes.Unavailable
	case p.Status == http.StatusGatewayTimeout:
		code = codes.DeadlineExceeded
	case p.Status >= 400 && p.Status < 500:
		code = codes.InvalidArgument
	}
	return status.Error(code, message)
}

func notFound(name string) *problem.Problem {
	p := problem.ModelNotFound()
	p.Message = "Model '" + name + "' not found"
	return p
}

// mistake is what is wrong with a request, in the words that clients of this protocol know.
type mistake string

func (m mistake) Error() string { return string(m) }

func mistakef(format string, args ...any) error { return mistake(fmt.Sprintf(format, args...)) }

func cannotParse(format string, args ...any) *problem.Problem {
	return problem.Invalid("", "Failed to parse request: "+format, args...)
}

func (s *Service) serverLive(context.Context, *empty) (encoder, error) {
	return flagResponse(true), nil
}

func (s *Service) serverReady(context.Context, *empty) (encoder, error) {
	return flagResponse(!s.options.Draining() && s.models.AnyReady()), nil
}

func (s *Service) modelReady(_ context.Context, r *modelRequest) (encoder, error) {
	model := s.models.Find(r.name)
	return flagResponse(model != nil && model.Ready() && !s.options.Draining()), nil
}

func (s *Service) describe(name string) (*description, error) {
	c := s.models.Card(name)
	if c == nil || !c.ModelType.Has(card.TensorBased) && !c.ModelType.Has(card.Completions) {
		return nil, asStatus(notFound(name))
	}
	d, err := describe(c)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "Model '%s' has type Tensor but: %v", name, err)
	}
	return d, nil
}

func (s *Service) modelMetadata(_ context.Context, r *modelRequest) (encoder, error) {
	d, err := s.describe(r.name)
	if err != nil {
		return nil, err
	}
	return metadataResponse{d}, nil
}

func (s *Service) modelConfig(_ context.Context, r *modelRequest) (encoder, error) {
	d, err := s.describe(r.name)
	if err != nil {
		return nil, err
	}
	return configResponse{d}, nil
}

func (s *Service) modelInfer(ctx context.Context, r *inferRequest) (encoder, error) {
	ctx, cancel := s.withBase(ctx)
	defer cancel()
	defer s.options.Track()()
	answer, p := s.prepare(ctx, r, false)
	if p == nil && answer.streams() {
		p = problem.Invalid("streaming", "Streaming is not supported for this endpoint")
	}
	if p != nil {
		s.options.Observer.Refused(p)
		return nil, asStatus(p)
	}
	response, p := answer.whole(ctx)
	if p != nil {
		return nil, asStatus(p)
	}
	return response, nil
}

// modelStreamInfer answers the requests of a stream one after another.
func (s *Service) modelStreamInfer(_ any, stream grpc.ServerStream) error {
	ctx, cancel := s.withBase(stream.Context())
	defer cancel()
	out := newSender(ctx, stream, s.options.Stall)
	defer out.close()
	for {
		request, err := s.receive(ctx, stream)
		if err != nil || request == nil {
			return err
		}
		if err := s.answerInStream(ctx, request, out); err != nil {
			return err
		}
	}
}

func (s *Service) answerInStream(ctx context.Context, r *inferRequest, out *sender) error {
	defer s.options.Track()()
	answer, p := s.prepare(ctx, r, true)
	if p != nil {
		s.options.Observer.Refused(p)
		return asStatus(p)
	}
	if answer.streams() {
		return answer.stream(ctx, out)
	}
	response, p := answer.whole(ctx)
	if p != nil {
		return asStatus(p)
	}
	return out.send(&streamResponse{response: response})
}

// answer is one request on its way to a model.
type answer interface {
	// streams tells whether the client wants the answer in pieces.
	streams() bool
	whole(ctx context.Context) (*inferResponse, *problem.Problem)
	stream(ctx context.Context, out *sender) error
}

// prepare judges the request and finds its model. inStream tells that the call may carry several answers.
func (s *Service) prepare(ctx context.Context, r *inferRequest, inStream bool) (answer, *problem.Problem) {
	if s.options.Draining() {
		return nil, problem.Draining()
	}
	model := s.models.Find(r.model)
	switch {
	case model != nil && model.Serves(openai.Tensor):
		return s.prepareTensor(ctx, r, model, inStream)
	case model != nil && model.Serves(openai.Completions):
		return s.prepareText(ctx, r, model)
	}
	return nil, notFound(r.model)
}

func unavailable() *problem.Problem {
	return &problem.Problem{Status: http.StatusServiceUnavailable, Message: "model temporarily unavailable", Class: "Unavailable", Reason: "backend.unavailable"}
}
