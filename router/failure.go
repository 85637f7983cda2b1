package router

import (
	"encoding/json"
	"fmt"

	"signalbox/inference"
)

// LimitKind names which limit of a queue class was reached.
type LimitKind string

const (
	// LimitRequests counts waiting requests.
	LimitRequests LimitKind = "requests"
	// LimitRawISLTokens counts the prompt tokens of waiting requests.
	LimitRawISLTokens LimitKind = "raw_isl_tokens"
	// LimitCachedTokens counts the prompt tokens of waiting requests that some worker has cached.
	LimitCachedTokens LimitKind = "cached_tokens"
)

// QueueLimitError refuses a request because its queue class is full. Clients see its members as the details of a status 529.
type QueueLimitError struct {
	PolicyClass string
	LimitKind   LimitKind
	// Current is what waits, Limit what may wait with the workers there are; in requests or tokens by kind.
	Current, Limit uint64
}

// Error implements error. The text is part of the wire contract.
func (e *QueueLimitError) Error() string {
	return fmt.Sprintf("router policy class %q queue %s limit reached (current=%d, limit=%d)",
		e.PolicyClass, e.LimitKind, e.Current, e.Limit)
}

// ProblemDetails returns the explanation that clients get beside the message, a JSON object.
func (e *QueueLimitError) ProblemDetails() []byte {
	class, err := json.Marshal(e.PolicyClass)
	if err != nil { // text always marshals
		return nil
	}
	return fmt.Appendf(nil, `{"policy_class":%s,"limit_kind":%q,"current":%d,"limit":%d}`, class, string(e.LimitKind), e.Current, e.Limit)
}

// Refused wraps a full queue class as the *inference.Error that [Router.Place] returns.
func Refused(limit *QueueLimitError) *inference.Error {
	return &inference.Error{Kind: inference.ResourceExhausted, Public: limit.Error(), Cause: limit}
}

// The failures below are what clients of the field's routers know by heart; each maps to the HTTP status noted with it.

// AllBusy (529) means that workers are there but every one is overloaded.
func AllBusy() *inference.Error {
	return inference.Errorf(inference.ResourceExhausted, "All workers are busy, please retry later")
}

// NoneAvailable (503) means that the endpoint has no worker to send to.
func NoneAvailable(endpoint string) *inference.Error {
	return inference.Errorf(inference.Unavailable, "No workers available for endpoint %s", endpoint)
}

// SelectedBusy (529, another worker may be tried) means that the worker became overloaded after it was chosen.
func SelectedBusy(workerID uint64) *inference.Error {
	return &inference.Error{Kind: inference.WorkerOverloaded, Message: "Selected worker is overloaded, please retry later", WorkerID: workerID}
}

// NoEndpoints (500) means that no worker meets the request's conditions.
func NoEndpoints() *inference.Error {
	return inference.Errorf(inference.Unroutable, "no endpoints available to route work")
}

// AllEligibleOverloaded (529) means that every worker which meets the request's conditions is overloaded.
func AllEligibleOverloaded() *inference.Error {
	return inference.Errorf(inference.ResourceExhausted, "all eligible workers are overloaded")
}

// NoneUntried is the failure of a request that every eligible worker has failed before: 529 when the last of them was
// overloaded, else 503.
func NoneUntried(last error) *inference.Error {
	switch inference.KindOf(last) {
	case inference.WorkerOverloaded, inference.ResourceExhausted:
		return inference.Errorf(inference.ResourceExhausted, "all eligible workers rejected the request as overloaded")
	}
	return inference.Errorf(inference.Unavailable, "no untried eligible worker remains after migration")
}

// Closed (503) answers who waits in, or comes to, a router that was closed.
func Closed() *inference.Error {
	return inference.Errorf(inference.Unavailable, "endpoint subscriber shutdown")
}

// Gone wraps the end of a caller's context.
func Gone(cause error) *inference.Error {
	return &inference.Error{Kind: inference.Cancelled, Message: "the request was cancelled before it was placed", Cause: cause}
}
