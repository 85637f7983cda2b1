// Package load tracks what every rank is busy with: which KV blocks the requests in flight there hold, how many prompt tokens
// are still to be computed, and what one more request would add.
//
// Requests that share a prefix on a rank share its blocks, which are counted once. All prompts of all ranks lie in one table
// keyed by sequence hash; each entry lists the ranks whose requests hold that block, so that one walk along a prompt finds the
// active prefix on every rank at once. Records, requests and ranks live in slabs and refer to each other by index: the garbage
// collector sees a handful of slices, whatever the number of blocks, and the steady state allocates nothing.
//
// A [Tracker] is not safe for concurrent use: whoever chooses among workers holds a lock anyway, and booking is part of the
// choice. Time is passed in. The package knows nothing of costs, queues and discovery.
package load
