package routing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/kv"
	"signalbox/router/policy"
	"signalbox/router/queue"
)

const (
	queuedRequests = 10000
	queueClasses   = 16
)

// manyClasses is a policy file of 8 families with 2 buckets each, all busy from the first active prompt token on.
func manyClasses(tb testing.TB) *policy.Profile {
	tb.Helper()
	var text strings.Builder
	text.WriteString("default_policy_family: f0\nuncached_isl_buckets: [{min_tokens: 0, bucket: warm}, {min_tokens: 1500, bucket: cold}]\npolicy_classes:\n")
	for family := range queueClasses / 2 {
		for bucket, name := range []string{"warm", "cold"} {
			fmt.Fprintf(&text, "  - {name: f%d-%s, policy_family: f%d, cache_bucket: %s, queue_policy: %s, quantum: %d, prefill_busy_threshold: 0}\n",
				family, name, family, name, []string{"wspt", "fcfs"}[bucket], 256<<(family%4))
		}
	}
	config, err := policy.Parse("bench", []byte(text.String()))
	if err != nil {
		tb.Fatal(err)
	}
	return config.Root
}

// crowd is a fleet that is busy all over, with requests waiting.
type crowd struct {
	router  *kv.Router
	placed  chan *router.Placement
	random  *rand.Rand
	tokens  [][]uint32
	next    int
	running []*router.Placement
}

func newCrowd(tb testing.TB, workers int) *crowd {
	tb.Helper()
	pool := router.NewPool(router.PoolOptions{Endpoint: "bench"})
	list := make([]router.Worker, workers)
	for i := range list {
		list[i] = router.Worker{ID: uint64(i + 1)}
	}
	pool.SetWorkers(list)
	c := &crowd{placed: make(chan *router.Placement, workers), random: rand.New(rand.NewPCG(1, 2))}
	c.tokens = makePrompts(c.random)
	r, err := kv.New(kv.Options{Config: kv.DefaultConfig(), Pool: pool, BlockSize: blockSize, Random: rand.NewPCG(3, 4), Profile: manyClasses(tb),
		Index: fill(tb, c.tokens, workers, some)})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range c.tokens { // nobody holds a whole prompt: then its worker would not be busy with it
		c.tokens[i] = appendRandom(c.tokens[i], c.random, 10*blockSize)
	}
	c.router = r
	for range workers {
		c.arrive(tb)
		c.running = append(c.running, <-c.placed)
	}
	for i := range queuedRequests {
		c.arrive(tb)
		if i%100 == 99 {
			c.await(i + 1)
		}
	}
	tb.Cleanup(func() { r.Close() })
	return c
}

// arrive places a request from a goroutine that sleeps while it waits.
func (c *crowd) arrive(tb testing.TB) {
	request := &inference.Request{ID: fmt.Sprint("request-", c.next), TokenIDs: c.tokens[c.next%prompts]}
	request.Routing.PolicyClass = fmt.Sprint("f", c.random.IntN(queueClasses/2))
	c.next++
	go func() { // ends when the request is placed or the router is closed
		if placement, err := c.router.Place(context.Background(), request, router.Attempt{}); err == nil {
			c.placed <- placement
		}
	}()
}

func (c *crowd) await(waiting int) {
	for {
		sum := 0
		for _, class := range c.router.AppendClasses(nil) {
			sum += int(class.Requests)
		}
		if sum >= waiting {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// BenchmarkQueued measures a decision with 10,000 requests waiting in 16 classes: the oldest running request ends, which lets one of
// those that wait go, and a new one gets in line. "decision" is the end alone: freeing, choosing whose turn it is, choosing a worker and
// booking there.
func BenchmarkQueued(b *testing.B) {
	for _, workers := range []int{8, 64, 1000} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			c := newCrowd(b, workers)
			var decision time.Duration
			before := processorTime()
			for b.Loop() {
				oldest := c.running[0]
				start := time.Now()
				oldest.End(nil)
				decision += time.Since(start)
				c.running = append(c.running[1:], <-c.placed)
				c.arrive(b)
			}
			b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(decision)/float64(b.N), "decision-ns/op")
		})
	}
}

// BenchmarkTurn measures the queue alone: whose turn it is among 10,000 requests in 16 classes, and a new one that gets in line.
func BenchmarkTurn(b *testing.B) {
	profile := manyClasses(b)
	q := profile.Queue()
	random := rand.New(rand.NewPCG(1, 2))
	items := make([]queue.Item, queuedRequests)
	renew := func(item *queue.Item, i int) {
		*item = queue.Item{Class: random.IntN(queueClasses), RawTokens: promptTokens, CachedTokens: random.Uint64N(promptTokens), Arrival: time.Duration(i) * time.Millisecond, Value: item}
		if err := q.Add(item); err != nil {
			b.Fatal(err)
		}
	}
	for i := range items {
		renew(&items[i], i)
	}
	b.ReportAllocs()
	i := queuedRequests
	for b.Loop() {
		i++
		renew(q.Pop(func(*queue.Item) bool { return false }).Value.(*queue.Item), i)
	}
}
