package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/queue"
)

func never(*queue.Item) bool { return false }

func limit(n uint64) *uint64 { return &n }

// model is a queue beside a plain account of what must be in it.
type model struct {
	queue   *queue.Queue
	classes []queue.Class
	waiting map[*queue.Item]bool
	workers int
	largest []uint64 // cost ever seen, by class
}

func drawClasses(t *rapid.T) []queue.Class {
	classes := make([]queue.Class, rapid.IntRange(1, 5).Draw(t, "classes"))
	for i := range classes {
		classes[i] = queue.Class{Name: fmt.Sprint("c", i), Order: rapid.SampledFrom([]queue.Order{queue.FCFS, queue.WSPT}).Draw(t, "order"),
			Quantum: rapid.Uint64Range(1, 5000).Draw(t, "quantum")}
		maybe := func(name string, most uint64) *uint64 {
			if !rapid.Bool().Draw(t, "has "+name) {
				return nil
			}
			return limit(rapid.Uint64Range(0, most).Draw(t, name))
		}
		classes[i].Limits = queue.Limits{Requests: maybe("requests", 6), RawTokens: maybe("tokens", 9000), CachedTokens: maybe("cached", 4000)}
	}
	return classes
}

func (m *model) add(t *rapid.T) {
	item := &queue.Item{Class: rapid.IntRange(0, len(m.classes)-1).Draw(t, "class"), RawTokens: rapid.Uint64Range(0, 9000).Draw(t, "raw"),
		CachedTokens: rapid.Uint64Range(0, 9000).Draw(t, "cached"), Arrival: time.Duration(rapid.IntRange(0, 5000).Draw(t, "arrival")) * time.Millisecond,
		Jump: rapid.Float64().Draw(t, "jump"), Strict: rapid.Uint32Range(0, 2).Draw(t, "strict")}
	if rapid.Bool().Draw(t, "pinned") {
		item.Lane = queue.Exact(inference.Rank{WorkerID: rapid.Uint64Range(1, 3).Draw(t, "worker")})
	}
	before, limits := m.queue.Stats(item.Class), m.classes[item.Class].Limits
	err := m.queue.Add(item)
	full := false
	for _, l := range []struct{ limit, used *uint64 }{{limits.Requests, &before.Requests}, {limits.RawTokens, &before.RawTokens}, {limits.CachedTokens, &before.CachedTokens}} {
		full = full || l.limit != nil && *l.used >= *l.limit*uint64(m.workers)
	}
	var refused *router.QueueLimitError
	if errors.As(err, &refused) != full {
		t.Fatalf("with %+v in line and limits of %d workers, adding gave %v", before, m.workers, err)
	}
	if full {
		if refused.Current < refused.Limit || m.queue.Stats(item.Class) != before {
			t.Fatalf("refused with %v, and the class has %+v after %+v", refused, m.queue.Stats(item.Class), before)
		}
		return
	}
	m.waiting[item] = true
	m.largest[item.Class] = max(m.largest[item.Class], item.Cost())
}

// check compares all counters with the account, and looks at the bounds of credit.
func (m *model) check(t *rapid.T) {
	sums := make([]queue.Stats, len(m.classes))
	for item := range m.waiting {
		s := &sums[item.Class]
		s.Requests++
		s.RawTokens += item.RawTokens
		s.CachedTokens += min(item.CachedTokens, item.RawTokens)
	}
	for i := range sums {
		got := m.queue.Stats(i)
		if got.Requests == 0 && got.Deficit != 0 {
			t.Fatalf("class %d is empty and has credit of %d", i, got.Deficit)
		}
		if bound := m.largest[i] + m.classes[i].Quantum; got.Deficit > bound {
			t.Fatalf("class %d has credit of %d; more than %d can never be needed", i, got.Deficit, bound)
		}
		got.Deficit = 0
		if got != sums[i] {
			t.Fatalf("class %d counts %+v, there are %+v", i, got, sums[i])
		}
	}
	if m.queue.Len() != len(m.waiting) {
		t.Fatalf("%d in line, there are %d", m.queue.Len(), len(m.waiting))
	}
}

func TestCountersLimitsAndCredit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{classes: drawClasses(t), waiting: make(map[*queue.Item]bool), workers: rapid.IntRange(0, 4).Draw(t, "workers")}
		m.queue, m.largest = queue.New(m.classes), make([]uint64, len(m.classes))
		m.queue.SetWorkers(m.workers)
		take := func(item *queue.Item) {
			if !m.waiting[item] || item.Queued() {
				t.Fatalf("got %+v, which was not waiting", item)
			}
			delete(m.waiting, item)
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": m.add,
			"pop": func(t *rapid.T) {
				blockedClass, blockedWorker := rapid.IntRange(-1, len(m.classes)-1).Draw(t, "blocked"), rapid.Uint64Range(0, 3).Draw(t, "worker")
				blocked := func(item *queue.Item) bool {
					rank, exact := item.Lane.Rank()
					return item.Class == blockedClass || exact && rank.WorkerID == blockedWorker
				}
				item := m.queue.Pop(blocked)
				if item == nil {
					for waiting := range m.waiting {
						if !blocked(waiting) {
							t.Fatalf("nobody went though %+v could", waiting)
						}
					}
					return
				}
				if blocked(item) {
					t.Fatalf("%+v went and could not", item)
				}
				take(item)
				for waiting := range m.waiting {
					if waiting.Class == item.Class && waiting.Lane == item.Lane && waiting.Strict > item.Strict {
						t.Fatalf("tier %d went before tier %d", item.Strict, waiting.Strict)
					}
				}
			},
			"remove": func(t *rapid.T) {
				for item := range m.waiting {
					m.queue.Remove(item)
					take(item)
					m.queue.Remove(item) // a second time changes nothing
					return
				}
			},
			"workers": func(t *rapid.T) {
				m.workers = rapid.IntRange(0, 4).Draw(t, "workers")
				m.queue.SetWorkers(m.workers)
			},
			"": m.check,
		})
		m.queue.Clear(take)
		m.check(t)
		if len(m.waiting) > 0 {
			t.Fatalf("%d were left in line", len(m.waiting))
		}
	})
}

// However large one class's quantum and however small its work, the others get their turn. Turns are not rounds to the letter: a class may
// be given two quanta while another is given one, but never more. So no class gets beyond twice its share of another's service, and what
// it can have saved up.
func TestNoClassStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		classes := make([]queue.Class, rapid.IntRange(2, 6).Draw(t, "classes"))
		costs := make([]uint64, len(classes))
		for i := range classes {
			classes[i] = queue.Class{Name: fmt.Sprint("c", i), Quantum: rapid.Uint64Range(1, 2000).Draw(t, "quantum")}
			costs[i] = rapid.Uint64Range(1, 8000).Draw(t, "cost")
		}
		q := queue.New(classes)
		add := func(class int) {
			if err := q.Add(&queue.Item{Class: class, RawTokens: costs[class]}); err != nil {
				t.Fatal(err)
			}
		}
		served := make([]uint64, len(classes)) // tokens
		for i := range classes {               // two of each: a class that runs empty loses its credit
			add(i)
			add(i)
		}
		for range 1000 {
			item := q.Pop(never)
			served[item.Class] += item.Cost()
			add(item.Class)
			for i := range classes {
				for j := range classes {
					saved := func(class int) float64 { return float64(costs[class])/float64(classes[class].Quantum) + 2 }
					most := 2*(float64(served[i])/float64(classes[i].Quantum)+saved(i)) + saved(j)
					if got := float64(served[j]) / float64(classes[j].Quantum); got > most {
						t.Fatalf("class %d was served for %.1f quanta, class %d allows %.1f at most (quanta %d and %d, costs %d and %d)", j, got, i, most,
							classes[j].Quantum, classes[i].Quantum, costs[j], costs[i])
					}
				}
			}
		}
	})
}

// First come first served never lets somebody wait for ever without priorities: whoever came before goes before.
func TestPlainOrderIsArrival(t *testing.T) {
	q := queue.New([]queue.Class{{Name: "c", Quantum: 1}})
	for i := range 100 {
		if err := q.Add(&queue.Item{Value: i, Arrival: time.Duration(i) * time.Second, RawTokens: uint64(1 + i*7%13)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		if item := q.Pop(never); item.Value != i {
			t.Fatalf("%v went at place %d", item.Value, i)
		}
	}
}

func TestWholeQueueIsBounded(t *testing.T) {
	q := queue.New([]queue.Class{{Name: "c", Quantum: 1}})
	for range queue.MaxItems {
		if err := q.Add(&queue.Item{}); err != nil {
			t.Fatal(err)
		}
	}
	var full *router.QueueLimitError
	if err := q.Add(&queue.Item{}); !errors.As(err, &full) || full.Limit != queue.MaxItems {
		t.Errorf("one more than %d: %v", queue.MaxItems, err)
	}
}
