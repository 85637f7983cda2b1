package queue_test

import (
	"fmt"

	"signalbox/router/queue"
)

// Premium requests get four times the service of bulk ones while both wait.
func Example() {
	q := queue.New([]queue.Class{{Name: "premium", Quantum: 512}, {Name: "bulk", Quantum: 128}})
	q.SetWorkers(2)
	for i := range 5 {
		for class, name := range []string{"premium", "bulk"} {
			if err := q.Add(&queue.Item{Class: class, RawTokens: 512, Value: fmt.Sprint(name, " ", i)}); err != nil {
				fmt.Println(err)
			}
		}
	}
	ready := func(*queue.Item) bool { return false }
	for range 6 {
		fmt.Println(q.Pop(ready).Value)
	}
	// Output:
	// premium 0
	// premium 1
	// premium 2
	// premium 3
	// bulk 0
	// premium 4
}
