package processors

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// machine stands in for the process and its scheduler: the load is set, the number of processors recorded.
type machine struct {
	count, now int
	busy       atomic.Int64 // hundredths of a processor
	used       time.Duration
	at         time.Time
}

func (m *machine) time() time.Duration {
	now := time.Now()
	m.used += now.Sub(m.at) * time.Duration(m.busy.Load()) / 100
	m.at = now
	return m.used
}

func (m *machine) set(n int) int {
	if n == 0 {
		n = m.count
	}
	m.now = n
	return n
}

// watched runs a governor of a machine with that many processors in a bubble of its own time.
func watched(t *testing.T, count int, story func(m *machine, g *Governor)) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{count: count, at: time.Now()}
		g := &Governor{used: m.time, set: m.set, raise: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); g.Run(ctx) }()
		story(m, g)
		cancel()
		<-done
		if m.now != count {
			t.Errorf("%d processors after the end, want all %d", m.now, count)
		}
	})
}

// after lets time pass under a load and tells how many processors there are then.
func (m *machine) after(passed time.Duration, busy float64) int {
	m.busy.Store(int64(busy * 100))
	time.Sleep(passed) // of the bubble
	synctest.Wait()
	return m.now
}

func TestProcessorsFollowTheLoad(t *testing.T) {
	watched(t, 16, func(m *machine, _ *Governor) {
		for _, step := range []struct {
			name string
			for_ time.Duration
			busy float64
			want int
		}{
			{"just started", calm / 2, 0.1, 16},
			{"calm", 2 * calm, 0.1, 1},
			{"one processor copes", 10 * calm, 0.8, 1},
			{"too much for one", 2 * tick, 5, 16},
			{"still high", 2 * tick, 5, 16},
			{"five are busy", 3 * calm, 5, 7},
			{"more than these can do", 2 * tick, 6.5, 16},
			{"overload", 10 * calm, 16, 16},
			{"calm again", 3 * calm, 0, 1},
		} {
			if got := m.after(step.for_, step.busy); got != step.want {
				t.Errorf("%s: %d processors, want %d", step.name, got, step.want)
			}
		}
	})
}

func TestOneLongPieceOfWorkTakesAllProcessorsAtOnce(t *testing.T) {
	watched(t, 4, func(m *machine, g *Governor) {
		if got := m.after(2*calm, 0.1); got != 1 {
			t.Fatalf("%d processors when calm, want 1", got)
		}
		g.Raise()
		g.Raise() // a second one changes nothing
		synctest.Wait()
		if m.now != 4 {
			t.Errorf("%d processors, want all at once", m.now)
		}
		if got := m.after(2*calm, 0.1); got != 1 {
			t.Errorf("%d processors when calm again, want 1", got)
		}
	})
}

func TestTheRealProcess(t *testing.T) {
	if processTime == nil {
		t.Skip("the CPU time of a process is not known on this system")
	}
	before := processTime()
	for end := time.Now().Add(30 * time.Millisecond); time.Now().Before(end); { // uses CPU, which is what is read
	}
	if used := processTime() - before; used <= 0 {
		t.Errorf("busy for 30 ms took %v of CPU time", used)
	}
	all := setProcessors(0)
	if got := setProcessors(1); got != 1 {
		t.Errorf("%d processors, want 1", got)
	}
	if got := setProcessors(0); got != all {
		t.Errorf("%d processors, want %d again", got, all)
	}
}
