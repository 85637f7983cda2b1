package kv_test

import (
	"context"
	"fmt"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/kv"
)

// Two workers; the second holds the beginning of the prompt, so that it costs less there.
func Example() {
	pool := router.NewPool(router.PoolOptions{Endpoint: "dynamo/backend/generate"})
	pool.SetWorkers([]router.Worker{{ID: 1}, {ID: 2}})
	index, err := kvindex.New(kvindex.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := kv.New(kv.Options{Config: kv.DefaultConfig(), Pool: pool, BlockSize: 4, Index: index})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()

	prompt := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	hasher, _ := kvhash.New(kvhash.Scope{BlockSize: 4})
	locals := hasher.AppendBlocks(nil, prompt[:8])
	_ = index.Apply(kvindex.Event{Rank: kvindex.Rank{WorkerID: 2}, Op: kvindex.Stored,
		Blocks: []kvindex.Block{{Hash: 100, Local: locals[0]}, {Hash: 101, Local: locals[1]}}})

	placement, err := r.Place(context.Background(), &inference.Request{ID: "a", TokenIDs: prompt}, router.Attempt{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("worker %d, %d of %d tokens cached\n", placement.WorkerID, placement.CachedTokens, placement.InputTokens)
	placement.FirstToken() // the prompt is computed
	placement.Progress(1)  // tokens arrive
	placement.End(nil)     // the rank is free again
	fmt.Println(r.Stats().ActiveRequests, "requests in flight")
	// Output:
	// worker 2, 8 of 10 tokens cached
	// 0 requests in flight
}
