package inference

import "context"

// Rank names one data-parallel rank of one worker: the unit that routing chooses among.
type Rank struct {
	WorkerID uint64
	DPRank   uint32
}

// Target is the worker that a request is sent to. Address is opaque to everyone but the transport that made it.
type Target struct {
	WorkerID uint64
	// Address is the transport's own address of the worker's endpoint, e.g. "10.0.0.2:35359/14d2…/dynamo/backend/generate".
	Address string
	// Codec is what the worker wants bodies to be encoded in.
	Codec Codec
}

// Sender carries requests to workers: one implementation per transport.
type Sender interface {
	// Send hands the request to the worker and returns its answer as soon as the worker accepted it. The context ends the
	// whole exchange, the stream included. Failures are *Error.
	Send(ctx context.Context, target Target, request *Request) (Stream, error)
}
