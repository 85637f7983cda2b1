package tcp

import (
	"context"

	"signalbox/inference"
)

// Courier carries requests to workers by another way than connections of the client's own, such as a message bus. Answers come home
// over TCP all the same.
type Courier interface {
	// Deliver hands a two-part message to whoever serves the subject, and returns once that worker has taken it. Failures are
	// *inference.Error; the end of ctx ends the wait.
	Deliver(ctx context.Context, subject string, headers map[string]string, message []byte) error
}

// Carries tells whether addresses that are subjects can be sent to.
func (c *Client) Carries() bool { return c.options.Courier != nil }

// sendByCourier has the courier carry the request to the subject that is the target's address.
func (c *Client) sendByCourier(ctx context.Context, s *stream, target inference.Target, id string, request *inference.Request, body func([]byte) ([]byte, error)) error {
	message, err := c.message(id, s.subject, target.Codec, request, body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	err = c.expect(s)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return s.deliver(ctx, target.Address, requestHeaders(id, request), message)
}

// deliver waits until the worker takes the request: by its acknowledgement, or by calling home.
func (s *stream) deliver(ctx context.Context, subject string, headers map[string]string, message []byte) error {
	deliverContext, cancel := context.WithCancel(ctx)
	defer cancel()
	delivered := make(chan error, 1)
	if !s.client.own(func() { delivered <- s.client.options.Courier.Deliver(deliverContext, subject, headers, message) }) { // ends with its context
		return closedError()
	}
	select {
	case err := <-delivered:
		if ctx.Err() != nil {
			return cancelled(ctx)
		}
		return err
	case <-s.home:
		return s.failed()
	case <-ctx.Done():
		return cancelled(ctx)
	}
}
