package observe

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// onceFlag tells its first asker from the others.
type onceFlag struct{ taken atomic.Bool }

func (o *onceFlag) first() bool { return !o.taken.Swap(true) }

const (
	canaryPeriod = 10 * time.Millisecond
	canaryStall  = 5 * time.Millisecond
)

// Canary measures how late a sleeping goroutine wakes: when it does, everything that waits for a processor is late too.
type Canary struct {
	delay  prometheus.Histogram
	stalls prometheus.Counter
	stop   chan struct{}
	done   chan struct{}
	closed onceFlag
}

// NewCanary registers the metrics and starts to measure, until Close.
func NewCanary(registry prometheus.Registerer) *Canary {
	c := &Canary{stop: make(chan struct{}), done: make(chan struct{}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{Name: DefaultPrefix + "_event_loop_delay_seconds", Help: "How late a goroutine wakes from 10 ms of sleep",
			Buckets: []float64{0, .001, .005, .01, .025, .05, .1, .25, .5, 1}}),
		stalls: prometheus.NewCounter(prometheus.CounterOpts{Name: DefaultPrefix + "_event_loop_stall_total", Help: "Times that it woke more than 5 ms late"})}
	registry.MustRegister(c.delay, c.stalls)
	go c.run()
	return c
}

func (c *Canary) run() {
	defer close(c.done)
	timer := time.NewTimer(canaryPeriod)
	defer timer.Stop()
	for {
		slept := time.Now()
		select {
		case <-c.stop:
			return
		case <-timer.C:
		}
		late := max(0, time.Since(slept)-canaryPeriod)
		c.delay.Observe(late.Seconds())
		if late > canaryStall {
			c.stalls.Inc()
		}
		timer.Reset(canaryPeriod)
	}
}

// Close ends the measurement. It may be called more than once.
func (c *Canary) Close() {
	if c.closed.first() {
		close(c.stop)
	}
	<-c.done
}
