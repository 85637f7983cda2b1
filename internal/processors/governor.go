// Package processors gives the program only as many processors as its load needs.
//
// Go wakes a thread for nearly every event that arrives while a processor is idle, and lets it look for more work before it sleeps
// again. For a program that passes on small events, such as one token of one stream, that search costs more than the events
// themselves. With fewer processors the same load takes about a quarter less CPU time, and first tokens come earlier, since no
// searching thread stands in the worker's way. Under load all processors are in use.
package processors

import (
	"context"
	"runtime"
	"time"
)

const (
	// tick is how often the load is looked at: the longest time that a sudden load has to do with few processors.
	tick = 50 * time.Millisecond
	// calm is for how long the load must have been low before processors are given up.
	calm = 250 * time.Millisecond
	// full is the share of the processors in use beyond which all are taken: waiting times are still far below a millisecond there.
	full = 0.9
	// spare is the share that may be in use of those that are kept.
	spare = 0.8
)

// Governor adapts the number of processors to the load.
type Governor struct {
	used  func() time.Duration // CPU time of the process so far; nil where it cannot be had
	set   func(int) int        // sets the number of processors, 0 for as many as there are, and returns it
	raise chan struct{}
}

// AtStart is how many processors the program was started with, however many are in use now: what work is divided by that goes on for long.
var AtStart = runtime.GOMAXPROCS(0)

// New returns a governor of this process.
func New() *Governor {
	return &Governor{used: processTime, set: setProcessors, raise: make(chan struct{}, 1)}
}

func setProcessors(count int) int {
	if count == 0 {
		runtime.SetDefaultGOMAXPROCS() // looks at the limits of the container anew
	} else {
		runtime.GOMAXPROCS(count)
	}
	return runtime.GOMAXPROCS(0)
}

// Raise takes all processors at once, for a piece of work that one processor would be busy with for long. It never blocks.
func (g *Governor) Raise() {
	select {
	case g.raise <- struct{}{}:
	default:
	}
}

// Run adapts until ctx ends, then takes all processors.
func (g *Governor) Run(ctx context.Context) {
	if g.used == nil {
		return
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	l := load{have: g.set(0), ticks: int(calm / tick)}
	defer g.set(0)
	used, at := g.used(), time.Now()
	for {
		want := l.have
		select {
		case <-ctx.Done():
			return
		case <-g.raise:
			want = l.all()
		case <-ticker.C:
			before, since := used, at
			used, at = g.used(), time.Now()
			if passed := at.Sub(since); passed > 0 {
				want = l.next(float64(used-before) / float64(passed))
			}
		}
		if want != l.have {
			l.have = g.set(want)
		}
	}
}

// load decides how many processors are wanted.
type load struct {
	have  int // processors now
	ticks int // how many looks make up calm

	looked int     // looks since the last change or the last time that was not calm
	sum    float64 // of the load at these looks
}

// all forgets what was seen and asks for every processor, which is what 0 stands for.
func (l *load) all() int {
	l.looked, l.sum = 0, 0
	return 0
}

// next takes the load since the last look, in processors, and returns how many are wanted: 0 for all.
func (l *load) next(busy float64) int {
	if busy > full*float64(l.have) {
		return l.all()
	}
	l.looked++
	l.sum += busy
	if l.looked < l.ticks {
		return l.have
	}
	enough := max(1, ceil(l.sum/float64(l.looked)/spare))
	l.looked, l.sum = 0, 0
	return min(enough, l.have)
}

func ceil(x float64) int {
	n := int(x)
	if float64(n) < x {
		n++
	}
	return n
}
