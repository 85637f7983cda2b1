// Package sharedcache knows what a fleet's shared KV cache holds: storage beyond the workers, from which any of them can take blocks that
// it did not compute. It follows Mooncake, in which SGLang's hierarchical cache ("HiCache") keeps its third tier.
//
// SGLang cuts prompts into pages and names a page by the SHA-256 of its tokens and of the page before it. Each part of the model (a rank
// of tensor or pipeline parallelism, keys, values) stores its piece of a page under the page's name and its own suffix. The store's
// master publishes every object that comes and goes over ZeroMQ. A [Cache] keeps the pages whose pieces are all there, and answers with
// runs of a prompt's pages. How a fleet lays its objects out, and where the master is, the workers tell on their model cards: see [Layout].
//
// The master repeats nothing. What was stored before a cache began to listen, or while it could not, stays unknown to it until it is
// stored again: a cache knows too little, never too much.
package sharedcache
