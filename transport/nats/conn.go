package nats

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"

	"signalbox/inference"
	"signalbox/transport/wire"
)

// Conn is a connection to NATS. All methods may be called from several goroutines.
type Conn struct {
	options Options
	nc      *client.Conn
	closed  chan struct{} // closed when the connection will not come back
	end     func()        // closes closed, once

	reconnected atomic.Int64 // when the connection was made again last, in Unix nanoseconds; 0 for never

	mu       sync.Mutex
	era      context.Context // ends with the next time that the connection is made again
	endEra   context.CancelFunc
	watchers map[*watcher]struct{}
	services map[string]*service // by name
}

// watcher is a subscription that is told of the connection's ups and downs.
type watcher struct {
	subscription *client.Subscription
	connected    func()
	lost         func(error)
}

// Connect connects, and tries again while the server cannot be reached and ctx and the options' patience last. Wrong credentials
// fail at once.
func Connect(ctx context.Context, options Options) (*Conn, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	c := &Conn{options: options, closed: make(chan struct{}), watchers: make(map[*watcher]struct{}), services: make(map[string]*service)}
	c.era, c.endEra = context.WithCancel(context.Background())
	c.end = sync.OnceFunc(func() {
		close(c.closed)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.endEra()
	})
	settings, err := c.settings()
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(options.Patience)
	for attempt := 0; ; attempt++ {
		c.nc, err = client.Connect(options.Server, settings...)
		if err == nil {
			return c, nil
		}
		wait := pause(attempt)
		if errors.Is(err, client.ErrAuthorization) || errors.Is(err, client.ErrNkeysNotSupported) || time.Now().Add(wait).After(deadline) {
			return nil, fmt.Errorf("connect to NATS at %s: %w", options.Server, err)
		}
		options.Logger.Warn("NATS cannot be reached; trying again", "server", options.Server, "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to NATS at %s: %w", options.Server, err)
		}
	}
}

// pause is how long to wait before the next try: 100 ms doubled up to 1 s, and something more, so that a fleet does not come
// back all at once. Requests wait for the connection meanwhile, so that it is not longer.
func pause(attempt int) time.Duration {
	base := min(100*time.Millisecond<<min(attempt, 10), time.Second)
	return base + rand.N(base/2)
}

// settings translate the options for the client library.
func (c *Conn) settings() ([]client.Option, error) {
	authentication, err := c.options.authentication()
	if err != nil {
		return nil, err
	}
	settings := []client.Option{
		authentication, client.Name(c.options.Name), client.Timeout(5 * time.Second),
		client.MaxReconnects(-1), client.IgnoreAuthErrorAbort(), client.CustomReconnectDelay(pause),
		client.PingInterval(10 * time.Second), client.MaxPingsOutstanding(2), client.NoCallbacksAfterClientClose(),
		client.DisconnectErrHandler(func(_ *client.Conn, err error) {
			c.options.Logger.Warn("the connection to NATS is lost; it is made again", "server", c.options.Server, "error", err)
			if err == nil {
				err = errors.New("the connection was closed")
			}
			c.each(func(w *watcher) { w.lost(err) })
		}),
		client.ReconnectHandler(func(nc *client.Conn) {
			c.reconnected.Store(time.Now().UnixNano())
			c.mu.Lock()
			c.endEra()
			c.era, c.endEra = context.WithCancel(context.Background())
			c.mu.Unlock()
			c.options.Logger.Info("the connection to NATS is back", "server", nc.ConnectedUrlRedacted())
			if nc.FlushTimeout(flushTimeout) != nil { // not sure that the server knows the subscriptions: the next one will be
				return
			}
			c.each(func(w *watcher) { w.connected() })
		}),
		client.ErrorHandler(func(_ *client.Conn, subscription *client.Subscription, err error) {
			c.options.Logger.Warn("NATS reports an error", "error", err)
			if subscription == nil || !errors.Is(err, client.ErrSlowConsumer) {
				return
			}
			// Messages were dropped here: the same as if the connection had been away.
			c.each(func(w *watcher) {
				if w.subscription == subscription {
					w.connected()
				}
			})
		}),
		client.ClosedHandler(func(*client.Conn) { c.end() }),
	}
	config, err := c.options.tls()
	if err != nil {
		return nil, err
	}
	if config != nil {
		settings = append(settings, client.Secure(config))
	}
	return settings, nil
}

const flushTimeout = 5 * time.Second

// each calls the function for all subscriptions that want to know.
func (c *Conn) each(tell func(*watcher)) {
	c.mu.Lock()
	list := make([]*watcher, 0, len(c.watchers))
	for w := range c.watchers {
		list = append(list, w)
	}
	c.mu.Unlock()
	for _, w := range list {
		tell(w)
	}
}

// Close ends the connection; what was published is sent first.
func (c *Conn) Close() error {
	err := c.nc.FlushTimeout(time.Second)
	c.nc.Close()
	c.end()
	if errors.Is(err, client.ErrConnectionClosed) || errors.Is(err, client.ErrTimeout) {
		return nil // there was nobody to send it to
	}
	return err
}

// Deliver sends a request to one of those who serve the subject and returns once it was acknowledged.
func (c *Conn) Deliver(ctx context.Context, subject string, headers map[string]string, message []byte) error {
	request := &client.Msg{Subject: subject, Header: make(client.Header, len(headers)), Data: message}
	for name, value := range headers {
		request.Header[name] = []string{value}
	}
	if limit := c.nc.MaxPayload(); limit > 0 && int64(len(message)) > limit {
		return tooLarge(len(message), limit)
	}
	bounded, cancel := context.WithTimeout(ctx, c.options.RequestTimeout)
	defer cancel()
	reply, err := c.request(bounded, request)
	for bounded.Err() == nil && (errors.Is(err, errInterrupted) || errors.Is(err, client.ErrNoResponders) && c.gathering()) {
		// The bus has just come back: what was under way is lost, and the worker is on its way back to it.
		select {
		case <-time.After(gatherPause):
			reply, err = c.request(bounded, request)
		case <-bounded.Done():
			err = bounded.Err()
		}
	}
	switch {
	case err == nil && len(reply.Data) > 0:
		return wire.Refused(string(reply.Data))
	case err == nil:
		return nil
	case errors.Is(err, client.ErrMaxPayload):
		return tooLarge(len(message), c.nc.MaxPayload())
	case errors.Is(err, client.ErrNoResponders):
		return &inference.Error{Kind: inference.CannotConnect, Message: "nobody serves the subject " + subject, Cause: err}
	case ctx.Err() != nil:
		return &inference.Error{Kind: inference.Cancelled, Message: "the request was cancelled", Cause: err}
	case !c.nc.IsConnected():
		// That is no worker's fault, and no other worker could be reached.
		return &inference.Error{Kind: inference.Unavailable, Message: "there is no connection to NATS", Cause: err}
	}
	return &inference.Error{Kind: inference.CannotConnect, Message: fmt.Sprintf("the worker did not take the request within %v", c.options.RequestTimeout), Cause: err}
}

// errInterrupted is a request that was under way when the connection was lost.
var errInterrupted = errors.New("the connection was lost before the answer")

// request asks once, as soon as there is a connection, and waits for the answer no longer than the connection lasts.
func (c *Conn) request(ctx context.Context, request *client.Msg) (*client.Msg, error) {
	c.mu.Lock()
	era := c.era
	c.mu.Unlock()
	for !c.nc.IsConnected() { // what is sent now would wait for the connection, and be lost with it unnoticed
		select {
		case <-era.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case <-c.closed:
			return nil, client.ErrConnectionClosed
		default:
		}
		c.mu.Lock()
		era = c.era
		c.mu.Unlock()
	}
	try, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(era, stop)()
	reply, err := c.nc.RequestMsgWithContext(try, request)
	if err != nil && ctx.Err() == nil && era.Err() != nil {
		return nil, errInterrupted
	}
	return reply, err
}

const (
	// gatherTime is how long after the connection came back others may not be back yet: longer than the longest pause between their
	// tries, of which workers of other makes have some of 4 s.
	gatherTime = 6 * time.Second
	// gatherPause is the time between two tries of a request meanwhile.
	gatherPause = 50 * time.Millisecond
)

// gathering tells whether the connection came back a moment ago.
func (c *Conn) gathering() bool {
	at := c.reconnected.Load()
	return at != 0 && time.Since(time.Unix(0, at)) < gatherTime
}

func tooLarge(size int, limit int64) error {
	text := fmt.Sprintf("the request takes %d bytes on the request plane; NATS carries %d (max_payload of its server)", size, limit)
	return &inference.Error{Kind: inference.InvalidArgument, Message: text, Public: text}
}

// queueGroup is the group that all servers of a subject join: each request goes to one of them.
const queueGroup = "q"

// Serve acknowledges each request on the subject with an empty message and hands it to take, which must not keep the connection
// waiting. stop ends it; a request that is just being taken may still come. Who asks NATS for services is told of the subject, with
// the description of its service, which is the part before the first dot.
func (c *Conn) Serve(subject, description string, take func(message []byte)) (stop func(), err error) {
	stats, withdraw := c.announce(subject, description)
	subscription, err := c.nc.QueueSubscribe(subject, queueGroup, func(request *client.Msg) {
		began := time.Now()
		_ = request.Respond(nil) // a lost connection: the frontend will see that the worker calls home, or try another one
		take(request.Data)
		stats.count(time.Since(began))
	})
	if err == nil {
		err = c.nc.FlushTimeout(flushTimeout)
	}
	if err != nil {
		withdraw()
		return nil, fmt.Errorf("serve the NATS subject %s: %w", subject, err)
	}
	return func() {
		withdraw()
		_ = subscription.Unsubscribe()
	}, nil
}

// Publish sends a message to all who have subscribed to the subject. It does not wait for the server.
func (c *Conn) Publish(subject string, message []byte) error { return c.nc.Publish(subject, message) }

// Subscribe hands on what is published under the subject until ctx ends or the connection is closed. connected is called once the
// server knows of the subscription, and again after each time that messages may have been lost; lost is called when the
// connection is. The three may be called at the same time.
func (c *Conn) Subscribe(ctx context.Context, subject string, message func([]byte), connected func(), lost func(error)) error {
	w := &watcher{connected: connected, lost: lost}
	subscription, err := c.nc.Subscribe(subject, func(m *client.Msg) { message(m.Data) })
	if err != nil {
		return fmt.Errorf("subscribe to the NATS subject %s: %w", subject, err)
	}
	w.subscription = subscription
	c.mu.Lock()
	c.watchers[w] = struct{}{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.watchers, w)
		c.mu.Unlock()
		_ = subscription.Unsubscribe()
	}()
	if c.nc.FlushTimeout(flushTimeout) == nil {
		connected()
	} // else the connection is away, and connected is called when it is back
	select {
	case <-ctx.Done():
	case <-c.closed:
	}
	return nil
}
