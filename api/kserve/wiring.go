package kserve

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// unary makes gRPC's description of a method of Service. No interceptors are installed, so none are called.
func unary[R any](name string, method func(*Service, context.Context, *R) (encoder, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(service any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := new(R)
		if err := read(request); err != nil {
			return nil, err
		}
		return method(service.(*Service), ctx, request)
	}}
}

var serviceDescription = grpc.ServiceDesc{
	ServiceName: "inference.GRPCInferenceService",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		unary("ServerLive", (*Service).serverLive),
		unary("ServerReady", (*Service).serverReady),
		unary("ModelReady", (*Service).modelReady),
		unary("ModelMetadata", (*Service).modelMetadata),
		unary("ModelConfig", (*Service).modelConfig),
		unary("ModelInfer", (*Service).modelInfer),
	},
	Streams: []grpc.StreamDesc{{StreamName: "ModelStreamInfer", ServerStreams: true, ClientStreams: true,
		Handler: func(service any, stream grpc.ServerStream) error {
			return service.(*Service).modelStreamInfer(nil, stream)
		}}},
	Metadata: "kserve.proto",
}

// receive waits for the stream's next request; nil at its end.
func (s *Service) receive(ctx context.Context, stream grpc.ServerStream) (*inferRequest, error) {
	type received struct {
		request *inferRequest
		err     error
	}
	result := make(chan received, 1)
	go func() { // ends with the call at the latest
		request := &inferRequest{}
		err := stream.RecvMsg(request)
		result <- received{request, err}
	}()
	select {
	case got := <-result:
		if errors.Is(got.err, io.EOF) {
			return nil, nil
		}
		return got.request, got.err
	case <-ctx.Done():
		return nil, status.Error(codes.Unavailable, "Service is not ready")
	}
}

// sender writes to a client that may stop reading: what it does not take in time ends the call.
type sender struct {
	ctx     context.Context
	stall   time.Duration
	timer   *time.Timer
	waiting chan *streamResponse
	sent    chan error
	closed  chan struct{}
}

func newSender(ctx context.Context, stream grpc.ServerStream, stall time.Duration) *sender {
	s := &sender{ctx: ctx, stall: stall, timer: time.NewTimer(stall), waiting: make(chan *streamResponse), sent: make(chan error, 1), closed: make(chan struct{})}
	s.timer.Stop()
	go func() { // ends with close; a write that hangs ends when the call returns
		for {
			select {
			case message := <-s.waiting:
				s.sent <- stream.SendMsg(message)
			case <-s.closed:
				return
			}
		}
	}()
	return s
}

func (s *sender) close() {
	s.timer.Stop()
	close(s.closed)
}

// send writes one message.
func (s *sender) send(message *streamResponse) error {
	s.waiting <- message // the goroutine waits for it: one message is written at a time
	s.timer.Reset(s.stall)
	defer s.timer.Stop()
	select {
	case err := <-s.sent:
		return err
	case <-s.timer.C:
		return status.Errorf(codes.Aborted, "the client took nothing of its stream for %v", s.stall)
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}
