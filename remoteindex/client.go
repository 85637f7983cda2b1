package remoteindex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tinylib/msgp/msgp"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/kvindex"
	"signalbox/transport/wire"
)

// Queries carries questions to servers. *tcp.Client is one.
type Queries interface {
	// SendValue sends a body that is in the target's codec to an endpoint that answers with plain values in the same codec.
	SendValue(ctx context.Context, target inference.Target, id string, body []byte) (inference.Stream, error)
}

// QueryTimeout bounds a question: a request that waits longer for an answer would be served sooner without one.
const QueryTimeout = 500 * time.Millisecond

// recordsWaiting is how many placements may wait to be told.
const recordsWaiting = 4096

// Client asks other routers' servers what is cached where. It is an index and a recorder for a KV router.
type Client struct {
	queries Queries
	model   string
	logger  *slog.Logger
	cancel  context.CancelFunc
	wait    sync.WaitGroup
	waiting chan []byte // placements

	turn                          atomic.Uint64
	queryFailures, recordFailures atomic.Uint64
	complained                    atomic.Bool

	mutex   sync.RWMutex
	servers map[string][]inference.Target // by endpoint
}

// Options describe a client.
type Options struct {
	Backend discovery.Backend
	Queries Queries
	// Workers is the endpoint of the workers whose caches are asked about.
	Workers discovery.EndpointID
	Model   string
	Logger  *slog.Logger
}

// NewClient finds the servers in the workers' component. Close ends what it starts.
func NewClient(options Options) (*Client, error) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{queries: options.Queries, model: options.Model, logger: options.Logger, cancel: cancel, waiting: make(chan []byte, recordsWaiting),
		servers: make(map[string][]inference.Target)}
	for _, name := range []string{queryEndpoint, recordEndpoint} {
		prefix := options.Workers.Namespace + "/" + options.Workers.Component + "/" + name
		watch, err := options.Backend.Watch(ctx, discovery.Instances, prefix)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("watch the indexes of %s: %w", prefix, err)
		}
		c.wait.Go(func() { c.follow(name, watch) }) // ends with ctx
	}
	c.wait.Go(func() { c.tell(ctx) }) // ends with ctx
	return c, nil
}

// Close forgets the servers.
func (c *Client) Close() {
	c.cancel()
	c.wait.Wait()
}

// Failures returns how many questions had no answer, and how many placements could not be told.
func (c *Client) Failures() (queries, records uint64) {
	return c.queryFailures.Load(), c.recordFailures.Load()
}

// follow keeps the list of servers as discovery has it.
func (c *Client) follow(name string, watch <-chan discovery.Event) {
	known := make(map[string]inference.Target)
	for event := range watch {
		instance, ok := event.Record.(*discovery.Instance)
		if !ok {
			continue
		}
		delete(known, event.Key)
		if event.Kind == discovery.Put {
			target := inference.Target{WorkerID: instance.InstanceID, Address: instance.Transport.TCP}
			if target.Address == "" {
				target.Address = instance.Transport.NATS
			}
			if instance.Codec == inference.MessagePack.String() {
				target.Codec = inference.MessagePack
			}
			known[event.Key] = target
		}
		list := make([]inference.Target, 0, len(known))
		for _, target := range known {
			list = append(list, target)
		}
		c.mutex.Lock()
		c.servers[name] = list
		c.mutex.Unlock()
	}
}

// next returns the server whose turn it is.
func (c *Client) next(name string) (inference.Target, bool) {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	list := c.servers[name]
	if len(list) == 0 {
		return inference.Target{}, false
	}
	return list[c.turn.Add(1)%uint64(len(list))], true
}

// ask sends a value to a server and returns its answer.
func (c *Client) ask(ctx context.Context, name string, body []byte) ([]byte, error) {
	target, ok := c.next(name)
	if !ok {
		return nil, errNobody
	}
	if target.Codec == inference.JSON {
		text, err := wire.AppendJSON(nil, body)
		if err != nil {
			return nil, err
		}
		body = text
	}
	stream, err := c.queries.SendValue(ctx, target, "kv-index-"+strconv.FormatUint(rand.Uint64(), 16), body)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	output, err := stream.Next(ctx)
	if errors.Is(err, io.EOF) {
		err = errors.New("the index answered nothing")
	}
	if err != nil {
		return nil, err
	}
	if target.Codec == inference.JSON {
		return wire.AppendMessagePack(nil, output.Body)
	}
	return append([]byte(nil), output.Body...), nil
}

// Find replaces the content of matches by what every rank holds of the prompt, as a server knows it; by nothing when none answers.
func (c *Client) Find(matches *kvindex.Matches, query kvindex.Query) {
	matches.Ranks = matches.Ranks[:0]
	if len(query.Locals) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), QueryTimeout)
	defer cancel()
	asked := question{model: c.model, locals: query.Locals, deviceOnly: query.DeviceOnly}
	value, err := c.ask(ctx, queryEndpoint, asked.append(nil))
	if err == nil {
		err = parseMatches(matches, value)
	}
	if err != nil {
		matches.Ranks = matches.Ranks[:0]
		c.queryFailures.Add(1)
		c.complain("a remote index does not answer; requests are placed by load", err)
		return
	}
	c.complained.Store(false)
}

// complain writes to the log once until things are well again.
func (c *Client) complain(message string, err error) {
	if !c.complained.Swap(true) {
		c.logger.Warn(message, "error", err)
	}
}

// Record tells a server of a placement, for an index that learns from them. It never waits.
func (c *Client) Record(rank kvindex.Rank, locals, sequence []uint64, _ time.Duration) {
	told := decision{model: c.model, rank: rank, locals: locals, sequence: sequence}
	select {
	case c.waiting <- told.append(nil):
	default:
		c.recordFailures.Add(1)
	}
}

func (c *Client) tell(ctx context.Context) {
	for {
		select {
		case body := <-c.waiting:
			if err := c.tellOne(ctx, body); err != nil && ctx.Err() == nil {
				c.recordFailures.Add(1)
				c.complain("a remote index does not take note of placements", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (c *Client) tellOne(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	value, err := c.ask(ctx, recordEndpoint, body)
	if err != nil {
		return err
	}
	if msgp.NextType(value) == msgp.StrType {
		return nil
	}
	return parseMatches(&kvindex.Matches{}, value) // which is an error that says why not
}
