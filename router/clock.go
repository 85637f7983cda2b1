package router

import "time"

// Clock is where routers take time from. All of it is monotonic: a reading is the time since an origin of the clock's own.
type Clock interface {
	// Now returns the reading.
	Now() time.Duration
	// After returns a channel that is closed once d has passed, and a function that gives the timer up.
	After(d time.Duration) (passed <-chan struct{}, stop func())
}

// SystemClock returns the machine's monotonic clock, with its origin at the call.
func SystemClock() Clock { return systemClock{origin: time.Now()} }

type systemClock struct{ origin time.Time }

func (c systemClock) Now() time.Duration { return time.Since(c.origin) }

func (c systemClock) After(d time.Duration) (<-chan struct{}, func()) {
	passed := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(passed) })
	return passed, func() { timer.Stop() }
}
