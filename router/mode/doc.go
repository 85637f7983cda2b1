// Package mode places requests without looking at their prompts: in turn, at random, by requests in flight, by device, or
// where the caller says. It knows nothing of caches, costs and queues.
package mode
