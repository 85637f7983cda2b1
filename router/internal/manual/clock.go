// Package manual is a clock for tests that stands still until it is told to move.
package manual

import (
	"slices"
	"sync"
	"time"
)

// Clock is a router.Clock under a test's control. The zero Clock reads 0.
type Clock struct {
	mutex  sync.Mutex
	now    time.Duration
	timers []*timer
	armed  chan struct{}
}

type timer struct {
	at     time.Duration
	passed chan struct{}
}

// Now returns the reading.
func (c *Clock) Now() time.Duration {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.now
}

// After arms a timer.
func (c *Clock) After(d time.Duration) (<-chan struct{}, func()) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	t := &timer{at: c.now + d, passed: make(chan struct{})}
	c.timers = append(c.timers, t)
	if c.armed != nil {
		close(c.armed)
		c.armed = nil
	}
	return t.passed, func() {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.timers = slices.DeleteFunc(c.timers, func(other *timer) bool { return other == t })
	}
}

// Advance moves the reading and fires the timers that it passes.
func (c *Clock) Advance(d time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.now += d
	c.timers = slices.DeleteFunc(c.timers, func(t *timer) bool {
		if t.at > c.now {
			return false
		}
		close(t.passed)
		return true
	})
}

// AwaitTimer returns once a timer is armed.
func (c *Clock) AwaitTimer() {
	c.mutex.Lock()
	if len(c.timers) > 0 {
		c.mutex.Unlock()
		return
	}
	if c.armed == nil {
		c.armed = make(chan struct{})
	}
	armed := c.armed
	c.mutex.Unlock()
	<-armed
}
